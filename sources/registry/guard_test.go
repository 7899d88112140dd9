package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

func list(from, to int) []string {
	var codes []string
	for i := from; i < to; i++ {
		codes = append(codes, fmt.Sprintf("D%d", i))
	}
	return codes
}

func TestGuard(t *testing.T) {
	current, _ := batch.NewDetectors(list(0, 100))
	g := guard{maxShrink: 0.5, confirm: time.Minute}
	start := time.Now()
	f := func(after time.Duration, codes []string, want string) {
		t.Helper()
		next, _ := batch.NewDetectors(codes)
		err := g.admit(current, next, fingerprintOf(codes), start.Add(after))
		if want == "" {
			require.NoError(t, err)
			return
		}
		var suspect *suspectError
		require.ErrorAs(t, err, &suspect)
		require.ErrorContains(t, err, want)
	}
	f(0, list(0, 200), "")
	f(0, list(50, 100), "")
	f(0, nil, "never used")
	f(time.Hour, nil, "never used")
	f(0, list(51, 100), "lacks 51 of the 100 detectors")
	f(59*time.Second, list(51, 100), "lacks 51") // the time counts from the first sighting
	f(60*time.Second, list(51, 100), "")
	f(70*time.Second, list(51, 100), "lacks 51") // taken once, suspicious again
	f(80*time.Second, list(60, 100), "lacks 60") // a different list starts over
	f(135*time.Second, list(60, 100), "lacks 60")
	f(136*time.Second, list(0, 100), "") // a good list in between clears the suspicion
	f(141*time.Second, list(60, 100), "lacks 60")
	f(200*time.Second, list(1000, 1100), "lacks 100") // as long as before, but another list
}

func TestGuardAtTheStart(t *testing.T) {
	g := guard{maxShrink: 0.5}
	few, _ := batch.NewDetectors(list(0, 1))
	none, left := batch.NewDetectors([]string{"", ""})
	require.NoError(t, g.admit(nil, few, fingerprint{}, time.Now()))
	require.Equal(t, 2, left)
	require.Error(t, g.admit(nil, none, fingerprint{}, time.Now()))
}

func TestFingerprint(t *testing.T) {
	require.Equal(t, fingerprintOf([]string{"A", "B"}), fingerprintOf([]string{"B", "A"}))
	require.NotEqual(t, fingerprintOf([]string{"A", "B"}), fingerprintOf([]string{"AB"}))
	require.NotEqual(t, fingerprintOf([]string{"A"}), fingerprintOf([]string{"A", ""}))
}
