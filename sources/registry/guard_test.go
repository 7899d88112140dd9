package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
	"trafficd/sources/internal/shrink"
)

// TestAdmit checks the number of missing codes that admit passes to the guard. Package shrink tests
// the guard's decisions.
func TestAdmit(t *testing.T) {
	g := &shrink.Guard{Limits: shrink.DefaultLimits(), Content: "the list", Entries: "detectors"}
	f := func(current, next []string, want string) {
		t.Helper()
		var before *batch.Detectors
		if current != nil {
			before, _ = batch.NewDetectors(current)
		}
		after, _ := batch.NewDetectors(next)
		err := admit(g, before, after, markOf(next), time.Now())
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f(nil, []string{"A"}, "")
	f(nil, []string{"", ""}, "never used")
	f([]string{"A"}, nil, "never used")
	f([]string{"A", "B", "C"}, []string{"B", "C"}, "")
	f([]string{"A", "B", "C"}, []string{"C", "D", "E"}, "the list lacks 2 of the 3 detectors")
}
