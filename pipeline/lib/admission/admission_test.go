package admission

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

var (
	used  = metrics.NewGauge("admission_test_used", "")
	limit = metrics.NewGauge("admission_test_limit", "")
)

func quotas(n int64) *Quotas {
	used.Set(0)
	return New(n, Resource{Noun: "slots", Advice: "wait", Full: "all slots are in use", Used: used, Limit: limit})
}

// TestErrors checks what a client learns from a 503, and that charges count even beyond the quota.
func TestErrors(t *testing.T) {
	q := quotas(60)
	require.EqualValues(t, 60, testutil.ToFloat64(limit))
	f := func(apiErr *contract.APIError, want string) {
		t.Helper()
		require.NotNil(t, apiErr)
		require.Equal(t, contract.ServiceUnavailable, apiErr.Code)
		require.Equal(t, want, apiErr.Description)
	}
	require.Nil(t, q.Acquire("a", 30))
	f(q.Acquire("a", 1), "this client has 30 slots; 1 more would exceed its quota, half of what other clients leave: wait")
	require.Nil(t, q.Acquire("b", 10))
	q.Charge("b", 18)
	f(q.CheckCharged("b"), "this client has 18 slots, more than its quota, half of what other clients leave: wait")
	require.Nil(t, q.CheckCharged("a"), "nothing was charged to it")
	require.Nil(t, q.CheckCharged("c"), "2 are left")
	q.Charge("b", 3)
	f(q.Acquire("c", 1), "all slots are in use")
	f(q.CheckCharged("c"), "all slots are in use")
	q.Discharge("b", 21)
	require.Nil(t, q.CheckCharged("b"))
	require.EqualValues(t, 40, testutil.ToFloat64(used))
	q.Release("a", 30)
	q.Release("b", 10)
	require.Zero(t, q.Total())
	require.Zero(t, testutil.ToFloat64(used))
	require.Empty(t, q.charged)
}

// TestConcurrentQuotas checks that no more than the quota is held, and that everything is released.
func TestConcurrentQuotas(t *testing.T) {
	q := quotas(6)
	taken := make(chan struct{}, 3)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if q.Acquire("a", 1) != nil {
					continue
				}
				select {
				case taken <- struct{}{}:
					<-taken
				default:
					t.Error("more than the quota was acquired")
				}
				q.Release("a", 1)
			}
		})
	}
	all.Wait()
	require.Zero(t, q.Total())
}

func TestNoAllocations(t *testing.T) {
	q := quotas(10)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if q.Acquire("client", 1) != nil {
			t.Error("got an error, want a free slot")
		}
		q.Release("client", 1)
	}))
}
