package pipeline

import "sync"

// queue holds the bodies that wait for a worker. Clients take turns, so a body waits for those of
// its own client and for one of each other client, however many others have sent. A client may
// occupy half of the workers, and no more places than it leaves for others.
type queue struct {
	places, perClient int

	mu      sync.Mutex
	idle    []worker // the most recently idle one is last and wakes first: its memory is in the CPU's caches
	clients map[string]*turn
	order   []*turn // with waiting jobs; the first may start next
	waiting int
	closed  bool
}

// worker wakes a goroutine that waits in pop. It has a buffer of one.
type worker chan struct{}

// turn is the state of a client. It is never deleted: there is at most one per API key.
type turn struct {
	waiting []*job
	running int
}

func newQueue(places, workers int) *queue {
	return &queue{places: places, perClient: max(1, workers/2), clients: map[string]*turn{}}
}

// push adds a job, or returns false if the client has no room left. The queue must not be closed.
func (q *queue) push(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.clients[j.s.Client]
	if t == nil {
		t = new(turn)
		q.clients[j.s.Client] = t
	}
	own, free := len(t.waiting), q.places-q.waiting
	if free == 0 || own > 0 && own >= free {
		return false
	}
	if own == 0 {
		q.order = append(q.order, t)
	}
	t.waiting = append(t.waiting, j)
	q.waiting++
	q.wake()
	return true
}

// pop waits for the next job that may start. It returns nil when the queue is closed and empty. The
// caller calls done after the job.
func (q *queue) pop(w worker) (*job, *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for i, t := range q.order {
			if t.running >= q.perClient {
				continue
			}
			j := t.waiting[0]
			t.waiting = append(t.waiting[:0], t.waiting[1:]...)
			t.running++
			q.waiting--
			q.order = append(q.order[:i], q.order[i+1:]...)
			if len(t.waiting) > 0 {
				q.order = append(q.order, t)
			}
			return j, t
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

func (q *queue) done(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.running--
	if q.closed {
		q.wakeAll() // idle workers may have to exit
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
