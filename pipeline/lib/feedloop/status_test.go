package feedloop

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/watch"
)

var results = NewResults("test_checks_total", "Checks of a test", "used")

// TestFailureLogIsLimited checks that a feed that fails for hours does not fill the log, although
// its errors alternate or differ each time.
func TestFailureLogIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		s := NewStatus("the list", results, zerolog.New(&logged))
		f := func(err error, after time.Duration, lines int) {
			t.Helper()
			time.Sleep(after)
			logged.Reset()
			s.Conclude(err)
			require.Equal(t, lines, strings.Count(logged.String(), "\n"))
		}
		one, two := errors.New("port 1"), errors.New("port 2")
		f(watch.ErrUnsettled, 0, 0)
		f(one, 0, 1)
		f(two, time.Second, 0)
		f(one, time.Second, 0)
		f(two, time.Minute, 1)
		f(two, time.Hour, 0)
		f(one, time.Second, 1)
		f(nil, 0, 1) // the first success is logged
		f(watch.ErrUnchanged, 0, 0)
		f(one, time.Second, 1)
		f(two, time.Second, 0)
		f(two, time.Minute, 1) // an error that stays is logged, although not at first
		f(two, time.Minute, 0)
	})
}

// TestState checks the state after each outcome.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStatus("the list", results, zerolog.Nop())
		start := time.Now()
		f := func(err, want error, inUse bool, confirmed time.Duration) {
			t.Helper()
			time.Sleep(time.Second)
			s.Conclude(err)
			state := s.Get()
			require.Equal(t, want, state.Err)
			require.Equal(t, inUse, state.InUse)
			require.Equal(t, confirmed, state.Confirmed.Sub(start))
		}
		require.EqualError(t, s.Get().Err, "the list has not been loaded yet")
		require.ErrorIs(t, s.Get().Err, ErrNotRead)
		bad, refused := errors.New("bad"), fmt.Errorf("cannot use it: %w", &Refused{"it has shrunk"})
		f(watch.ErrUnsettled, watch.ErrUnsettled, false, 0)
		f(bad, bad, false, 0)
		f(nil, nil, true, 3*time.Second)
		f(watch.ErrUnsettled, nil, true, 3*time.Second)
		f(refused, refused, true, 3*time.Second)
		f(watch.ErrUnchanged, nil, true, 6*time.Second)
	})
}
