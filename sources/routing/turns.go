package routing

import "sync"

// turns limits the number of requests processed concurrently. When requests must wait, clients take
// turns, so that a client with many requests does not delay the others.
type turns struct {
	mu      sync.Mutex
	free    int      // number of requests that may start immediately
	clients []string // clients with waiting requests; the first one has the next turn
	waiting map[string][]chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n, waiting: map[string][]chan struct{}{}} }

// take waits until it is the client's turn.
func (t *turns) take(client string) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	if len(t.waiting[client]) == 0 {
		t.clients = append(t.clients, client)
	}
	t.waiting[client] = append(t.waiting[client], turn)
	t.mu.Unlock()
	<-turn
}

// pass ends a turn and starts the next one if a request is waiting.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		t.free++
		return
	}
	client := t.clients[0]
	t.clients = t.clients[1:]
	requests := t.waiting[client]
	close(requests[0])
	if t.waiting[client] = requests[1:]; len(requests) == 1 {
		delete(t.waiting, client)
	} else {
		t.clients = append(t.clients, client)
	}
}
