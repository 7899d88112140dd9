package pipeline

import (
	"context"
	"fmt"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// window is the run of rows between a delivery's cursor and how far it has read: batches decoded from the journal,
// whose memory goes round.
type window struct {
	journal *journal.Journal
	reader  *journal.Reader
	rows    batch.Block
	count   int
	next    uint64 // frame after the last one read
	skip    uint32 // rows of it that are delivered already
	free    []*batch.Batch
	buf     []byte
}

func (w *window) start(j *journal.Journal, from batch.Position) {
	w.journal = j
	w.rewind(from)
}

// rewind forgets what was read and starts again at a position.
func (w *window) rewind(from batch.Position) {
	for len(w.rows) > 0 {
		w.release()
	}
	w.count, w.next, w.skip = 0, from.Frame, from.Row
	w.reader = w.journal.Reader(from.Frame)
}

// gather waits for rows, and for some time until there are cfg.MinRows; it gives hardly more than cfg.MaxRows. It gives none where
// the frames that came had none: the window's end has moved then. A frame that cannot be read does not keep back what
// stands before it: the next gather begins with it, and tells.
func (w *window) gather(ctx context.Context, cfg DeliveryConfig) (batch.Block, error) {
	if w.count == 0 {
		if err := w.wait(ctx); err != nil || w.count == 0 {
			return nil, err
		}
	}
	lingering, cancel := context.WithTimeout(ctx, cfg.Linger)
	defer cancel()
	for w.count < cfg.MaxRows {
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

// upTo gives the rows from the cursor to a position that was reached before.
func (w *window) upTo(ctx context.Context, end batch.Position) (batch.Block, error) {
	for w.count == 0 || w.rows.End().Before(end) {
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
	n := 0
	for _, s := range w.rows {
		switch {
		case s.Frame < end.Frame:
			n += s.To - s.From
		case s.Frame == end.Frame:
			n += int(end.Row) - s.From
		}
	}
	return w.rows.Head(n), nil
}

// wait reads the next frame as soon as there is one.
func (w *window) wait(ctx context.Context) error {
	seq, frame, err := w.reader.Next(ctx, w.buf)
	if err != nil {
		return err
	}
	return w.take(seq, frame)
}

// read reads the next frame if there is one.
func (w *window) read() (bool, error) {
	seq, frame, ok, err := w.reader.TryNext(w.buf)
	if err != nil || !ok {
		return false, err
	}
	return true, w.take(seq, frame)
}

// end is the position after the last row read.
func (w *window) end() batch.Position { return batch.Position{Frame: w.next, Row: w.skip} }

// more tells whether rows are waiting, reading on if need be.
func (w *window) more() bool {
	for w.count == 0 {
		if ok, err := w.read(); !ok || err != nil {
			return false
		}
	}
	return true
}

func (w *window) take(seq uint64, frame []byte) error {
	w.buf = frame
	b := w.spare()
	if err := batch.DecodeFrame(frame, b, nil); err != nil {
		w.free = append(w.free, b)
		w.reader = w.journal.Reader(seq) // whoever reads on meets it again, and does not pass it
		return fmt.Errorf("cannot read frame %d of the journal: %w", seq, err)
	}
	from := int(w.skip)
	w.next, w.skip = seq+1, 0
	if from >= b.Rows() { // nothing was accepted, or all of it is delivered
		w.free = append(w.free, b)
		return nil
	}
	w.rows = append(w.rows, batch.Span{Batch: b, Frame: seq, From: from, To: b.Rows()})
	w.count += b.Rows() - from
	return nil
}

func (w *window) spare() *batch.Batch {
	if n := len(w.free); n > 0 {
		b := w.free[n-1]
		w.free = w.free[:n-1]
		return b
	}
	return new(batch.Batch)
}

// drop takes the first n rows away: they are delivered.
func (w *window) drop(n int) {
	w.count -= n
	for n > 0 {
		s := &w.rows[0]
		if left := s.To - s.From; n < left {
			s.From += n
			return
		} else {
			n -= left
		}
		w.release()
	}
}

// release gives the memory of the first span free.
func (w *window) release() {
	w.free = append(w.free, w.rows[0].Batch)
	w.rows = append(w.rows[:0], w.rows[1:]...)
}
