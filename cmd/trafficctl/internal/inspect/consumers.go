package inspect

import (
	"errors"
	"fmt"
	"time"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// Consumer is a consumer of the journal and its lag.
type Consumer struct {
	Name string
	Err  error // why its cursor cannot be read; the other fields are then empty
	pipeline.CursorStatus

	Frames    int       // with rows that it has not consumed
	Rows      int       // that it has not consumed
	BlockRows int       // of these, in the block in flight
	Oldest    time.Time // when the first of Frames was received; zero if there is none
	Deleted   uint64    // frames that were deleted unread, while it was not configured
	Ahead     uint64    // frames before its position that are missing in the journal
}

// HasRows reports whether the consumer uses rows. The idempotency store does not.
func (c *Consumer) HasRows() bool { return c.Name != pipeline.IdempotencyConsumer }

// Behind returns the first frame that a consumer with a readable cursor has not consumed.
func (f *Folder) Behind() uint64 {
	first := uint64(NoEnd)
	for _, c := range f.cursors {
		if c.Err == nil {
			first = min(first, c.Seq)
		}
	}
	return first
}

// Consumers returns the consumers by name, and the unconsumed frames that cannot be read, which are not
// counted.
func (f *Folder) Consumers() ([]Consumer, []*Gap, error) {
	consumers := make([]Consumer, len(f.cursors))
	for i, c := range f.cursors {
		consumers[i] = Consumer{Name: c.Name, Err: c.Err}
		if c.Err == nil {
			consumers[i].CursorStatus, consumers[i].Err = pipeline.DescribeCursor(c.Seq, c.State)
		}
	}
	in, err := f.silent().Inspect()
	if err != nil || len(consumers) == 0 {
		return consumers, nil, err
	}
	oldest, next := bounds(in)
	for i := range consumers {
		switch c := &consumers[i]; {
		case c.Err != nil:
		case c.Done.Frame < oldest:
			c.Deleted = oldest - c.Done.Frame
		case c.Done.Frame > next:
			c.Ahead = c.Done.Frame - next
		}
	}
	var gaps []*Gap
	var b batch.Batch
	for frame, err := range f.Frames(f.Behind()) {
		var gap *Gap
		if errors.As(err, &gap) {
			gaps = append(gaps, gap)
			continue
		}
		if err == nil {
			err = batch.DecodeFrame(frame.Data, &b, nil)
		}
		if err != nil {
			return consumers, gaps, fmt.Errorf("cannot count undelivered rows at frame %d: %w", frame.Seq, err)
		}
		for i := range consumers {
			consumers[i].add(frame.Seq, &b)
		}
	}
	return consumers, gaps, nil
}

// bounds returns the oldest frame and the one after the newest, which is NoEnd if the newest segment is
// damaged.
func bounds(in *journal.Inspection) (oldest, next uint64) {
	if len(in.Segments) == 0 {
		return 1, 1
	}
	newest := in.Segments[len(in.Segments)-1]
	if newest.Err != nil {
		return in.Segments[0].First, NoEnd
	}
	return in.Segments[0].First, newest.Last + 1
}

// add counts a frame's rows that the consumer has not consumed.
func (c *Consumer) add(seq uint64, b *batch.Batch) {
	at := batch.Position{Frame: seq}
	if c.Err != nil || seq < c.Done.Frame {
		return
	}
	done := 0
	if seq == c.Done.Frame {
		done = min(int(c.Done.Row), b.Rows())
	}
	if c.Frames == 0 {
		c.Oldest = time.Unix(0, b.ReceivedAt)
	}
	c.Frames++
	c.Rows += b.Rows() - done
	switch {
	case c.Plan == nil || !at.Before(c.End):
	case seq == c.End.Frame:
		c.BlockRows += min(int(c.End.Row), b.Rows()) - done
	default:
		c.BlockRows += b.Rows() - done
	}
}
