package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
)

// pending holds the undelivered rows of the frames that a delivery has read. It reuses the memory
// of its batches.
type pending struct {
	source Source
	reader durable.Reader
	rows   batch.Block
	count  int            // number of rows
	next   uint64         // frame to read next
	skip   uint32         // rows of frame next that were delivered before
	broken []brokenRecord // before next, not yet in the dead-letter file
	free   []*batch.Batch
	buf    []byte
	newest int64 // received_at of the newest row that was read, 0 if none
	log    zerolog.Logger
	began  time.Time             // when gather last returned
	idle   func(context.Context) // called at intervals of every while there is no frame to read
	every  time.Duration

	frames, total atomic.Int64 // number of frames that have been read, and of all their rows
}

// brokenRecord is a record that is not an intact frame. It is treated as a frame without rows.
type brokenRecord struct {
	frame uint64
	*durable.RecordError
}

// maxFree is the maximum number of batches kept for reuse. There may be thousands of small
// batches, but each batch kept may have the memory of a large one.
const maxFree = 32

// rewind discards all rows and continues reading at a position.
func (p *pending) rewind(from batch.Position) {
	p.drop(p.count)
	p.broken = slices.DeleteFunc(p.broken, func(r brokenRecord) bool { return r.frame >= from.Frame }) // they will be read again
	p.next, p.skip, p.newest = from.Frame, from.Row, 0
	p.reader = p.source.Reader(from.Frame)
}

// gather waits for a row, and then until there are cfg.MinRows rows or cfg.Linger has passed since
// it last returned. So rows that arrive after a pause do not wait, and blocks are large under load.
// It stops reading once there are cfg.MaxRows rows, and after a broken record, to hold at most one
// of those. It returns no rows if it has read only a frame without rows. If a frame cannot be read,
// it returns the rows before it, and the next call returns the error.
func (p *pending) gather(ctx context.Context, cfg DeliveryConfig) (batch.Block, error) {
	for p.count == 0 {
		pause, cancel := context.WithTimeout(ctx, p.every)
		err := p.wait(pause)
		cancel()
		switch {
		case err == nil && p.count == 0:
			return nil, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			p.idle(ctx)
		case err != nil:
			return nil, err
		}
	}
	lingering, cancel := context.WithDeadline(ctx, p.began.Add(cfg.Linger))
	defer cancel()
	defer func() { p.began = time.Now() }()
	for p.count < cfg.MaxRows && len(p.broken) == 0 {
		ok, err := p.read()
		if !ok && err == nil && p.count < cfg.MinRows {
			err = p.wait(lingering)
			ok = err == nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil, !ok:
			return p.rows, nil
		}
	}
	return p.rows, nil
}

// rowsUpTo returns the rows before a position, waiting until they can be read. It returns no rows
// if a frame before the position was deleted.
func (p *pending) rowsUpTo(ctx context.Context, end batch.Position) (batch.Block, error) {
	for p.count == 0 || p.rows.End().Before(end) {
		expected := p.next
		if err := p.wait(ctx); err != nil {
			return nil, err
		}
		if p.next != expected+1 {
			return nil, nil
		}
	}
	n := 0
	for _, s := range p.rows {
		if s.Frame < end.Frame {
			n += s.To - s.From
		} else if s.Frame == end.Frame {
			n += int(end.Row) - s.From
		}
	}
	return p.rows.Head(n), nil
}

// wait reads the next frame, waiting until it is durable.
func (p *pending) wait(ctx context.Context) error {
	seq, frame, err := p.reader.Next(ctx, p.buf)
	return p.add(seq, frame, err)
}

// read reads the next frame. It returns false if that frame is not durable yet.
func (p *pending) read() (bool, error) {
	seq, frame, ok, err := p.reader.TryNext(p.buf)
	if !ok {
		return false, err
	}
	return true, p.add(seq, frame, err)
}

// add adds what the reader has returned.
func (p *pending) add(seq uint64, frame []byte, err error) error {
	record, ok := errors.AsType[*durable.RecordError](err)
	if (ok || err == nil) && seq < p.next {
		return p.reread(p.next, promisedOrder.broken(p.log, "frame %d follows frame %d", seq, p.next-1))
	}
	if ok {
		p.broken = append(p.broken, brokenRecord{seq, record})
		p.next, p.skip = seq+1, 0
		p.frames.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	p.buf = frame
	b := new(batch.Batch)
	if n := len(p.free); n > 0 {
		b, p.free = p.free[n-1], p.free[:n-1]
	}
	if err := batch.DecodeFrame(frame, b, nil); err != nil {
		p.release(b)
		return p.reread(seq, fmt.Errorf("cannot read frame %d of the journal: %w", seq, err))
	}
	if b.Rows() > 0 && p.newest > 0 && b.ReceivedAt <= p.newest {
		err := promisedOrder.broken(p.log, "frame %d of batch %s has received_at %d, not later than %d", seq, b.ID, b.ReceivedAt, p.newest)
		p.release(b)
		return p.reread(seq, err)
	}
	if b.Rows() > 0 {
		p.newest = b.ReceivedAt
	}
	p.frames.Add(1)
	p.total.Add(int64(b.Rows()))
	from := 0
	if seq == p.next { // otherwise frame p.next was deleted
		from = int(p.skip)
	}
	p.next, p.skip = seq+1, 0
	if from >= b.Rows() { // no accepted rows, or all were delivered before
		p.release(b)
		return nil
	}
	p.rows = append(p.rows, batch.Span{Batch: b, Frame: seq, From: from, To: b.Rows()})
	p.count += b.Rows() - from
	return nil
}

// reread makes the next read return the same error.
func (p *pending) reread(frame uint64, err error) error {
	p.reader = p.source.Reader(frame)
	return err
}

func (p *pending) release(b *batch.Batch) {
	if len(p.free) < maxFree {
		p.free = append(p.free, b)
	}
}

// end returns the position after the last row that was read.
func (p *pending) end() batch.Position { return batch.Position{Frame: p.next, Row: p.skip} }

// more reports whether there are rows, reading durable frames up to a broken record as needed. It
// does not wait.
func (p *pending) more() bool {
	for p.count == 0 && len(p.broken) == 0 {
		if ok, err := p.read(); !ok || err != nil {
			return false
		}
	}
	return p.count > 0
}

// drop removes the first n rows.
func (p *pending) drop(n int) {
	p.count -= n
	spans := 0
	for ; n > 0; spans++ {
		s := &p.rows[spans]
		left := s.To - s.From
		if n < left {
			s.From += n
			break
		}
		n -= left
		p.release(s.Batch)
	}
	p.rows = slices.Delete(p.rows, 0, spans) // in a single call: a block may have a span for each row
}
