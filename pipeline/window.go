package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

// window holds the undelivered rows of the frames that a delivery has read. It reuses the memory of
// its batches.
type window struct {
	source Source
	reader durable.Reader
	rows   batch.Block
	count  int            // number of rows
	next   uint64         // frame to read next
	skip   uint32         // rows of frame next that were delivered before
	broken []brokenRecord // before next, not yet in the dead-letter file
	free   []*batch.Batch
	buf    []byte
	began  time.Time             // when gather last returned
	idle   func(context.Context) // called at intervals of every while there is no frame to read
	every  time.Duration

	frames, total atomic.Int64 // number of frames that have been read, and of all their rows
}

// brokenRecord is a record that is not an intact frame. The window treats it as a frame without
// rows.
type brokenRecord struct {
	frame uint64
	*durable.RecordError
}

// maxFree is the maximum number of batches kept for reuse. A window can hold thousands of small
// batches, but each batch kept may have the memory of a large one.
const maxFree = 32

// rewind discards all rows and continues reading at a position.
func (w *window) rewind(from batch.Position) {
	w.drop(w.count)
	w.broken = slices.DeleteFunc(w.broken, func(r brokenRecord) bool { return r.frame >= from.Frame }) // they will be read again
	w.next, w.skip = from.Frame, from.Row
	w.reader = w.source.Reader(from.Frame)
}

// gather waits for a row, and then until there are cfg.MinRows rows or cfg.Linger has passed since
// it last returned. So rows that arrive after a pause do not wait, and blocks are large under load.
// It stops reading once there are cfg.MaxRows rows, and after a broken record, to hold at most one
// of those. It returns no rows if it has read only a frame without rows. If a frame cannot be read,
// it returns the rows before it, and the next call returns the error.
func (w *window) gather(ctx context.Context, cfg DeliveryConfig) (batch.Block, error) {
	for w.count == 0 {
		pause, cancel := context.WithTimeout(ctx, w.every)
		err := w.wait(pause)
		cancel()
		switch {
		case err == nil && w.count == 0:
			return nil, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			w.idle(ctx)
		case err != nil:
			return nil, err
		}
	}
	lingering, cancel := context.WithDeadline(ctx, w.began.Add(cfg.Linger))
	defer cancel()
	defer func() { w.began = time.Now() }()
	for w.count < cfg.MaxRows && len(w.broken) == 0 {
		ok, err := w.read()
		if !ok && err == nil && w.count < cfg.MinRows {
			err = w.wait(lingering)
			ok = err == nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil, !ok:
			return w.rows, nil
		}
	}
	return w.rows, nil
}

// rowsUpTo returns the rows before a position, waiting until they can be read. It returns no rows
// if a frame before the position was deleted.
func (w *window) rowsUpTo(ctx context.Context, end batch.Position) (batch.Block, error) {
	for w.count == 0 || w.rows.End().Before(end) {
		expected := w.next
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
		if w.next != expected+1 {
			return nil, nil
		}
	}
	n := 0
	for _, s := range w.rows {
		if s.Frame < end.Frame {
			n += s.To - s.From
		} else if s.Frame == end.Frame {
			n += int(end.Row) - s.From
		}
	}
	return w.rows.Head(n), nil
}

// wait reads the next frame, waiting until it is durable.
func (w *window) wait(ctx context.Context) error {
	seq, frame, err := w.reader.Next(ctx, w.buf)
	return w.add(seq, frame, err)
}

// read reads the next frame. It returns false if that frame is not durable yet.
func (w *window) read() (bool, error) {
	seq, frame, ok, err := w.reader.TryNext(w.buf)
	if !ok {
		return false, err
	}
	return true, w.add(seq, frame, err)
}

// add adds what the reader has returned.
func (w *window) add(seq uint64, frame []byte, err error) error {
	if record, ok := errors.AsType[*durable.RecordError](err); ok {
		w.broken = append(w.broken, brokenRecord{seq, record})
		w.next, w.skip = seq+1, 0
		w.frames.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	w.buf = frame
	b := new(batch.Batch)
	if n := len(w.free); n > 0 {
		b, w.free = w.free[n-1], w.free[:n-1]
	}
	if err := batch.DecodeFrame(frame, b, nil); err != nil {
		w.release(b)
		w.reader = w.source.Reader(seq) // so that the next read returns the same error
		return fmt.Errorf("cannot read frame %d of the journal: %w", seq, err)
	}
	w.frames.Add(1)
	w.total.Add(int64(b.Rows()))
	from := 0
	if seq == w.next { // otherwise frame w.next was deleted
		from = int(w.skip)
	}
	w.next, w.skip = seq+1, 0
	if from >= b.Rows() { // no accepted rows, or all were delivered before
		w.release(b)
		return nil
	}
	w.rows = append(w.rows, batch.Span{Batch: b, Frame: seq, From: from, To: b.Rows()})
	w.count += b.Rows() - from
	return nil
}

func (w *window) release(b *batch.Batch) {
	if len(w.free) < maxFree {
		w.free = append(w.free, b)
	}
}

// end returns the position after the last row that was read.
func (w *window) end() batch.Position { return batch.Position{Frame: w.next, Row: w.skip} }

// more reports whether there are rows, reading durable frames up to a broken record as needed. It
// does not wait.
func (w *window) more() bool {
	for w.count == 0 && len(w.broken) == 0 {
		if ok, err := w.read(); !ok || err != nil {
			return false
		}
	}
	return w.count > 0
}

// drop removes the first n rows.
func (w *window) drop(n int) {
	w.count -= n
	spans := 0
	for ; n > 0; spans++ {
		s := &w.rows[spans]
		left := s.To - s.From
		if n < left {
			s.From += n
			break
		}
		n -= left
		w.release(s.Batch)
	}
	w.rows = slices.Delete(w.rows, 0, spans) // in a single call: a block may have a span for each row
}
