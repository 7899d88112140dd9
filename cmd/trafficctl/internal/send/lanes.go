package send

import (
	"context"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// batchesPerWorker is how many batches go round for each worker: one on its
// way, one being filled, and some that wait, because input sorted by detector
// fills one lane for a while and then another.
const batchesPerWorker = 4

// lanes are the queues between fill and the workers, and the batches that go
// round. A queue can hold all of them, so that handing one over never blocks;
// waiting is for a free one only.
type lanes struct {
	limit  int
	open   []*batch // being filled, one for each queue; nil: none
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

// queueOf gives the queue that a worker takes from: its own, or the only one.
func (l *lanes) queueOf(worker int) <-chan *batch { return l.queues[worker%len(l.queues)] }

// add puts the item into the batch of its lane and hands over what is full. It
// fails only when ctx is done; the item is in no batch then.
func (l *lanes) add(ctx context.Context, item measurement.Item) error {
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
		l.hand(i)
	}
	if item.EndsBatch {
		l.handAll(ctx)
	}
	return nil
}

func (l *lanes) hand(i int) {
	l.queues[i] <- l.open[i]
	l.open[i] = nil
}

// handAll hands over all batches that have been begun. Once ctx is done nobody
// sends them any more, and they stay.
func (l *lanes) handAll(ctx context.Context) {
	for i, b := range l.open {
		if b != nil && ctx.Err() == nil {
			l.hand(i)
		}
	}
}

func (l *lanes) close() {
	for _, q := range l.queues {
		close(q)
	}
}

// unsent gives the batches that were begun and never handed over.
func (l *lanes) unsent() []*batch {
	var unsent []*batch
	for _, b := range l.open {
		if b != nil {
			unsent = append(unsent, b)
		}
	}
	return unsent
}
