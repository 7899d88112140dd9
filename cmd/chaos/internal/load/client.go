package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"trafficd/cmd/chaos/internal/ledger"
)

// client sends the batches of one maker, one at a time.
type client struct {
	*maker
	post   *poster
	ledger *ledger.Ledger
	sent   []done // the last ones, to be sent again
}

// done is a batch and its first 207.
type done struct {
	*batch
	answer *answer
}

// kept is how many batches a client may send once more: enough to reach back
// over some restarts of the daemon.
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
	a, err := c.settle(ctx, b)
	if err != nil {
		return err
	}
	if wrong := b.compare(a); wrong != "" {
		c.ledger.Wrong("batch %s (%s): %s", b.key, a.batchID, wrong)
	}
	c.ledger.Accept(b.accepted(a.batchID))
	c.ledger.Add(func(t *ledger.Tally) { t.Batches++; t.Rejected += a.Rejected })
	c.sent = append(c.sent, done{b, a})
	c.sent = c.sent[max(0, len(c.sent)-kept):]
	return nil
}

// repeat sends one of the last batches again: its answer has to be the first
// one.
func (c *client) repeat(ctx context.Context) error {
	old := c.sent[c.rng.IntN(len(c.sent))]
	a, err := c.settle(ctx, old.batch)
	if err != nil {
		return err
	}
	switch {
	case !a.replayed:
		c.ledger.Wrong("batch %s (%s) sent again after its 207: the answer, batch %s, is no replay", old.key, old.answer.batchID, a.batchID)
	case !a.same(old.answer):
		c.ledger.Wrong("batch %s sent again after its 207: first %v, now %v", old.key, old.answer, a)
	}
	c.ledger.Add(func(t *ledger.Tally) { t.Replays++ })
	return nil
}

// settle sends a batch until its 207. An answer that is neither that nor "try
// again" is noted, and ends nothing: the daemon said that nothing was taken.
func (c *client) settle(ctx context.Context, b *batch) (*answer, error) {
	var last error
	for ctx.Err() == nil {
		deadline, gaveUp := c.patience()
		a, err := c.try(ctx, b, deadline)
		if err == nil {
			return a, nil
		}
		last = err
		var refused *refusedError
		if errors.As(err, &refused) && !refused.again() {
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
	return nil, fmt.Errorf("batch %s has no 207 yet, though all faults are over: %w", b.key, last)
}

// patience is how long an attempt is waited for; sometimes hardly at all.
func (c *client) patience() (wait time.Duration, gaveUp bool) {
	if c.rng.IntN(12) == 0 {
		return time.Duration(c.rng.IntN(20_000)) * time.Microsecond, true
	}
	return 3 * time.Second, false
}

func (c *client) try(ctx context.Context, b *batch, wait time.Duration) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.post.send(ctx, b)
}

// again tells whether the same batch may be sent once more: the answers that a
// daemon in trouble gives.
func (e *refusedError) again() bool {
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
