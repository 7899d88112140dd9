package inspect

import (
	"errors"
	"fmt"
	"time"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
)

// Consumer is one that reads the journal, and what it has not yet.
type Consumer struct {
	Name string
	Err  error // why its cursor cannot be read; the rest is empty then
	pipeline.CursorStatus

	Frames    int       // with anything that it has not
	Rows      int       // that it has not
	BlockRows int       // of these, in the block under way
	Oldest    time.Time // when the first of the frames was received; zero if there is none
	Deleted   uint64    // frames that were gone before it read them: it was not configured then
	Ahead     uint64    // frames before its position that the journal does not have: they are missing
}

// HasRows tells whether rows are what the consumer reads: the one that
// remembers answers passes over them.
func (c *Consumer) HasRows() bool { return c.Name != pipeline.IdempotencyConsumer }

// Behind gives the first frame that some consumer has not yet, as far as
// their cursors can be read.
func (f *Folder) Behind() uint64 {
	first := uint64(NoEnd)
	for _, c := range f.cursors {
		if c.Err == nil {
			first = min(first, c.Seq)
		}
	}
	return first
}

// Consumers tells where each one stands, sorted by name, and which of the
// frames to come cannot be read: those are not counted.
func (f *Folder) Consumers() ([]Consumer, []*Gap, error) {
	consumers := make([]Consumer, len(f.cursors))
	for i, c := range f.cursors {
		consumers[i] = standing(c)
	}
	gaps, err := f.count(consumers)
	return consumers, gaps, err
}

func standing(c journal.CursorInfo) Consumer {
	s := Consumer{Name: c.Name, Err: c.Err}
	if s.Err == nil {
		s.CursorStatus, s.Err = pipeline.DescribeCursor(c.Seq, c.State)
	}
	return s
}

// count reads every frame that a consumer has not yet.
func (f *Folder) count(consumers []Consumer) (gaps []*Gap, err error) {
	in, err := f.silent().Inspect()
	if err != nil || len(consumers) == 0 {
		return nil, err
	}
	oldest, next := bounds(in)
	for i := range consumers {
		consumers[i].place(oldest, next)
	}
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
			return gaps, fmt.Errorf("cannot count what is to be delivered, at frame %d: %w", frame.Seq, err)
		}
		for i := range consumers {
			consumers[i].add(frame.Seq, &b)
		}
	}
	return gaps, nil
}

// bounds gives the oldest frame and the one after the newest; NoEnd where the
// newest segment cannot tell.
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

// add counts a frame.
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

// place holds the consumer against the frames that there are: from oldest to
// the one before next.
func (c *Consumer) place(oldest, next uint64) {
	switch {
	case c.Err != nil:
	case c.Done.Frame < oldest:
		c.Deleted = oldest - c.Done.Frame
	case c.Done.Frame > next:
		c.Ahead = c.Done.Frame - next
	}
}
