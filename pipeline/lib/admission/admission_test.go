package admission_test

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
)

var (
	used  = metrics.NewGauge("admission_test_used", "")
	limit = metrics.NewGauge("admission_test_limit", "")
)

func quotas(n int64) *admission.Quotas {
	used.Set(0)
	return admission.New(n, admission.Resource{Noun: "slots", Advice: "wait", Full: "all slots are in use", Used: used, Limit: limit})
}

// TestQuotasLeaveSomething checks that the next client gets something even if all others take as
// much as they can, until nothing is left.
func TestQuotasLeaveSomething(t *testing.T) {
	q := quotas(60)
	require.EqualValues(t, 60, testutil.ToFloat64(limit))
	held := map[string]int64{}
	f := func(client string, n, want int64, text string) {
		t.Helper()
		for {
			apiErr := q.Acquire(client, n)
			if apiErr == nil {
				held[client] += n
				continue
			}
			require.Equal(t, want, held[client])
			require.Contains(t, apiErr.Description, text)
			require.Equal(t, apiErr, q.Check(client, n))
			return
		}
	}
	f("a", 1, 30, "this client has 30 slots; 1 more would exceed its quota, half of what other clients leave: wait")
	f("b", 1, 15, "this client has 15 ")
	f("c", 1, 7, "this client has 7 ")
	f("d", 5, 5, "this client has 5 ")
	f("e", 5, 5, "; 5 more ") // of 3 that are left
	f("f", 1, 0, "all slots are in use")
	require.Contains(t, q.CheckCharged("f").Description, "all slots are in use")
	q.Charge("e", 100)
	f("f", 1, 0, "all slots are in use")
	require.Contains(t, q.CheckCharged("e").Description, "this client has 100 slots, more than its quota, half of what other clients leave: wait")
	q.Discharge("e", 100)
	q.Release("e", 5)
	require.Nil(t, q.CheckCharged("e"))
	q.Charge("e", 2)
	require.NotNil(t, q.CheckCharged("e"), "1 is left")
	require.Nil(t, q.CheckCharged("a"), "nothing was charged to it")
	q.Discharge("e", 2)
	f("f", 1, 1, "this client has 1 ")
	for client, n := range held {
		if client != "e" {
			q.Release(client, n)
		}
	}
	require.Zero(t, q.Total())
	require.Zero(t, testutil.ToFloat64(used))
	f("g", 31, 31, "this client has 31 ")
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
		if q.Acquire("client", 1) != nil || q.Check("client", 1) != nil {
			t.Error("got an error, want a free slot")
		}
		q.Release("client", 1)
	}))
}
