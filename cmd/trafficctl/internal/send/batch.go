package send

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"sync"

	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/trafficctl/internal/measurement"
)

const (
	bodyStart = `{"measurements":[`
	bodyEnd   = `]}`

	// maxBody closes a batch of unusually long items early, well below the daemon's limits of 16 MiB
	// compressed and 64 MiB decompressed.
	maxBody = 12 << 20
)

// batch is one request. Batches are reused.
type batch struct {
	key    string // Idempotency-Key of all attempts
	body   []byte // JSON without bodyEnd
	ends   []int  // end of each item in body
	places []measurement.Place
	packed bytes.Buffer
}

func (b *batch) reset() {
	b.key = uuid.NewString()
	b.body = append(b.body[:0], bodyStart...)
	b.ends, b.places = b.ends[:0], b.places[:0]
	b.packed.Reset()
}

func (b *batch) len() int { return len(b.ends) }

func (b *batch) add(item measurement.Item) {
	if b.len() > 0 {
		b.body = append(b.body, ',')
	}
	b.body = append(b.body, item.JSON...)
	b.ends = append(b.ends, len(b.body))
	b.places = append(b.places, item.Place)
}

// full reports whether the batch must be sent before another item is added.
func (b *batch) full(limit int) bool { return b.len() >= limit || len(b.body) >= maxBody }

func (b *batch) item(i int) []byte {
	start := len(bodyStart)
	if i > 0 {
		start = b.ends[i-1] + 1
	}
	return b.body[start:b.ends[i]]
}

// firstRow returns the input row of the first item, or math.MaxInt64 for an empty batch.
func (b *batch) firstRow() int64 {
	if b.len() == 0 {
		return math.MaxInt64
	}
	return b.places[0].Row
}

// pack compresses the body. All attempts send the same bytes.
func (b *batch) pack(z *gzip.Writer) error {
	z.Reset(&b.packed)
	if _, err := z.Write(append(b.body, bodyEnd...)); err != nil {
		return err
	}
	return z.Close()
}

// batchesPerWorker is the number of batches per worker: one in flight, one being filled, and some
// queued, because input that is sorted by detector fills one lane for a while and then another.
const batchesPerWorker = 4

// lanes are the queues between fill and the workers, and the batches in circulation. A queue can
// hold all batches, so handing one over never blocks; only taking a free one does.
type lanes struct {
	limit  int
	open   []*batch // being filled, one per queue; nil: none
	queues []chan *batch
	free   chan *batch
}

func newLanes(cfg Config) *lanes {
	n := 1
	if cfg.Ordered {
		n = cfg.Concurrency
	}
	all := cfg.Concurrency * batchesPerWorker
	l := &lanes{limit: cfg.Batch, open: make([]*batch, n), queues: make([]chan *batch, n), free: make(chan *batch, all)}
	for i := range l.queues {
		l.queues[i] = make(chan *batch, all)
	}
	for range all {
		l.free <- new(batch)
	}
	return l
}

// add puts the item into its lane's batch and hands the batch over if it is full. It fails only when
// ctx is done; the item is in no batch then.
func (l *lanes) add(ctx context.Context, item measurement.Item) error {
	if item.StartsBatch {
		l.handAll(ctx)
	}
	i := int(item.Order % uint64(len(l.queues)))
	if l.open[i] == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case l.open[i] = <-l.free:
			l.open[i].reset()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.open[i].add(item)
	if l.open[i].full(l.limit) {
		l.queues[i] <- l.open[i]
		l.open[i] = nil
	}
	return nil
}

// handAll hands over all open batches, unless ctx is done: they stay open then.
func (l *lanes) handAll(ctx context.Context) {
	for i, b := range l.open {
		if b != nil && ctx.Err() == nil {
			l.queues[i] <- b
			l.open[i] = nil
		}
	}
}

// Tally counts the outcomes so far.
type Tally struct {
	Accepted int64            `json:"accepted"`
	Rejected int64            `json:"rejected"`
	Batches  int64            `json:"batches"` // answered with 207
	Retries  int64            `json:"retries"`
	Replayed int64            `json:"replayed"` // batches whose first answer was lost
	BadRows  int64            `json:"bad_rows"` // unreadable rows that were skipped
	Unknown  int64            `json:"unknown"`  // items sent without an answer
	Codes    map[string]int64 `json:"codes,omitempty"`
	// Examples holds the first rejection in the input for each code.
	Examples map[string]Example `json:"-"`
	// Resume is set when sending stopped early: all rows before it are acknowledged. 0: all rows are.
	Resume int64 `json:"resume_row,omitempty"`
}

// Example is one rejected item.
type Example struct {
	Place measurement.Place
	Error ItemError
}

// ledger keeps the tally and writes the rejected items. It is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	tally    Tally
	rejected io.Writer // may be nil
	line     []byte
	resume   int64 // the lowest row that is not acknowledged
}

func (l *ledger) acknowledged(b *batch, a *answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Batches++
	l.tally.Accepted += int64(a.Accepted)
	l.tally.Rejected += int64(a.Rejected)
	if a.replayed {
		l.tally.Replayed++
	}
	for _, r := range a.Rejections {
		place := b.places[r.Index]
		if first, ok := l.tally.Examples[r.Error.ErrorCode]; !ok || place.Row < first.Place.Row {
			l.tally.Examples[r.Error.ErrorCode] = Example{Place: place, Error: r.Error}
		}
		l.tally.Codes[r.Error.ErrorCode]++
	}
	if l.rejected == nil || len(a.Rejections) == 0 {
		return nil
	}
	l.line = l.line[:0]
	for _, r := range a.Rejections {
		l.line = appendRejected(l.line, b, a.batchID, r)
	}
	// One write per batch: what the tally counts is in the file even if the program is killed afterwards.
	if _, err := l.rejected.Write(l.line); err != nil {
		return fmt.Errorf("cannot write rejected items: %w", err)
	}
	return nil
}

// appendRejected appends one line of a file of rejected items.
func appendRejected(dst []byte, b *batch, batchID string, r rejection) []byte {
	reason, _ := json.Marshal(r.Error) // three strings: cannot fail
	id, _ := json.Marshal(batchID)
	place := b.places[r.Index]
	dst = append(append(dst, `{"item":`...), oneLine(b.item(r.Index))...)
	dst = fmt.Appendf(dst, `,"index":%d,"error":%s,"batchId":%s,"row":%d`, r.Index, reason, id, place.Row)
	if place.Line > 0 {
		dst = fmt.Appendf(dst, `,"line":%d`, place.Line)
	}
	return append(dst, "}\n"...)
}

// oneLine removes the line breaks of an item.
func oneLine(item []byte) []byte {
	if !bytes.ContainsAny(item, "\r\n") {
		return item
	}
	var flat bytes.Buffer
	_ = json.Compact(&flat, item) // an item is valid JSON by contract
	return flat.Bytes()
}

// lost records a batch that is given up. sent reports whether it may have arrived.
func (l *ledger) lost(b *batch, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = min(l.resume, b.firstRow())
	if sent {
		l.tally.Unknown += int64(b.len())
	}
}

// unread records that the input was given up before a row.
func (l *ledger) unread(row int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = min(l.resume, row)
}

// add increments one of the tally's counters and returns it.
func (l *ledger) add(counter *int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	*counter++
	return *counter
}

func (l *ledger) snapshot() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	t.Codes, t.Examples = maps.Clone(t.Codes), maps.Clone(t.Examples)
	if l.resume != math.MaxInt64 {
		t.Resume = l.resume
	}
	return t
}
