package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

// plan returns the hits of ten minutes by target. Each hit of the target "slow" takes the given
// time.
func plan(t *testing.T, seed uint64, slow time.Duration) (events map[string][]string, counts Counts) {
	t.Helper()
	events = map[string][]string{}
	var mu sync.Mutex
	note := func(target string) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, r *rand.Rand) error {
			mu.Lock()
			events[target] = append(events[target], fmt.Sprint(r.IntN(1000)))
			mu.Unlock()
			if target == "slow" {
				launch.Sleep(ctx, slow)
			}
			return nil
		}
	}
	var targets []Target
	for _, name := range []string{"quick", "slow"} {
		targets = append(targets, Target{Name: name, Gap: 4 * time.Second, Faults: []Fault{{"kill -9", 3, note(name)}, {"pause", 1, note(name)}}})
	}
	targets = append(targets, Target{Name: "never", Faults: []Fault{{"kill -9", 1, note("never")}}})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var err error
		counts, err = Run(ctx, seed, targets, func(string, ...any) {})
		require.NoError(t, err)
	})
	return events, counts
}

func TestPlanDependsOnSeedOnly(t *testing.T) {
	first, counts := plan(t, 1, time.Second)
	again, _ := plan(t, 1, time.Second)
	require.Equal(t, first, again)
	slower, _ := plan(t, 1, 9*time.Second)
	require.Equal(t, first["quick"], slower["quick"], "slow faults of one target do not change the plan of another")
	n := len(slower["slow"])
	require.Less(t, n, len(first["slow"]))
	require.Equal(t, first["slow"][:n], slower["slow"], "the same plan, but shorter")
	other, _ := plan(t, 2, time.Second)
	require.NotEqual(t, first["quick"], other["quick"])

	require.Empty(t, first["never"])
	require.InDelta(t, 150, len(first["quick"]), 50)
	require.Equal(t, len(first["quick"]), counts.Of("quick", "kill -9", "pause"))
	require.Greater(t, counts.Of("quick", "kill -9"), counts.Of("quick", "pause"))
	require.Zero(t, counts.Of("quick", "SIGTERM"))
}

func TestPermanentFaultEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := errors.New("stuck")
		targets := []Target{
			{Name: "a", Gap: time.Second, Faults: []Fault{{"one", 1, func(context.Context, *rand.Rand) error { return stuck }}}},
			{Name: "b", Gap: time.Second, Faults: []Fault{{"two", 1, func(ctx context.Context, _ *rand.Rand) error { launch.Sleep(ctx, time.Hour); return nil }}}},
		}
		_, err := Run(t.Context(), 1, targets, func(string, ...any) {})
		require.ErrorIs(t, err, stuck)
		require.ErrorContains(t, err, "a: one")
	})
}

// TestErrNotInjected checks that a fault that could not be injected is undone and not counted.
func TestErrNotInjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun, ended := 0, 0
		hit := During(0, time.Second, func(*rand.Rand) error { begun++; return ErrNotInjected }, func() error { ended++; return nil })
		counts, err := Run(ctx, 1, []Target{{Name: "store", Gap: time.Second, Faults: []Fault{{"kill -9", 1, hit}}}}, t.Logf)
		require.NoError(t, err)
		require.Empty(t, counts)
		require.Positive(t, begun)
		require.Equal(t, begun, ended)
	})
}

// TestRunLastsUntilItsContextIsDone checks that clients can send for the whole duration even if
// nothing is hit.
func TestRunLastsUntilItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		counts, err := Run(ctx, 1, []Target{{Name: "never", Faults: []Fault{{"kill -9", 1, nil}}}}, nil)
		require.NoError(t, err)
		require.Empty(t, counts)
		require.Error(t, ctx.Err())
	})
}
