// Package send delivers measurements to the daemon over HTTP (contract 1).
//
//	items ─▶ fill ─▶ lane 0 … n ─▶ gzip, POST, retry ─▶ ledger
//	         batches   in order       one Idempotency-Key per batch
//
// Each detector belongs to one lane (by a hash of its code), and a lane has at most one batch in
// flight, so a detector's measurements arrive in input order. A lane's batch is closed when it is
// full, not when the input moves to another detector, and lanes queue a few batches, so input that
// is sorted by detector keeps several lanes busy.
//
// A fixed set of batches bounds memory use: fill takes a free batch, and a worker returns it after
// the response.
package send

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/schemas/contract"
)

// BatchLimit is the maximum number of items that the daemon examines in a batch (contract 1.2).
const BatchLimit = 14_000

// Config holds the settings for sending. Each field corresponds to the flag with the same name.
type Config struct {
	Batch       int           // measurements per batch
	Concurrency int           // batches in flight
	RetryFor    time.Duration // how long to retry a batch
	SkipBadRows bool          // skip rows that cannot be parsed
	DryRun      bool          // have the daemon validate the batches, not store them
	AllErrors   bool          // in a dry run, report every error of an item
}

// DefaultConfig returns the default settings.
func DefaultConfig() Config {
	return Config{Batch: BatchLimit, Concurrency: 4, RetryFor: 10 * time.Minute}
}

func (c Config) validate() error {
	switch {
	case c.Batch < 1 || c.Batch > 140_000:
		return fmt.Errorf("--batch %d must be 1 to 140,000 (the daemon examines the first 14,000 items and rejects larger batches)", c.Batch)
	case c.Concurrency < 1 || c.Concurrency > 64:
		return fmt.Errorf("--concurrency %d must be 1 to 64 (each batch in flight uses several MB)", c.Concurrency)
	case c.RetryFor < 0 || c.RetryFor > time.Hour:
		return fmt.Errorf("--retry-for %s must be 0 to 1h (the daemon deduplicates retries for an hour)", c.RetryFor)
	}
	return nil
}

const (
	// grace is how long requests in flight may continue after an interrupt, so that the outcome of
	// their items is known.
	grace = 10 * time.Second
	// reportedRows is the number of unreadable rows that are reported individually.
	reportedRows = 10
	// connectFor is how long the first connection is retried. Once the daemon has responded,
	// RetryFor applies, because the daemon may be restarting.
	connectFor = 10 * time.Second
	// noteInterval is the minimum time between two notes about the same cause of retries.
	noteInterval = 5 * time.Second
)

// Tally counts the outcomes so far.
type Tally struct {
	Accepted int64 `json:"accepted"`
	Rejected int64 `json:"rejected"`
	Batches  int64 `json:"batches"` // number of batches with a 207 response, or with a 200 in a dry run
	Retries  int64 `json:"retries"`
	Replayed int64 `json:"replayed"` // batches whose first response was lost
	BadRows  int64 `json:"bad_rows"` // unreadable rows that were skipped
	Unknown  int64 `json:"unknown"`  // items that were sent but whose outcome is unknown
	// Duplicates is the number of accepted items that replace an earlier one of the same batch
	// (contract 1.3).
	Duplicates int64            `json:"duplicates"`
	Codes      map[string]int64 `json:"codes,omitempty"`
	// Examples holds, for each code, the rejection that comes first in the input.
	Examples map[string]Example `json:"-"`
	// Resume is the first unacknowledged row if sending stopped early; 0 if all rows are acknowledged.
	Resume int64 `json:"resume_row,omitempty"`
}

// Detectors counts the rejected items of each detector, and names a similar code that the daemon
// knows.
type Detectors map[string]struct {
	Items   int64
	Similar string
}

// maxDetectors bounds the memory for the detectors of rejected items, for each code.
const maxDetectors = 10_000

// add counts a rejected item, unless it has no detector code.
func (d Detectors) add(item []byte, e contract.ItemError) {
	var m struct{ DetectorCode string }
	if json.Unmarshal(item, &m) != nil || m.DetectorCode == "" {
		return
	}
	count, known := d[m.DetectorCode]
	if !known && len(d) == maxDetectors {
		return
	}
	count.Items++
	count.Similar = cmp.Or(count.Similar, contract.Hint(e.Description))
	d[m.DetectorCode] = count
}

// Example is one rejected item.
type Example struct {
	Position measurement.Position
	Error    contract.ItemError
}

// Sender sends one input.
type Sender struct {
	cfg       Config
	client    *client.Client
	note      func(text string)
	connected atomic.Bool // the daemon has responded at least once

	mu       sync.Mutex // guards the fields below
	tally    Tally
	byCode   map[string]Detectors // error code → detectors of the rejected items
	rejected io.Writer
	noted    map[string]time.Time // when the causes of retries were last noted
}

// New returns a sender. Send writes rejected items to rejected as NDJSON, calls note from any
// goroutine with messages for the user about retries and skipped rows, and closes the client.
func New(cfg Config, c *client.Client, rejected io.Writer, note func(text string)) (*Sender, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	tally := Tally{Codes: map[string]int64{}, Examples: map[string]Example{}}
	return &Sender{
		cfg: cfg, client: c, note: note, tally: tally, rejected: rejected, noted: map[string]time.Time{}, byCode: map[string]Detectors{},
	}, nil
}

// Detectors returns the detectors of the rejected items for each error code. It must be called
// after Send.
func (s *Sender) Detectors() map[string]Detectors { return s.byCode }

// Tally returns the counts so far. It is safe to call at any time.
func (s *Sender) Tally() Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	t.Codes, t.Examples = maps.Clone(t.Codes), maps.Clone(t.Examples)
	return t
}

// Send sends all items and returns once each batch has been acknowledged or given up. It stops at
// the first error that a retry cannot fix, and when ctx is done. It then starts no further batches,
// and batches in flight get a grace period. If the input fails, the items before the failure are
// still sent.
func (s *Sender) Send(ctx context.Context, items iter.Seq2[measurement.Item, error]) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cut) })()
	defer s.client.Close()

	lanes := newLanes(s.cfg)
	var workers sync.WaitGroup
	for _, queue := range lanes.queues {
		workers.Go(func() {
			z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for invalid levels
			for b := range queue {
				if ctx.Err() != nil {
					s.giveUp(b.positions[0].Row, 0)
				} else if err := s.deliver(ctx, requests, z, b); err != nil {
					fail(err)
				}
				lanes.free <- b
			}
		})
	}
	err := s.fill(ctx, lanes, items)
	for _, q := range lanes.queues {
		close(q)
	}
	workers.Wait()
	for _, b := range lanes.open {
		if b != nil {
			s.giveUp(b.positions[0].Row, 0)
		}
	}
	return cmp.Or(context.Cause(ctx), err)
}

// giveUp records an unacknowledged row and adds unknown to the items whose outcome is unknown.
func (s *Sender) giveUp(row int64, unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.Unknown += int64(unknown)
	if s.tally.Resume == 0 || row < s.tally.Resume {
		s.tally.Resume = row
	}
}

func (s *Sender) increment(counter *int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter++
	return *counter
}

func (s *Sender) fill(ctx context.Context, l *lanes, items iter.Seq2[measurement.Item, error]) error {
	row := int64(0)
	for item, err := range items {
		var bad *measurement.RowError
		switch {
		case err == nil:
			row = item.Position.Row
			if err := l.add(ctx, item); err != nil {
				s.giveUp(row, 0)
				return err
			}
			continue
		case !errors.As(err, &bad):
			row++
		case !s.cfg.SkipBadRows:
			row, err = bad.Position.Row, fmt.Errorf("cannot read a row: %w (--on-bad-row skip skips such rows)", err)
		default:
			row = bad.Position.Row
			if n := s.increment(&s.tally.BadRows); n < reportedRows {
				s.note("skipped " + err.Error())
			} else if n == reportedRows {
				s.note("skipped " + err.Error() + "; further skipped rows are only counted")
			}
			continue
		}
		l.queueAll(ctx)
		s.giveUp(row, 0)
		return err
	}
	l.queueAll(ctx)
	return nil
}

// deliver posts a batch, with retries, until it is acknowledged or given up.
func (s *Sender) deliver(ctx, requests context.Context, z *gzip.Writer, b *batch) error {
	if err := b.pack(z); err != nil {
		return fmt.Errorf("cannot compress a batch: %w", err)
	}
	start, inDoubtItems := time.Now(), 0 // items that the daemon may have accepted, because an attempt had no response
	for attempt := 1; ; attempt++ {
		a, err := s.post(requests, b)
		if err == nil {
			s.connected.Store(true)
			if err = s.finish(b, a); err != nil {
				s.giveUp(b.positions[0].Row, 0) // so that resuming sends it again: its rejected items were not saved
			}
			return err
		}
		if inDoubt(err) && !s.cfg.DryRun {
			inDoubtItems = b.len()
		}
		limit, flag := s.cfg.RetryFor, "--retry-for"
		if !s.connected.Load() && client.NotConnected(err) && limit > connectFor {
			limit, flag = connectFor, "limit for the first connection"
		}
		wait := pause(attempt, rand.Float64(), err)
		switch {
		case !retryable(err):
		case time.Since(start)+wait > limit:
			attempts := "1 attempt"
			if attempt > 1 {
				attempts = fmt.Sprint(attempt, " attempts")
			}
			err = fmt.Errorf("gave up after %s (%s: %s): %w", attempts, flag, limit, err)
		default:
			s.noteRetry(err, wait)
			if client.Sleep(ctx, wait) == nil {
				s.increment(&s.tally.Retries)
				continue
			}
		}
		s.giveUp(b.positions[0].Row, inDoubtItems)
		return fmt.Errorf("cannot send the measurements starting at %s: %w", b.positions[0], err)
	}
}

// noteRetry reports that a batch will be retried, unless another attempt has reported the same
// cause within noteInterval: all batches in flight usually fail together.
func (s *Sender) noteRetry(err error, wait time.Duration) {
	cause := err.Error()
	if e, ok := errors.AsType[*client.Error](err); ok {
		cause = e.ErrorCode + e.Description // without the trace ID
	}
	s.mu.Lock()
	isNew := time.Since(s.noted[cause]) >= noteInterval
	if isNew {
		s.noted[cause] = time.Now()
	}
	s.mu.Unlock()
	if isNew {
		s.note(fmt.Sprintf("%v; retrying in %s", err, wait.Round(100*time.Millisecond)))
	}
}

// finish counts the results of a batch and writes the rejected items.
func (s *Sender) finish(b *batch, resp *client.Posted) error {
	duplicates, _ := strconv.ParseInt(resp.Header.Get("Duplicate-Items"), 10, 64) // absent: none
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.tally
	t.Batches++
	t.Accepted += int64(resp.Accepted)
	t.Rejected += int64(resp.Rejected)
	t.Duplicates += duplicates
	if resp.Header.Get("Idempotent-Replay") == "true" {
		t.Replayed++
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	lines.SetEscapeHTML(false)
	for _, r := range resp.Rejections {
		position, item := b.positions[r.Index], b.item(r.Index)
		if first, ok := t.Examples[r.Error.ErrorCode]; !ok || position.Row < first.Position.Row {
			t.Examples[r.Error.ErrorCode] = Example{Position: position, Error: r.Error}
		}
		t.Codes[r.Error.ErrorCode]++
		if s.byCode[r.Error.ErrorCode] == nil {
			s.byCode[r.Error.ErrorCode] = Detectors{}
		}
		s.byCode[r.Error.ErrorCode].add(item, r.Error)
		if err := lines.Encode(rejectedItem{item, r, resp.Header.Get("Batch-Id"), position.Row, position.Line}); err != nil {
			return fmt.Errorf("cannot encode a rejected item: %w", err)
		}
	}
	// Write once per batch, so that the file contains all counted rejections even if the program is
	// killed afterwards.
	if _, err := s.rejected.Write(text.Bytes()); err != nil {
		return fmt.Errorf("cannot write rejected items: %w", err)
	}
	return nil
}

type rejectedItem struct {
	Item json.RawMessage `json:"item"`
	contract.Rejection
	BatchID string `json:"batchId"`
	Row     int64  `json:"row"`
	Line    int64  `json:"line,omitempty"`
}

var errInvalidResponse = errors.New("inconsistent response; check that --url points to a trafficd daemon")

// post sends a packed batch once. Its errors are those of client.Post.
func (s *Sender) post(ctx context.Context, b *batch) (*client.Posted, error) {
	var a *client.Posted
	var err error
	if s.cfg.DryRun {
		a, err = s.client.DryRun(ctx, s.cfg.AllErrors, b.packed.Bytes())
	} else {
		a, err = s.client.Post(ctx, b.key, b.packed.Bytes())
	}
	if err != nil {
		return nil, err
	}
	if a.Accepted+a.Rejected != b.len() || a.Rejected != len(a.Rejections) && (!s.cfg.AllErrors || a.Rejected > len(a.Rejections)) {
		return nil, fmt.Errorf("%w: %d items, %d accepted, %d rejected, %d rejections",
			errInvalidResponse, b.len(), a.Accepted, a.Rejected, len(a.Rejections))
	}
	for _, r := range a.Rejections {
		if r.Index < 0 || r.Index >= b.len() {
			return nil, fmt.Errorf("%w: rejection of item %d of %d", errInvalidResponse, r.Index, b.len())
		}
	}
	return a, nil
}

// retryable reports whether the same request may succeed later.
func retryable(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return !errors.Is(err, errInvalidResponse) && !client.Permanent(err)
	}
	return e.Status >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}, e.Status)
}

// inDoubt reports whether the daemon may have accepted the batch of a failed attempt: there was no
// response, another attempt is in progress (409), or a proxy responded, without an error code and
// without saying that it is the request that is wrong.
func inDoubt(err error) bool {
	if e, ok := errors.AsType[*client.Error](err); ok {
		refused := e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout
		return e.Status == http.StatusConflict || e.ErrorCode == "" && !refused
	}
	return !client.NotConnected(err)
}

// Pauses between attempts double from the first to the longest.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// pause returns how long to wait after attempt n, counted from 1. It is at least as long as the
// daemon requested. chance in [0,1) adds jitter in the upper half, so that clients do not retry in
// step.
func pause(n int, chance float64, err error) time.Duration {
	full := min(longestPause, firstPause<<min(n-1, 10))
	wait := full/2 + time.Duration(chance*float64(full/2))
	if e, ok := errors.AsType[*client.Error](err); ok && e.RetryAfter > 0 {
		wait = max(wait, e.RetryAfter+time.Duration(chance*float64(time.Second)))
	}
	return wait
}
