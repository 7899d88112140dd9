// Package load simulates the clients of a run. Each client has its own detectors. It sends one
// batch at a time with an Idempotency-Key and retries until it receives a 207, as `trafficctl send`
// does. The order of a detector's items is therefore defined, and every batch has been accepted
// when Run returns nil.
//
// Some items are invalid on purpose, some attempts are cancelled before the response, and some
// batches are sent again after their 207.
package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/pipeline/lib/gunzip/compress"
)

// Config describes the load.
type Config struct {
	Endpoints []string // base URLs of the replicas
	Balancer  string   // base URL of their load balancer; empty = none
	Clients   int
	Detectors int           // per client
	Items     int           // per batch, at most
	Pause     time.Duration // mean time between a client's batches
	Seed      uint64
}

// Clients is the set of simulated clients in a run.
type Clients []*client

// New returns clients that have sent nothing yet.
func New(cfg Config, l *ledger.Ledger) (all Clients) {
	for n := range cfg.Clients {
		rng := rand.New(rand.NewPCG(cfg.Seed, uint64(n)))
		all = append(all, &client{
			Config: cfg, generator: newGenerator(rng, n, cfg.Detectors), apiKey: APIKey(n), ledger: l,
			http: http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		})
	}
	return all
}

// Run sends batches until ctx is done, and then waits until the last batch of each client has
// received a 207. It returns an error if hard is done first.
func (all Clients) Run(ctx, hard context.Context) error {
	return launch.Each(all, func(_ int, c *client) error {
		defer c.http.CloseIdleConnections()
		return c.run(ctx, hard)
	})
}

// APIKey returns a client's API key, which is valid for the product instance of its detectors.
func APIKey(client int) string { return fmt.Sprintf("tk_chaos-%02d", client) }

// KeyOf returns the API key of the client of a detector.
func KeyOf(detector string) string {
	var client, number int
	_, _ = fmt.Sscanf(detector, detectorFormat, &client, &number) // it was made with this format
	return APIKey(client)
}

// Detectors returns the codes of all clients' detectors.
func Detectors(cfg Config) (codes []string) {
	for c := range cfg.Clients {
		for d := range cfg.Detectors {
			codes = append(codes, Detector(c, d))
		}
	}
	return codes
}

// client sends the batches of one generator, one at a time.
type client struct {
	Config
	*generator
	http   http.Client
	apiKey string
	ledger *ledger.Ledger
	sent   []*batch // the most recent batches, some of which are resent
}

// replayable is the number of recent batches that a client keeps for resending. The oldest of them
// were usually sent several daemon restarts ago.
const replayable = 60

func (c *client) run(ctx, hard context.Context) (err error) {
	defer must.Return(&err)
	for ctx.Err() == nil {
		b := c.batch(c.Items)
		r := must.Get(c.sendUntilAccepted(hard, b))
		if wrong := b.compare(r); wrong != "" {
			c.ledger.AddUnexpected("batch %s (%s): %s", b.key, r.batchID, wrong)
		}
		b.first = r
		c.ledger.Accept(b.accepted())
		c.ledger.Add(func(t *ledger.Tally) { t.Batches++; t.Rejected += r.Rejected })
		c.sent = append(c.sent, b)
		c.sent = c.sent[max(0, len(c.sent)-replayable):]
		if c.rng.IntN(10) == 0 {
			c.repeat(hard)
		}
		launch.Sleep(ctx, time.Duration(c.rng.Int64N(int64(2*c.Pause)+1)))
	}
	return nil
}

// repeat sends one of the latest batches again and records a result that differs from the first. It
// reports errors through package must.
func (c *client) repeat(ctx context.Context) {
	old := c.sent[c.rng.IntN(len(c.sent))]
	r := must.Get(c.sendUntilAccepted(ctx, old))
	switch {
	case !r.replayed && len(c.Endpoints) == 1: // another replica does not have the result
		c.ledger.AddUnexpected("batch %s (%s) sent again after its 207: result %s is not a replay", old.key, old.first.batchID, r.batchID)
	case !r.same(old.first):
		c.ledger.AddUnexpected("batch %s sent again after its 207: first %v, now %v", old.key, old.first, r)
	}
	c.ledger.Add(func(t *ledger.Tally) { t.Replays++ })
}

// retryable lists the statuses that are expected during a fault; 502 and 504 come from HAProxy.
var retryable = []int{
	http.StatusServiceUnavailable, http.StatusConflict, http.StatusRequestTimeout, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusGatewayTimeout,
}

// sendUntilAccepted sends a batch until it receives a 207. It returns an error if ctx is done
// first. It cancels some attempts very early.
func (c *client) sendUntilAccepted(ctx context.Context, b *batch) (*result, error) {
	var last error
	for ctx.Err() == nil {
		timeout, cancelEarly := 3*time.Second, c.rng.IntN(12) == 0
		if cancelEarly {
			timeout = time.Duration(c.rng.IntN(20_000)) * time.Microsecond
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		r, err := c.sendToSome(attempt, b)
		cancel()
		if err == nil {
			return r, nil
		}
		last = err
		c.ledger.Add(func(t *ledger.Tally) {
			t.Failed++
			if cancelEarly && errors.Is(err, context.DeadlineExceeded) {
				t.GaveUp++
			}
		})
		launch.Sleep(ctx, time.Duration(10+c.rng.IntN(100))*time.Millisecond)
	}
	return nil, fmt.Errorf("batch %s received no 207 before the run ended: %w", b.key, cmp.Or(last, ctx.Err()))
}

// statusError is a response other than 207.
type statusError struct {
	status int
	text   []byte
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

// sendToSome posts a batch to a random replica, to the load balancer, or to all replicas at the
// same time, and returns one of the results, or an error if there is none. It records differing
// results and statuses that are not retryable.
func (c *client) sendToSome(ctx context.Context, b *batch) (first *result, err error) {
	to := slices.Clone(c.Endpoints)
	switch roll := c.rng.IntN(4); {
	case roll == 0: // all
	case roll == 1 || c.Balancer == "":
		to = []string{to[c.rng.IntN(len(to))]}
	default:
		to = []string{c.Balancer}
	}
	results, errs := make([]*result, len(to)), make([]error, len(to))
	var all sync.WaitGroup
	for i, endpoint := range to {
		all.Go(func() { results[i], errs[i] = c.send(ctx, endpoint, b) })
	}
	all.Wait()
	responses := 0
	for i, r := range results {
		if r != nil {
			responses++
		}
		switch {
		case errs[i] != nil:
			err = errs[i]
			if status, ok := errors.AsType[*statusError](err); ok && !slices.Contains(retryable, status.status) {
				c.ledger.AddUnexpected("batch %s: %v", b.key, err)
			}
		case first == nil:
			first = r
		case !r.same(first):
			c.ledger.AddUnexpected("batch %s: one response is %v, another is %v", b.key, first, r)
		}
	}
	c.ledger.Add(func(t *ledger.Tally) { t.Requests += len(to); t.Responses += responses })
	if first != nil {
		err = nil
	}
	return first, err
}

// send posts a batch once. If it returns an error other than a *statusError, the batch may have
// been accepted.
func (c *client) send(ctx context.Context, endpoint string, b *batch) (*result, error) {
	r, err := launch.Post(ctx, &c.http, endpoint, c.apiKey, compress.Gzip(b.body), "Idempotency-Key", b.key)
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusMultiStatus {
		return nil, &statusError{r.Status, bytes.TrimSpace(r.Body)}
	}
	got := &result{batchID: r.Header.Get("Batch-Id"), replayed: r.Header.Get("Idempotent-Replay") == "true"}
	got.Result, err = r.Result()
	return got, err
}
