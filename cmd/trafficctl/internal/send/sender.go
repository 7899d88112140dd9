package send

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// grace is how long requests under way may still be answered once the sending
// is broken off: their items' fate is worth knowing.
const grace = 10 * time.Second

// notedRows is how many unreadable rows are told one by one.
const notedRows = 10

// Sender sends one input.
type Sender struct {
	cfg    Config
	client *client
	ledger *ledger
	note   func(text string)
}

// New makes a sender. Rejected items are written to rejected, one JSON object
// a line, unless it is nil. note is called, from any goroutine, with what a
// person who watches should know: pauses, rows passed over.
func New(cfg Config, rejected io.Writer, note func(text string)) (*Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sender{cfg: cfg, client: newClient(cfg), ledger: newLedger(rejected), note: note}, nil
}

// Tally says what has become of the items so far; it may be asked at any time.
func (s *Sender) Tally() Tally { return s.ledger.snapshot() }

// Send sends all items and returns once each batch is answered or given up.
// The first refusal that repeating cannot mend ends everything, and so does
// ctx: no new batch begins, and those under way have a little time left for
// their answer. When the input ends with an error, what was read is still sent.
func (s *Sender) Send(ctx context.Context, items iter.Seq2[measurement.Item, error]) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cut) })()
	defer s.client.http.CloseIdleConnections()

	lanes := newLanes(s.cfg)
	var workers sync.WaitGroup
	for i := range s.cfg.Concurrency {
		workers.Go(func() { s.work(ctx, requests, fail, lanes.queueOf(i), lanes.free) })
	}
	err := s.fill(ctx, lanes, items)
	lanes.close()
	workers.Wait()
	for _, b := range lanes.unsent() {
		s.ledger.lost(b, false)
	}
	return cmp.Or(context.Cause(ctx), err)
}

// fill deals the items out into batches, and the batches to the lanes.
func (s *Sender) fill(ctx context.Context, l *lanes, items iter.Seq2[measurement.Item, error]) error {
	row := int64(0)
	for item, err := range items {
		if err != nil {
			if row, err = s.badRow(row, err); err != nil {
				l.handAll(ctx)
				return s.unread(row, err)
			}
			continue
		}
		row = item.Place.Row
		if err := l.add(ctx, item); err != nil {
			return s.unread(row, err)
		}
	}
	l.handAll(ctx)
	return nil
}

func (s *Sender) unread(row int64, err error) error {
	s.ledger.unread(row)
	return err
}

// badRow decides whether reading goes on after an error, and gives the row
// that it concerns.
func (s *Sender) badRow(before int64, err error) (row int64, _ error) {
	var bad *measurement.RowError
	if !errors.As(err, &bad) {
		return before + 1, err
	}
	if !s.cfg.SkipBadRows {
		return bad.Place.Row, fmt.Errorf("cannot read a row: %w (--on-bad-row skip passes over such rows)", err)
	}
	switch n := s.ledger.badRow(); {
	case n < notedRows:
		s.note("passed over " + err.Error())
	case n == notedRows:
		s.note("passed over " + err.Error() + "; further ones are only counted")
	}
	return bad.Place.Row, nil
}

// work sends the batches of one queue, one after the other, until the queue is
// closed. Once ctx is done it only empties the queue.
func (s *Sender) work(ctx, requests context.Context, fail context.CancelCauseFunc, queue <-chan *batch, free chan<- *batch) {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for unknown levels only
	for b := range queue {
		if ctx.Err() != nil {
			s.ledger.lost(b, false)
		} else if err := s.deliver(ctx, requests, z, b); err != nil {
			fail(err)
		}
		free <- b
	}
}

// deliver brings one batch to its answer, or gives it up.
func (s *Sender) deliver(ctx, requests context.Context, z *gzip.Writer, b *batch) error {
	if err := b.pack(z); err != nil {
		return fmt.Errorf("cannot compress a batch: %w", err)
	}
	a, doubt, err := s.attempts(ctx, requests, b)
	if err != nil {
		s.ledger.lost(b, doubt)
		return fmt.Errorf("cannot send the %d items from %s on: %w", b.len(), b.places[0], err)
	}
	return s.ledger.acknowledged(b, a)
}

// attempts posts the batch until it is answered for good. doubt: an attempt
// had no answer, so that the batch may have been taken all the same.
func (s *Sender) attempts(ctx, requests context.Context, b *batch) (a *answer, doubt bool, err error) {
	end := time.Now().Add(s.cfg.RetryFor)
	for n := 1; ; n++ {
		a, err = s.client.post(requests, b)
		if err == nil {
			return a, false, nil
		}
		doubt = doubt || inDoubt(err)
		if !mayHelp(err) {
			return nil, doubt, err
		}
		wait := pause(n, rand.Float64(), err)
		if time.Now().Add(wait).After(end) {
			return nil, doubt, fmt.Errorf("given up after %d attempts within --retry-for %s: %w", n, s.cfg.RetryFor, err)
		}
		s.note(fmt.Sprintf("%v; trying again in %s", err, wait.Round(100*time.Millisecond)))
		if !sleep(ctx, wait) {
			return nil, doubt, err
		}
		s.ledger.retried()
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
