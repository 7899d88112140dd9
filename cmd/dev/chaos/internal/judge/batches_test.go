package judge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/schemas/contract"
)

// TestBatches plants each kind of wrong state.
func TestBatches(t *testing.T) {
	accepted := []ledger.Accepted{{Batch: "a"}, {Batch: "a"}, {Batch: "b"}}
	archive := []Arrival{{Accepted: accepted[0]}, {Accepted: accepted[1]}, {Accepted: accepted[2]}}
	topic := archive[:2]
	f := func(want string, lost bool, id string, n, archived, forwarded, dead int, final bool) {
		t.Helper()
		s := contract.BatchStatus{
			Accepted: n, Final: final, Archived: &contract.StoreStatus{Items: archived}, Forwarded: &contract.StoreStatus{Items: forwarded, DeadLettered: dead},
		}
		wrong := Batches(map[string]contract.BatchStatus{id: s}, accepted, archive, topic, lost)
		if want == "" {
			require.Empty(t, wrong)
			return
		}
		require.Len(t, wrong, 1)
		require.Contains(t, wrong[0], want)
	}
	f("", false, "a", 2, 2, 2, 0, true)
	f("more than the stores have: batch a: accepted 2, archived {Items:3", false, "a", 2, 3, 2, 0, true)
	f("more than the stores have", true, "b", 1, 1, 1, 0, true)
	f("final, but less than the stores have", false, "a", 1, 1, 1, 0, true)
	f("no store refuses a measurement", false, "a", 2, 2, 1, 1, false)
	f("not final", false, "a", 2, 2, 1, 0, false)
	f("not final", false, "a", 3, 2, 2, 0, true)
	f("", true, "a", 2, 2, 1, 0, false)
	require.Contains(t, Batches(map[string]contract.BatchStatus{"a": {}}, accepted, archive, topic, false)[0], "the state is not known")
}
