package upload

import (
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// Admission bounds how many requests of an endpoint are under way and how much
// memory their bodies and answers hold. Many goroutines may use it at once.
type Admission struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
	gauges                Gauges
}

// Gauges show an Admission.
type Gauges struct{ Requests, RequestsLimit, Bytes, BytesLimit *metrics.Gauge }

// NewAdmission makes an empty one.
func NewAdmission(maxRequests, maxBytes int64, g Gauges) *Admission {
	g.RequestsLimit.Set(float64(maxRequests))
	g.BytesLimit.Set(float64(maxBytes))
	return &Admission{maxRequests: maxRequests, maxBytes: maxBytes, gauges: g}
}

// Enter takes a request in, unless all places are taken, or the memory is: then
// the first bytes of its body could not be received.
func (a *Admission) Enter(first int64) bool {
	if a.bytes.Load()+first > a.maxBytes || !add(&a.requests, 1, a.maxRequests) {
		return false
	}
	a.gauges.Requests.Inc()
	return true
}

// Leave gives a request's place back.
func (a *Admission) Leave() {
	a.requests.Add(-1)
	a.gauges.Requests.Dec()
}

// Hold counts n bytes of a body, unless they are too many.
func (a *Admission) Hold(n int64) bool {
	if !add(&a.bytes, n, a.maxBytes) {
		return false
	}
	a.gauges.Bytes.Add(float64(n))
	return true
}

// Exceed counts n bytes of an answer. It has to be given, so this may go over the
// limit; until it is below it again nothing new is begun.
func (a *Admission) Exceed(n int64) {
	a.bytes.Add(n)
	a.gauges.Bytes.Add(float64(n))
}

// Exceeded tells whether answers wait for their clients that are more than the limit.
func (a *Admission) Exceeded() bool { return a.bytes.Load() > a.maxBytes }

// Release gives n bytes back.
func (a *Admission) Release(n int64) {
	a.bytes.Add(-n)
	a.gauges.Bytes.Add(-float64(n))
}

// Held is what is counted now.
func (a *Admission) Held() (requests, bytes int64) {
	return a.requests.Load(), a.bytes.Load()
}

func add(count *atomic.Int64, n, limit int64) bool {
	if count.Add(n) <= limit {
		return true
	}
	count.Add(-n)
	return false
}
