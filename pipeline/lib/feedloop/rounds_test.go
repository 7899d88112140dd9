package feedloop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRounds checks the times of the checks on a fake clock.
func TestRounds(t *testing.T) {
	f := func(changes map[time.Duration]bool, pauses []time.Duration, want ...time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			poke := make(chan struct{}, 1)
			start := time.Now()
			for at := range changes {
				time.AfterFunc(at, func() { poke <- struct{}{} })
			}
			time.AfterFunc(100*time.Second, stop)
			var checks []time.Duration
			rounds(ctx, poke, time.Second, func(context.Context) time.Duration {
				n := min(len(checks), len(pauses)-1)
				checks = append(checks, time.Since(start))
				return pauses[n]
			})
			require.Equal(t, want, checks)
		})
	}
	const s = time.Second
	f(nil, []time.Duration{200 * s}, 0)
	f(nil, []time.Duration{30 * s, 5 * s, 200 * s}, 0, 30*s, 35*s)
	// Several changes cause one check, a second after the first change.
	f(map[time.Duration]bool{7 * s: true, 7*s + 400: true, 7*s + 900: true}, []time.Duration{20 * s, 200 * s}, 0, 8*s)
	// A change moves the next check to a second after the change, even if the check was due before
	// that. The following pause starts when that check ends.
	f(map[time.Duration]bool{50 * s: true}, []time.Duration{60 * s}, 0, 51*s)
	f(map[time.Duration]bool{19*s + s/2: true}, []time.Duration{20 * s, 200 * s}, 0, 20*s+s/2)
}
