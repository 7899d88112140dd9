package pipeline

import "sync"

// queue holds the jobs that wait for a worker. Clients take turns: between two jobs of one client,
// every other client may start one. A client may use at most half of the workers and half of the
// queue.
type queue struct {
	capacity, maxRunning int // maxRunning is per client

	mu      sync.Mutex
	idle    []worker // waiting in pop; the last one is woken first: its memory is most likely still in the CPU's caches
	clients map[string]*client
	order   []*client // clients with waiting jobs; the first has the next turn
	waiting int       // number of waiting jobs of all clients
	closed  bool
}

// worker wakes a goroutine that waits in pop. Its capacity is one.
type worker chan struct{}

// client holds the jobs of one client. It is never deleted: there is at most one per API key.
type client struct {
	waiting []*job
	running int // number of running jobs
}

func newQueue(capacity, workers int) *queue {
	return &queue{capacity: capacity, maxRunning: max(1, workers/2), clients: map[string]*client{}}
}

// push adds a job. It returns false if there is no room for another job of its client. The queue
// must not be closed.
func (q *queue) push(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.clients[j.s.Client]
	if c == nil {
		c = new(client)
		q.clients[j.s.Client] = c
	}
	own, free := len(c.waiting), q.capacity-q.waiting
	if free == 0 || own > 0 && own >= free {
		return false
	}
	if own == 0 {
		q.order = append(q.order, c)
	}
	c.waiting = append(c.waiting, j)
	q.waiting++
	q.wake()
	return true
}

// pop waits for a job that may start, and returns it with its client, or nil once the queue is
// closed and empty. The caller must call done after the job.
func (q *queue) pop(w worker) (*job, *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for i, c := range q.order {
			if c.running >= q.maxRunning {
				continue
			}
			j := c.waiting[0]
			c.waiting = append(c.waiting[:0], c.waiting[1:]...)
			c.running++
			q.waiting--
			q.order = append(q.order[:i], q.order[i+1:]...)
			if len(c.waiting) > 0 {
				q.order = append(q.order, c)
			}
			return j, c
		}
		if q.closed && q.waiting == 0 {
			return nil, nil
		}
		q.idle = append(q.idle, w)
		q.mu.Unlock()
		<-w
		q.mu.Lock()
	}
}

func (q *queue) done(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.running--
	if q.closed {
		q.wakeAll() // so that workers exit if the queue is empty
	} else if q.waiting > 0 {
		q.wake()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wakeAll()
}

func (q *queue) wake() {
	if last := len(q.idle) - 1; last >= 0 {
		q.idle[last] <- struct{}{}
		q.idle = q.idle[:last]
	}
}

func (q *queue) wakeAll() {
	for len(q.idle) > 0 {
		q.wake()
	}
}

func (q *queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
