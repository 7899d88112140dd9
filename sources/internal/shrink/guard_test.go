package shrink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/feedloop"
)

// markOf returns the mark of the entries from up to, but not including, to.
func markOf(from, to int) (m Mark) {
	for i := from; i < to; i++ {
		m.Add(uint64(i) * 0x9e3779b97f4a7c15)
	}
	return m
}

func TestGuard(t *testing.T) {
	g := Guard{Limits: Limits{MaxShrink: 0.5, ShrinkConfirm: time.Minute}, Content: "the list", Entries: "detectors", Hint: "to use it now, restart"}
	start := time.Now()
	// The content in use has the entries 0 to 99.
	f := func(after time.Duration, from, to int, want string) {
		t.Helper()
		missing := 100 - max(0, min(to, 100)-from)
		err := g.Admit(missing, 100, markOf(from, to), start.Add(after))
		if want == "" {
			require.NoError(t, err)
			return
		}
		var suspect *feedloop.Refused
		require.ErrorAs(t, err, &suspect)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "to use it now, restart")
	}
	f(0, 0, 200, "")
	f(0, 50, 100, "")
	f(0, 51, 100, "the list lacks 51 of the 100 detectors")
	f(59*time.Second, 51, 100, "lacks 51") // the wait starts when the content is read for the first time
	f(60*time.Second, 51, 100, "")
	f(70*time.Second, 51, 100, "lacks 51") // the wait starts again after the content has been used
	f(80*time.Second, 60, 100, "lacks 60") // the wait starts over with different content
	f(135*time.Second, 60, 100, "lacks 60")
	f(136*time.Second, 0, 100, "") // complete content ends the wait
	f(141*time.Second, 60, 100, "lacks 60")
	f(200*time.Second, 1000, 1100, "lacks 100") // the same number of entries, but different ones
	f(210*time.Second, 100, 100, "lacks 100")   // empty
}

func TestGuardWithNothingInUse(t *testing.T) {
	g := Guard{Limits: DefaultLimits()}
	require.NoError(t, g.Admit(0, 0, markOf(0, 1), time.Now()))
	require.NoError(t, g.Admit(0, 0, Mark{}, time.Now()))
}

func TestMark(t *testing.T) {
	f := func(hashes ...uint64) (m Mark) {
		for _, h := range hashes {
			m.Add(h)
		}
		return m
	}
	require.Equal(t, f(1, 2), f(2, 1))
	require.NotEqual(t, f(1, 2), f(3))
	require.NotEqual(t, f(1), f(1, 0))
}

func TestLimits(t *testing.T) {
	require.NoError(t, DefaultLimits().Validate())
	require.ErrorContains(t, Limits{MaxShrink: 1.5}.Validate(), "max_shrink is 1.5")
}
