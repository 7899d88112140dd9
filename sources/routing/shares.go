package routing

import (
	"fmt"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/schemas/contract"
)

// shared is something that there is for all clients together, up to a limit.
type shared struct {
	noun       string // as in: this client has 3 …
	advice     string // to a client that has its share
	none       string // where nothing is left
	now, limit *metrics.Gauge
}

// shares says what each client has of it: as much as is left free, and no more. That is a
// half of all for one alone, and a third where another takes as much. So whatever some
// clients hold on to, there is something left for the next. Many goroutines may use it at
// once.
type shares struct {
	shared
	limit int64

	mu  sync.Mutex
	all int64
	of  map[string]int64 // the clients that have something
}

func newShares(limit int64, of shared) *shares {
	of.limit.Set(float64(limit))
	return &shares{shared: of, limit: limit, of: map[string]int64{}}
}

// take gives a client n more, or says why not.
func (s *shares) take(client string, n int64) *contract.APIError {
	s.mu.Lock()
	defer s.mu.Unlock()
	apiErr := s.judge(client, n)
	if apiErr == nil {
		s.add(client, n)
	}
	return apiErr
}

// check says what take would, and takes nothing.
func (s *shares) check(client string, n int64) *contract.APIError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge(client, n)
}

// judge lets a client that has nothing take what it asks for as long as anything is left,
// even if that is less: a large answer has to be possible under any limit.
func (s *shares) judge(client string, n int64) *contract.APIError {
	own, free := s.of[client], s.limit-s.all
	switch {
	case own == 0 && free > 0, own+n <= free-n:
		return nil
	case own == 0:
		return contract.Unavailable(s.none, time.Second)
	}
	return contract.Unavailable(fmt.Sprintf("this client has %d %s, and with %d more it would have more than it leaves to others: %s", own, s.noun, n, s.advice), time.Second)
}

// exceed counts what is there already, even if that is over the limit.
func (s *shares) exceed(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(client, n)
}

// give takes n back.
func (s *shares) give(client string, n int64) { s.exceed(client, -n) }

func (s *shares) add(client string, n int64) {
	s.all += n
	s.now.Add(float64(n))
	if s.of[client] += n; s.of[client] == 0 {
		delete(s.of, client)
	}
}
