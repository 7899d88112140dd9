package must

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReturn(t *testing.T) {
	broken := errors.New("broken")
	var closed bool
	f := func(first, second error) (n int, err error) {
		defer Return(&err)
		defer func() { closed = true }()
		n = Get(2, first)
		Do(second)
		return n, nil
	}
	n, err := f(nil, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = f(broken, nil)
	require.Equal(t, broken, err)
	closed = false
	_, err = f(nil, broken)
	require.Equal(t, broken, err)
	require.True(t, closed)
	_, err = func() (n int, err error) {
		defer Return(&err, "cannot test")
		defer func() { err = broken }()
		return Get(1, errors.New("first")), nil
	}()
	require.EqualError(t, err, "cannot test: first\nbroken")
	require.PanicsWithValue(t, "another", func() {
		var err error
		defer Return(&err)
		panic("another")
	})
}
