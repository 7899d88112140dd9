// Package load simulates the clients of a run. Each owns its detectors and sends one batch at a time with an
// Idempotency-Key, and retries until it receives a 207, as `trafficctl send` does. So the order within a detector is
// defined, and in the end every batch is known to be accepted.
//
// Some items are invalid on purpose, some attempts are cancelled before the response, and some batches are sent again
// after their 207.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
)

// Config is the size of the load.
type Config struct {
	Clients   int
	Detectors int // per client
	Items     int // per batch, at most
	Pause     time.Duration
	Seed      uint64
}

// Run sends until ctx ends and then finishes: every batch begun must receive its 207 before hard ends. The error names one
// that did not.
func Run(ctx, hard context.Context, cfg Config, endpoint, apiKey string, l *ledger.Ledger) error {
	errs := make([]error, cfg.Clients)
	var all sync.WaitGroup
	for n := range cfg.Clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(cfg.Seed, uint64(n)))
			c := &client{maker: newMaker(rng, n, cfg.Detectors), post: newPoster(endpoint, apiKey), ledger: l}
			defer c.post.close()
			errs[n] = c.run(ctx, hard, cfg)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Detectors returns the codes of all detectors that Run uses.
func Detectors(cfg Config) (codes []string) {
	for c := range cfg.Clients {
		for d := range cfg.Detectors {
			codes = append(codes, detector(c, d))
		}
	}
	return codes
}

// client sends the batches of one maker, one at a time.
type client struct {
	*maker
	post   *poster
	ledger *ledger.Ledger
	sent   []done // the last batches, to be sent again
}

// done is a batch and its first 207.
type done struct {
	*batch
	result *result
}

// kept is the number of batches that a client may send again: enough to reach back beyond some restarts of the daemon.
const kept = 60

func (c *client) run(ctx, hard context.Context, cfg Config) error {
	for ctx.Err() == nil {
		if err := c.fresh(hard, cfg.Items); err != nil {
			return err
		}
		if c.rng.IntN(10) == 0 {
			if err := c.repeat(hard); err != nil {
				return err
			}
		}
		pause(ctx, time.Duration(c.rng.Int64N(int64(2*cfg.Pause)+1)))
	}
	return nil
}

// fresh sends a new batch.
func (c *client) fresh(ctx context.Context, items int) error {
	b := c.batch(items)
	r, err := c.settle(ctx, b)
	if err != nil {
		return err
	}
	if wrong := b.compare(r); wrong != "" {
		c.ledger.Wrong("batch %s (%s): %s", b.key, r.batchID, wrong)
	}
	c.ledger.Accept(b.accepted(r.batchID))
	c.ledger.Add(func(t *ledger.Tally) { t.Batches++; t.Rejected += r.Rejected })
	c.sent = append(c.sent, done{b, r})
	c.sent = c.sent[max(0, len(c.sent)-kept):]
	return nil
}

// repeat sends one of the last batches again and expects its first result.
func (c *client) repeat(ctx context.Context) error {
	old := c.sent[c.rng.IntN(len(c.sent))]
	r, err := c.settle(ctx, old.batch)
	if err != nil {
		return err
	}
	switch {
	case !r.replayed:
		c.ledger.Wrong("batch %s (%s) sent again after its 207: result %s is not a replay", old.key, old.result.batchID, r.batchID)
	case !r.same(old.result):
		c.ledger.Wrong("batch %s sent again after its 207: first %v, now %v", old.key, old.result, r)
	}
	c.ledger.Add(func(t *ledger.Tally) { t.Replays++ })
	return nil
}

// settle sends a batch until its 207. It records a response that is neither 207 nor retryable, and retries: the daemon
// accepted nothing.
func (c *client) settle(ctx context.Context, b *batch) (*result, error) {
	var last error
	for ctx.Err() == nil {
		deadline, gaveUp := c.patience()
		a, err := c.try(ctx, b, deadline)
		if err == nil {
			return a, nil
		}
		last = err
		var status *statusError
		if errors.As(err, &status) && !status.retryable() {
			c.ledger.Wrong("batch %s: %v", b.key, err)
		}
		c.ledger.Add(func(t *ledger.Tally) {
			t.Resent++
			if gaveUp && errors.Is(err, context.DeadlineExceeded) {
				t.GaveUp++
			}
		})
		pause(ctx, time.Duration(10+c.rng.IntN(100))*time.Millisecond)
	}
	return nil, fmt.Errorf("batch %s received no 207 although all faults are over: %w", b.key, last)
}

// patience returns the timeout of an attempt, which is sometimes very short on purpose.
func (c *client) patience() (wait time.Duration, gaveUp bool) {
	if c.rng.IntN(12) == 0 {
		return time.Duration(c.rng.IntN(20_000)) * time.Microsecond, true
	}
	return 3 * time.Second, false
}

func (c *client) try(ctx context.Context, b *batch, wait time.Duration) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.post.send(ctx, b)
}

// retryable reports whether a daemon in trouble may return this status.
func (e *statusError) retryable() bool {
	switch e.status {
	case http.StatusServiceUnavailable, http.StatusConflict, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
