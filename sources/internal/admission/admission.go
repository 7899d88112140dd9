// Package admission bounds the slots and the memory that requests hold, in total and for each
// client.
package admission

import (
	"fmt"
	"sync"
	"time"

	"trafficd/pipeline/metrics"
	"trafficd/schemas/contract"
)

// Resource describes something that all clients share, such as request slots or bytes of memory.
// Its texts become part of a 503.
type Resource struct {
	Noun   string // as in: this client has 3 requests in progress
	Advice string // for a client that has reached its quota
	Full   string // the text if nothing is left for any client

	Used, Limit metrics.Gauge
}

// Requests returns the resource of slots for requests.
func Requests(used, limit metrics.Gauge) Resource {
	return Resource{
		Noun: "requests in progress", Advice: "wait for responses, then try again",
		Full: "too many requests are in progress: try again in a moment", Used: used, Limit: limit,
	}
}

// Memory returns the resource of bytes for the bodies of requests and responses.
func Memory(used, limit metrics.Gauge) Resource {
	return Resource{
		Noun: "bytes of requests and responses", Advice: "read the pending responses, then try again",
		Full: "the memory for requests is full: try again in a moment", Used: used, Limit: limit,
	}
}

// Quotas bounds a resource in total and for each client. A client may hold as much as it leaves
// free: half of the limit if it is the only client, a third if another one holds as much. So the
// next client always gets something. Quotas are safe for concurrent use.
type Quotas struct {
	Resource
	limit int64

	mu       sync.Mutex
	total    int64
	byClient map[string]int64 // what each client holds; never 0
	charged  map[string]int64 // the part of it that was charged; never 0
}

// New returns quotas for a resource with the given limit.
func New(limit int64, r Resource) *Quotas {
	r.Limit.Set(float64(limit))
	return &Quotas{Resource: r, limit: limit, byClient: map[string]int64{}, charged: map[string]int64{}}
}

// Acquire adds n to what a client holds, or returns a 503. Release subtracts it again.
func (q *Quotas) Acquire(client string, n int64) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	apiErr := q.check(client, n)
	if apiErr == nil {
		q.add(client, n)
	}
	return apiErr
}

// Check returns what Acquire would return, without acquiring anything.
func (q *Quotas) Check(client string, n int64) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.check(client, n)
}

// check allows any n to a client that holds nothing, as long as anything is left, so that a large
// response is possible under any limit.
func (q *Quotas) check(client string, n int64) *contract.APIError {
	own, free := q.byClient[client], q.limit-q.total
	switch {
	case own == 0 && free > 0, own+n <= free-n:
		return nil
	case own == 0:
		return contract.Unavailable(q.Full, time.Second)
	}
	return contract.Unavailable(fmt.Sprintf("this client has %d %s; %d more would exceed its quota, which is as much as it leaves "+
		"to others: %s", own, q.Noun, n, q.Advice), time.Second)
}

// Release ends an Acquire.
func (q *Quotas) Release(client string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, -n)
}

// Charge adds n to what a client holds, even if that exceeds its quota or the limit. Discharge
// subtracts it again.
func (q *Quotas) Charge(client string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, n)
	if q.charged[client] += n; q.charged[client] == 0 {
		delete(q.charged, client)
	}
}

// Discharge ends a Charge.
func (q *Quotas) Discharge(client string, n int64) { q.Charge(client, -n) }

// CheckCharged returns a 503 if a client was charged more than it leaves to others, or if all
// clients together hold more than the limit. It must be called before work that charges the client.
func (q *Quotas) CheckCharged(client string) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	own, free := q.charged[client], q.limit-q.total
	switch {
	case own > 0 && own > free:
		return contract.Unavailable(fmt.Sprintf("this client has %d %s, more than its quota, which is as much as it leaves to others: %s",
			own, q.Noun, q.Advice), time.Second)
	case free < 0:
		return contract.Unavailable(q.Full, time.Second)
	}
	return nil
}

func (q *Quotas) add(client string, n int64) {
	q.total += n
	q.Used.Add(float64(n))
	if q.byClient[client] += n; q.byClient[client] == 0 {
		delete(q.byClient, client)
	}
}

// Total returns what all clients hold.
func (q *Quotas) Total() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}
