// Package admission bounds what the requests under way take together, and what each client may
// take of it.
package admission

import (
	"fmt"
	"sync"
	"time"

	"trafficd/pipeline/metrics"
	"trafficd/schemas/contract"
)

// Resource describes what all clients share. Its texts become part of a 503.
type Resource struct {
	Noun   string // as in: this client has 3 …
	Advice string // for a client whose quota is used up
	Full   string // if nothing is left

	Used, Limit metrics.Gauge
}

// Quotas bound a resource: in total, and for each client to as much as it leaves for others. That
// is half of the total for a single client and a third if another one takes as much, so whatever
// some clients hold, something is left for the next. Many goroutines may use it at once.
type Quotas struct {
	Resource
	limit int64

	mu       sync.Mutex
	total    int64
	byClient map[string]int64 // clients that hold something
}

// New returns quotas of a limited resource.
func New(limit int64, r Resource) *Quotas {
	r.Limit.Set(float64(limit))
	return &Quotas{Resource: r, limit: limit, byClient: map[string]int64{}}
}

// Take gives a client n more, or returns a 503.
func (q *Quotas) Take(client string, n int64) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	apiErr := q.check(client, n)
	if apiErr == nil {
		q.add(client, n)
	}
	return apiErr
}

// Check returns what Take would, and takes nothing.
func (q *Quotas) Check(client string, n int64) *contract.APIError {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.check(client, n)
}

// check lets a client that holds nothing take n as long as anything is left, even if that is less:
// a large answer must be possible under any limit.
func (q *Quotas) check(client string, n int64) *contract.APIError {
	own, free := q.byClient[client], q.limit-q.total
	switch {
	case own == 0 && free > 0, own+n <= free-n:
		return nil
	case own == 0:
		return contract.Unavailable(q.Full, time.Second)
	}
	return contract.Unavailable(fmt.Sprintf("this client has %d %s; %d more would exceed its quota, which is as much as it leaves to "+
		"others: %s",
		own, q.Noun, n, q.Advice), time.Second)
}

// Exceed counts what is there already, even if that is over the limit.
func (q *Quotas) Exceed(client string, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, n)
}

// Release returns n of what the client holds.
func (q *Quotas) Release(client string, n int64) { q.Exceed(client, -n) }

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

// Exceeded reports whether the clients hold more than the limit.
func (q *Quotas) Exceeded() bool { return q.Total() > q.limit }
