package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
)

// client sends one batch after the other, as an integrator does.
type client struct {
	w       *world
	id      int
	rng     *rand.Rand
	seqs    [detectors]int64
	batches int
	sent    []sent // the latest accepted batches with a key
}

// sent is an accepted batch.
type sent struct {
	*request
	first *batch.Submission
}

// request is a batch with what the client knows about it.
type request struct {
	key   string
	items []ledger.Item // without the rejected one
	bad   int           // number of items that are rejected: the last ones
	body  []byte
}

// run sends until the given time.
func (c *client) run(until time.Time) {
	for time.Now().Before(until) && !c.w.over() {
		r := c.request()
		s := c.send(r)
		if s != nil {
			var list []ledger.Accepted
			for i, item := range r.items {
				list = append(list, ledger.Accepted{Item: item, Batch: id(s), Index: int64(i)})
			}
			c.w.ledger.Accept(list)
		}
		if s != nil && r.key != "" {
			c.sent = append(c.sent[max(0, len(c.sent)-50):], sent{r, s})
		}
		if len(c.sent) > 0 && c.rng.IntN(6) == 0 { // a client that forgot a response, perhaps an old one
			old := c.sent[len(c.sent)-1-min(c.rng.IntN(len(c.sent)), c.rng.IntN(len(c.sent)))]
			again := c.send(old.request)
			if again != nil && (!again.Result.Replay && !c.w.shared || again.Result.ID != old.first.Result.ID || again.Result.Accepted != old.first.Result.Accepted) {
				c.w.fault("client %d: a repeated batch %s got %s instead of %s", c.id, old.key, id(again), id(old.first))
			}
		}
		time.Sleep(time.Duration(1+c.rng.IntN(20_000)) * time.Millisecond)
	}
}

func id(s *batch.Submission) string { return uuid.UUID(s.Result.ID).String() }

// send sends a batch until it is accepted. A batch without a key is not sent again if its outcome
// is unknown: send then returns nil.
func (c *client) send(r *request) *batch.Submission {
	for !c.w.over() {
		s := &batch.Submission{ProductInstance: instance(c.id), Client: instance(c.id), IdempotencyKey: r.key}
		err := c.w.submit(c.id, s, r.body)
		var refused *contract.APIError
		switch {
		case err == nil:
			c.w.trace.add("client %d: batch %d %q accepted %d", c.id, c.batches, r.key, s.Result.Accepted)
			c.check(r, s)
			return s
		case errors.Is(err, batch.ErrNoResponse):
			c.w.trace.add("client %d: batch %d %q no response", c.id, c.batches, r.key)
			c.w.noResponse(r)
			if r.key == "" {
				return nil
			}
		case errors.As(err, &refused) && refused.RetryAfter > 0, errors.Is(err, errDown):
			c.w.trace.add("client %d: batch %d %q refused: %v", c.id, c.batches, r.key, err)
		default:
			c.w.fault("client %d: batch %d: %v", c.id, c.batches, err)
			return nil
		}
		time.Sleep(time.Duration(500+c.rng.IntN(5000)) * time.Millisecond)
	}
	return nil
}

func (w *world) noResponse(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost++
	if r.key == "" {
		for i, item := range r.items {
			w.maybe = append(w.maybe, ledger.Accepted{Item: item, Index: int64(i)})
		}
	}
}

// check compares a response with the batch.
func (c *client) check(r *request, s *batch.Submission) {
	if s.Result.Accepted != len(r.items) || s.Result.Rejected() != r.bad {
		c.w.fault("client %d: batch %d: accepted %d, rejected %d, want %d and %d", c.id, c.batches, s.Result.Accepted, s.Result.Rejected(), len(r.items), r.bad)
	}
}

var types = []string{"flow", "speed", "occupancy"}

// request returns a new batch. Its items are from up to three months, which are parts of their own
// in the archive, those of a client from so many that a block needs several INSERTs.
func (c *client) request() *request {
	c.batches++
	r := new(request)
	if c.rng.IntN(4) > 0 {
		r.key = fmt.Sprintf("client-%d-batch-%d", c.id, c.batches)
	}
	var texts []string
	months := 3
	if c.id == 0 {
		months = 40
	}
	for range 1 + c.rng.IntN(12) {
		d := c.rng.IntN(detectors)
		c.seqs[d]++
		from := c.w.start.AddDate(0, -c.rng.IntN(months), -1).Add(time.Duration(c.seqs[d])*time.Second + time.Duration(c.rng.IntN(1e9)))
		item := ledger.Item{
			Detector: detector(c.id, d), Seq: c.seqs[d], Type: types[c.rng.IntN(len(types))], From: from.UnixNano(),
			To: from.Add(time.Duration(c.rng.IntN(300)) * time.Second).UnixNano(), Value: c.rng.Float64() * 100, Quality: quality[c.rng.IntN(len(quality))],
		}
		m := contract.Measurement{
			DetectorCode: item.Detector, MeasureTypeCode: item.Type, TimestampFrom: from, TimestampTo: time.Unix(0, item.To), Value: number(item.Value),
		}
		if !math.IsNaN(item.Quality) {
			m.Quality = number(item.Quality)
		}
		r.items, texts = append(r.items, item), append(texts, string(m.AppendJSON(nil)))
	}
	if c.rng.IntN(10) == 0 {
		r.bad, texts = 1, append(texts, `{"detectorCode":"unknown"}`)
	}
	r.body = compress.Gzip(string(contract.Batch(texts...)))
	return r
}

func number(v float64) json.Number { return json.Number(fmt.Sprint(v)) }
