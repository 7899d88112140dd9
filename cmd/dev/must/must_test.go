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
	require.EqualError(t, func() (err error) {
		defer Return(&err, "cannot test")
		Do(broken, "cannot read")
		return nil
	}(), "cannot test: cannot read: broken")
	// The error may have been assigned before Do, alone or joined with that of a deferred call.
	assigned := func(what []string, closing func(error) error) (err error) {
		defer Return(&err, what...)
		defer func() { err = closing(err) }()
		_, err = f(broken, nil)
		Do(err, "cannot assign")
		return nil
	}
	keep := func(err error) error { return err }
	require.EqualError(t, assigned(nil, keep), "cannot assign: broken")
	require.EqualError(t, assigned([]string{"cannot test"}, keep), "cannot test: cannot assign: broken")
	require.EqualError(t, assigned(nil, func(err error) error { return errors.Join(err, errors.New("cannot close")) }), "cannot assign: broken\ncannot close")

	require.PanicsWithValue(t, "another", func() {
		var err error
		defer Return(&err)
		panic("another")
	})
}
