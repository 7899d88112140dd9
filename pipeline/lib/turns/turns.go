// Package turns limits the work that clients do concurrently, and makes the clients take turns.
package turns

import (
	"sync"

	"trafficd/pipeline/lib/fair"
)

// Limiter shares a fixed number of slots between clients. When all are taken, callers wait in a
// queue in which clients take turns: between two callers of one client, every other client may
// start one. The queue is divided by package fair. Limiter is safe for concurrent use.
type Limiter struct {
	perClient int

	mu      sync.Mutex
	free    int                        // number of free slots
	running map[string]int             // slots taken by each client; has no zero values
	waiting map[string][]chan struct{} // callers of each client in order, woken by closing; has no empty values
	order   []string                   // clients with waiting callers; the first has the next turn
	queue   *fair.Shares               // waiting callers
}

// New returns a Limiter. One client may take at most perClient slots at a time. capacity is the
// length of the queue.
func New(slots, perClient, capacity int) *Limiter {
	return &Limiter{
		perClient: perClient, free: slots, queue: fair.New(int64(capacity)),
		running: map[string]int{}, waiting: map[string][]chan struct{}{},
	}
}

// Take waits until it is the client's turn, and takes a slot, which Release must give back. ok is
// false, immediately, if the queue has no room for another caller of the client.
func (l *Limiter) Take(client string) (ok, waited bool) {
	l.mu.Lock()
	if l.free > 0 && l.running[client] < l.perClient { // then none of its callers is waiting
		l.free--
		l.running[client]++
		l.mu.Unlock()
		return true, false
	}
	if l.queue.Check(client, 1) != fair.Granted {
		l.mu.Unlock()
		return false, false
	}
	if len(l.waiting[client]) == 0 {
		l.order = append(l.order, client)
	}
	turn := make(chan struct{})
	l.waiting[client] = append(l.waiting[client], turn)
	l.queue.Add(client, 1)
	l.mu.Unlock()
	<-turn
	return true, true
}

// Release gives back a slot of the client. The next waiting caller that may take a slot gets it.
func (l *Limiter) Release(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	if l.running[client]--; l.running[client] == 0 {
		delete(l.running, client)
	}
	for i, next := range l.order {
		if l.running[next] >= l.perClient {
			continue
		}
		l.free--
		l.running[next]++
		callers := l.waiting[next]
		close(callers[0])
		l.queue.Add(next, -1)
		l.order = append(l.order[:i], l.order[i+1:]...)
		if len(callers) > 1 {
			l.waiting[next] = callers[1:]
			l.order = append(l.order, next)
		} else {
			delete(l.waiting, next)
		}
		return
	}
}

// Depth returns the number of waiting callers.
func (l *Limiter) Depth() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.queue.Total())
}
