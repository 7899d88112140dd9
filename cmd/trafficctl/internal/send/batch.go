package send

import (
	"bytes"
	"context"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/trafficctl/internal/measurement"
)

const (
	bodyStart = `{"measurements":[`
	bodyEnd   = `]}`

	// maxBody is the size at which a batch of unusually long items is closed early, well below the
	// daemon's limits of 16 MiB compressed and 64 MiB decompressed.
	maxBody = 12 << 20
)

// batch is the content of one request. Batches are reused.
type batch struct {
	key       string // Idempotency-Key of all attempts
	body      []byte // uncompressed, without bodyEnd
	ends      []int  // end of each item in body
	positions []measurement.Position
	packed    bytes.Buffer // the compressed body
}

func (b *batch) reset() {
	b.key = uuid.NewString()
	b.body = append(b.body[:0], bodyStart...)
	b.ends, b.positions = b.ends[:0], b.positions[:0]
	b.packed.Reset()
}

func (b *batch) len() int { return len(b.ends) }

func (b *batch) add(item measurement.Item) {
	if b.len() > 0 {
		b.body = append(b.body, ',')
	}
	b.body = append(b.body, item.JSON...)
	b.ends = append(b.ends, len(b.body))
	b.positions = append(b.positions, item.Position)
}

// full reports whether no further item may be added.
func (b *batch) full(limit int) bool { return b.len() >= limit || len(b.body) >= maxBody }

func (b *batch) item(i int) []byte {
	start := len(bodyStart)
	if i > 0 {
		start = b.ends[i-1] + 1
	}
	return b.body[start:b.ends[i]]
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
// queued, because input that is sorted by detector fills one lane after another.
const batchesPerWorker = 4

// lanes holds the queues between fill and the workers, and all batches. A queue can hold all
// batches, so fill blocks only while no batch is free.
type lanes struct {
	limit  int
	open   []*batch // the batch being filled for each queue, or nil
	queues []chan *batch
	free   chan *batch
}

func newLanes(cfg Config) *lanes {
	n := cfg.Concurrency
	all := n * batchesPerWorker
	l := &lanes{limit: cfg.Batch, open: make([]*batch, n), queues: make([]chan *batch, n), free: make(chan *batch, all)}
	for i := range l.queues {
		l.queues[i] = make(chan *batch, all)
	}
	for range all {
		l.free <- new(batch)
	}
	return l
}

// add adds the item to its lane's batch and queues the batch if it is full. It returns an error
// only if ctx is done; the item is then not added.
func (l *lanes) add(ctx context.Context, item measurement.Item) error {
	i := int(xxhash.Sum64String(item.Detector) % uint64(len(l.queues)))
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

// queueAll queues all open batches, unless ctx is done.
func (l *lanes) queueAll(ctx context.Context) {
	for i, b := range l.open {
		if b != nil && ctx.Err() == nil {
			l.queues[i] <- b
			l.open[i] = nil
		}
	}
}
