package ingest

import (
	"sync/atomic"
	"time"

	"trafficd/schemas/contract"
)

// admission bounds how many requests are under way and how much memory their bodies and
// answers hold. Many goroutines may use it at once.
type admission struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
}

func newAdmission(cfg Config) *admission {
	admissionRequestsLimit.Set(float64(cfg.AdmissionRequests))
	admissionBytesLimit.Set(float64(cfg.AdmissionBytes))
	return &admission{maxRequests: cfg.AdmissionRequests, maxBytes: cfg.AdmissionBytes}
}

// memoryFull refuses a body that there is no memory for.
func memoryFull() *contract.APIError {
	return contract.Unavailable("the memory for requests is full: try again in a moment", time.Second)
}

// enter takes a request in, unless all places are taken, or the memory is: then
// its body could not be received.
func (a *admission) enter() bool {
	if a.bytes.Load()+blockSize > a.maxBytes || !addWithin(&a.requests, 1, a.maxRequests) {
		return false
	}
	admissionRequests.Inc()
	return true
}

// leave gives a request's place back.
func (a *admission) leave() {
	a.requests.Add(-1)
	admissionRequests.Dec()
}

// hold counts n bytes of a body, unless they are too many.
func (a *admission) hold(n int64) bool {
	if !addWithin(&a.bytes, n, a.maxBytes) {
		return false
	}
	admissionBytes.Add(float64(n))
	return true
}

// exceed counts n bytes of an answer. It has to be given, so this may go over the
// limit; until it is below it again nothing new is begun.
func (a *admission) exceed(n int64) {
	a.bytes.Add(n)
	admissionBytes.Add(float64(n))
}

// exceeded tells whether answers wait for their clients that are more than the limit.
func (a *admission) exceeded() bool { return a.bytes.Load() > a.maxBytes }

// release gives n bytes back.
func (a *admission) release(n int64) {
	a.bytes.Add(-n)
	admissionBytes.Add(-float64(n))
}

// held is what is counted now.
func (a *admission) held() (requests, bytes int64) {
	return a.requests.Load(), a.bytes.Load()
}

// addWithin adds n, unless that is over the limit.
func addWithin(count *atomic.Int64, n, limit int64) bool {
	if count.Add(n) <= limit {
		return true
	}
	count.Add(-n)
	return false
}
