// Package admission limits the slots and the memory that requests hold, in total and for each
// client.
package admission

import (
	"fmt"
	"sync"
	"time"

	"trafficd/pipeline/lib/fair"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
)

// Resource describes something that all clients share, such as request slots or bytes of memory.
// Its texts become part of a 503.
type Resource struct {
	Noun   string // as in: this client has 3 requests in progress
	Advice string // for a client that has reached its quota
	Full   string // the whole text if nothing is left for any client

	Used, Limit metrics.Gauge
}

// Requests returns a Resource that describes slots for requests. prefix begins the names of its
// metrics; noun is the requests in their help.
func Requests(prefix, noun string) Resource {
	return Resource{
		Noun: "requests in progress", Advice: "wait for responses, then try again",
		Full:  "too many requests are in progress: try again in a moment",
		Used:  metrics.NewGauge(prefix+"_admission_requests", "Admitted "+noun+" in progress."),
		Limit: metrics.NewGauge(prefix+"_admission_requests_limit", "Maximum number of "+noun+" in progress."),
	}
}

// Memory returns a Resource that describes the memory used by request bodies and responses. prefix
// and noun are as in Requests.
func Memory(prefix, noun string) Resource {
	return Resource{
		Noun: "bytes of requests and responses", Advice: "read the pending responses, then try again",
		Full:  "the memory for requests is full: try again in a moment",
		Used:  metrics.NewGauge(prefix+"_admission_bytes", "Memory used by "+noun+" and their responses, in bytes."),
		Limit: metrics.NewGauge(prefix+"_admission_bytes_limit", "Maximum memory used by "+noun+" and their responses, in bytes."),
	}
}

// Quotas limits a resource in total and, by package fair, for each client. Quotas is safe for
// concurrent use.
type Quotas struct {
	Resource

	mu      sync.Mutex
	shares  *fair.Shares
	charged map[string]int64 // the part of each client's share that was charged; has no zero values
}

// New returns quotas for a resource with the given limit.
func New(limit int64, r Resource) *Quotas {
	r.Limit.Set(float64(limit))
	return &Quotas{Resource: r, shares: fair.New(limit), charged: map[string]int64{}}
}

// Acquire adds n to what a client holds, or returns a 503.
func (q *Quotas) Acquire(client string, n int64) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.shares.Check(client, n) {
	case fair.Full:
		return contract.Unavailable(q.Full, time.Second)
	case fair.Exceeded:
		return contract.Unavailable(fmt.Sprintf("this client has %d %s; %d more would exceed its quota, half of what other clients "+
			"leave: %s", q.shares.Held(client), q.Noun, n, q.Advice), time.Second)
	}
	q.add(client, n)
	return nil
}

// Release subtracts n from what a client acquired.
func (q *Quotas) Release(client string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, -n)
}

// Charge adds n to what a client holds, even if that exceeds its quota or the limit.
func (q *Quotas) Charge(client string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, n)
	if q.charged[client] += n; q.charged[client] == 0 {
		delete(q.charged, client)
	}
}

// Discharge subtracts n from what a client was charged.
func (q *Quotas) Discharge(client string, n int64) { q.Charge(client, -n) }

// CheckCharged returns a 503 if a client was charged more than its quota, or if all clients
// together hold more than the limit. It must be called before work that charges the client.
func (q *Quotas) CheckCharged(client string) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.charged[client]
	switch fair.Check(own, 0, q.shares.Free()) {
	case fair.Full:
		return contract.Unavailable(q.Full, time.Second)
	case fair.Exceeded:
		return contract.Unavailable(fmt.Sprintf("this client has %d %s, more than its quota, half of what other clients leave: %s",
			own, q.Noun, q.Advice), time.Second)
	}
	return nil
}

func (q *Quotas) add(client string, n int64) {
	q.Used.Add(float64(n))
	q.shares.Add(client, n)
}

// Total returns the amount that all clients together hold.
func (q *Quotas) Total() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shares.Total()
}
