package ingest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// limited makes an admission, and a check of what it holds, which the gauges have to show.
func limited(t *testing.T, maxRequests, maxBytes int64) (a *admission, holds func(requests, bytes int64)) {
	a = newAdmission(Config{AdmissionRequests: maxRequests, AdmissionBytes: maxBytes})
	require.EqualValues(t, maxRequests, admissionRequestsLimit.Get())
	require.EqualValues(t, maxBytes, admissionBytesLimit.Get())
	requestsBefore, bytesBefore := admissionRequests.Get(), admissionBytes.Get()
	return a, func(requests, bytes int64) {
		t.Helper()
		r, b := a.held()
		require.Equal(t, [2]int64{requests, bytes}, [2]int64{r, b})
		require.EqualValues(t, requests, admissionRequests.Get()-requestsBefore)
		require.EqualValues(t, bytes, admissionBytes.Get()-bytesBefore)
	}
}

func TestAdmissionOfRequests(t *testing.T) {
	a, holds := limited(t, 2, 2*blockSize)
	require.True(t, a.enter())
	require.True(t, a.enter())
	require.False(t, a.enter(), "all places are taken")
	holds(2, 0) // the first bytes of a body are only looked at
	a.leave()
	holds(1, 0)
	require.True(t, a.enter())
	a.leave()
	a.leave()
	holds(0, 0)
}

func TestAdmissionOfBytes(t *testing.T) {
	a, holds := limited(t, 2, 2*blockSize)
	require.True(t, a.hold(blockSize+1))
	require.False(t, a.hold(blockSize))
	holds(0, blockSize+1)
	require.False(t, a.enter(), "its body could not begin")
	require.True(t, a.hold(blockSize-1))
	require.False(t, a.exceeded())

	a.exceed(50) // an answer has to be given
	require.True(t, a.exceeded())
	holds(0, 2*blockSize+50)
	a.release(blockSize + 50)
	require.False(t, a.hold(blockSize+1))
	require.True(t, a.enter())
	holds(1, blockSize)
	a.release(blockSize)
	a.leave()
	holds(0, 0)
}

// However many come at once, no more than the limits are in, and nothing stays.
func TestAdmissionOfMany(t *testing.T) {
	const places, bytes, each = 3, 5 * blockSize / 2, blockSize
	a, holds := limited(t, places, bytes)
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
				if !a.enter() {
					continue
				}
				within(requests, func() {
					if a.hold(each) {
						within(bodies, func() {})
						a.release(each)
					}
				})
				a.leave()
			}
		})
	}
	all.Wait()
	holds(0, 0)
}
