package upload_test

import (
	"sync"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"github.com/stretchr/testify/require"

	"trafficd/sources/internal/upload"
)

// admission makes one, and a check of what it holds, which its gauges have to show.
func admission(t *testing.T, maxRequests, maxBytes int64) (a *upload.Admission, holds func(requests, bytes int64)) {
	g := upload.Gauges{Requests: &metrics.Gauge{}, RequestsLimit: &metrics.Gauge{}, Bytes: &metrics.Gauge{}, BytesLimit: &metrics.Gauge{}}
	a = upload.NewAdmission(maxRequests, maxBytes, g)
	require.EqualValues(t, maxRequests, g.RequestsLimit.Get())
	require.EqualValues(t, maxBytes, g.BytesLimit.Get())
	return a, func(requests, bytes int64) {
		t.Helper()
		r, b := a.Held()
		require.Equal(t, [2]int64{requests, bytes}, [2]int64{r, b})
		require.EqualValues(t, requests, g.Requests.Get())
		require.EqualValues(t, bytes, g.Bytes.Get())
	}
}

func TestAdmissionOfRequests(t *testing.T) {
	a, holds := admission(t, 2, 100)
	require.True(t, a.Enter(10))
	require.True(t, a.Enter(100))
	require.False(t, a.Enter(0), "all places are taken")
	holds(2, 0) // the first bytes of a body are only looked at
	a.Leave()
	holds(1, 0)
	require.False(t, a.Enter(101), "there will never be so much memory")
	holds(1, 0)
	require.True(t, a.Enter(0))
	a.Leave()
	a.Leave()
	holds(0, 0)
}

func TestAdmissionOfBytes(t *testing.T) {
	a, holds := admission(t, 2, 100)
	require.True(t, a.Hold(60))
	require.False(t, a.Hold(41))
	holds(0, 60)
	require.True(t, a.Hold(40))
	require.False(t, a.Exceeded())
	require.False(t, a.Enter(1), "its body could not begin")

	a.Exceed(50) // an answer has to be given
	require.True(t, a.Exceeded())
	holds(0, 150)
	a.Release(100)
	require.False(t, a.Hold(51))
	require.True(t, a.Enter(50))
	holds(1, 50)
	a.Release(50)
	a.Leave()
	holds(0, 0)
}

// However many come at once, no more than the limits are in, and nothing stays.
func TestAdmissionOfMany(t *testing.T) {
	const places, bytes, each = 3, 100, 40
	a, holds := admission(t, places, bytes)
	requests, bodies := make(chan struct{}, places), make(chan struct{}, bytes/each)
	within := func(limit chan struct{}, work func()) {
		select {
		case limit <- struct{}{}:
			work()
			<-limit
		default:
			t.Error("more than the limit")
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if !a.Enter(0) {
					continue
				}
				within(requests, func() {
					if a.Hold(each) {
						within(bodies, func() {})
						a.Release(each)
					}
				})
				a.Leave()
			}
		})
	}
	all.Wait()
	holds(0, 0)
}
