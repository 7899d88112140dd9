package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// NoEnd is the value of Gap.To if no intact frame follows the gap.
const NoEnd = math.MaxUint64

// Gap is a run of frames that cannot be read. Later frames may be intact.
type Gap struct {
	From, To      uint64    // first and last frame; To may be NoEnd
	After, Before time.Time // when the frames next to the gap were received; zero if there is none
	Err           error     // why the first frame cannot be read
}

// Error implements error.
func (g *Gap) Error() string { return fmt.Sprintf("cannot read %s: %v", g.Range(), g.Err) }

// Range returns the frame numbers as text, such as "frames 3 to 7".
func (g *Gap) Range() string {
	switch g.To {
	case g.From:
		return fmt.Sprintf("frame %d", g.From)
	case NoEnd:
		return fmt.Sprintf("frames from %d on", g.From)
	}
	return fmt.Sprintf("frames %d to %d", g.From, g.To)
}

// Frames implements Journal. It verifies the frames' checksums. Any error other than a *Gap ends
// the sequence. A frame is valid until the next one. A torn tail ends the sequence without an
// error.
func (f *Directory) Frames(from, to uint64) iter.Seq2[durable.Frame, error] {
	return func(yield func(durable.Frame, error) bool) {
		in, err := f.Inspect()
		if err != nil {
			yield(durable.Frame{}, err)
			return
		}
		r := frameReader{yield: yield, last: to}
		for i, s := range f.segments {
			end, visible := f.span(i, in)
			if !f.readSegment(&r, max(from, s.first), end, newView(visible, f.onRead)) {
				return
			}
		}
		if r.reason != nil {
			r.gap(NoEnd, time.Time{})
		}
	}
}

// readSegment reads the frames [from, end) of a segment. It returns false if yield has returned
// false, or at the end of the journal.
func (f *Directory) readSegment(r *frameReader, from, end uint64, files *view) bool {
	if r.next == 0 {
		r.next = from
	}
	for from < end {
		var failed error
		for frame, err := range journal.Frames(f.dir, from, journal.WithFS(files)) {
			if failed = err; err != nil || frame.Seq >= end {
				break
			}
			from = frame.Seq + 1
			if !r.frame(frame) {
				return false
			}
		}
		r.reason = cmp.Or(r.reason, failed)
		switch corrupt, isCorrupt := errors.AsType[*journal.CorruptError](failed); {
		case isCorrupt && corrupt.Seq >= from: // the header of the damaged frame may be intact
			from = corrupt.Seq + 1
		case failed != nil && !isCorrupt && from == r.next: // an I/O error
			from++
		case failed == nil && r.reason != nil && end == NoEnd:
			r.gap(from-1, time.Time{})
			return false
		default:
			return true
		}
	}
	return true
}

// frameReader yields frames and the gaps between them.
type frameReader struct {
	yield  func(durable.Frame, error) bool
	last   uint64    // last frame to yield
	next   uint64    // expected frame; 0 before the first segment
	after  time.Time // when the frame before next was received
	reason error     // why next cannot be read
}

// frame yields a frame, after the gap before it, if any. It returns false to stop.
func (r *frameReader) frame(frame durable.Frame) bool {
	received := time.Unix(0, batch.FrameReceivedAt(frame.Data))
	if frame.Seq > r.next && !r.gap(frame.Seq-1, received) {
		return false
	}
	r.next, r.after, r.reason = frame.Seq+1, received, nil
	return frame.Seq <= r.last && r.yield(frame, nil)
}

// gap yields a gap from next to to. It returns false to stop.
func (r *frameReader) gap(to uint64, before time.Time) bool {
	err := cmp.Or(r.reason, errMissingSegment)
	r.reason = nil
	return r.next <= r.last && r.yield(durable.Frame{}, &Gap{From: r.next, To: to, After: r.after, Before: before, Err: err})
}

// span returns the first frame after segment i, or NoEnd after the last segment, and the segments
// to show to journal.Frames: segment i and its successor. It omits a successor that cannot be
// opened, because journal.Frames would then read nothing.
func (f *Directory) span(i int, in *journal.Inspection) (end uint64, visible []segment) {
	switch {
	case i+1 == len(f.segments):
		return NoEnd, f.segments[i:]
	case in.Segments[i+1].First == 0:
		return f.segments[i+1].first, f.segments[i : i+1]
	}
	return f.segments[i+1].first, f.segments[i : i+2]
}

var errMissingSegment = errors.New("the segment is missing")

// Verdict is the result of Verify.
type Verdict struct {
	*journal.Inspection
	Gaps   []*Gap // acknowledged frames that cannot be read
	Newest uint64 // number of the last readable frame; 0: none
}

// Verify checks all checksums, and the cursors against the frames.
func (f *Directory) Verify() (*Verdict, error) {
	in, err := f.inspect(journal.Verify, f.onRead)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Inspection: in}
	for _, s := range in.Segments {
		v.Newest = max(v.Newest, s.Last)
	}
	if i := slices.IndexFunc(in.Segments, func(s journal.SegmentInfo) bool { return s.Err != nil }); i >= 0 {
		for frame, err := range f.Frames(in.Segments[i].Last, NoEnd) { // from the last intact frame on
			gap, isGap := errors.AsType[*Gap](err)
			switch {
			case isGap:
				v.Gaps = append(v.Gaps, gap)
			case err != nil:
				return nil, err
			default:
				v.Newest = max(v.Newest, frame.Seq)
			}
		}
	}
	// Add frames that were consumed but are missing from the journal. The daemon does not start in
	// this case.
	next := nextFrame(in)
	for _, c := range v.Cursors {
		if c.Err == nil && c.Seq > next {
			err := fmt.Errorf("the cursor of %s is at frame %d, but earlier frames are missing", c.Name, c.Seq)
			v.Gaps = append(v.Gaps, &Gap{From: next, To: c.Seq - 1, Err: err})
			next = c.Seq
		}
	}
	return v, nil
}

// Lacking returns the names of the consumers that have not consumed all frames of a gap, including
// consumers whose cursor cannot be read.
func (v *Verdict) Lacking(g *Gap) (names []string) {
	for _, c := range v.Cursors {
		if c.Err != nil || c.Seq <= g.To {
			names = append(names, c.Name)
		}
	}
	return names
}

// Lost reports whether a store lacks frames of a gap, or there are gaps but no cursors. Without
// frames that only the idempotency store lacks, no measurement is lost.
func (v *Verdict) Lost() bool {
	return slices.ContainsFunc(v.Gaps, func(g *Gap) bool {
		lacking := slices.DeleteFunc(v.Lacking(g), func(name string) bool { return name == pipeline.IdempotencyConsumer })
		return len(v.Cursors) == 0 || len(lacking) > 0
	})
}

// FirstUndelivered returns the first frame not delivered to all stores, or NoEnd if unknown. It
// ignores unreadable cursors.
func (v *Verdict) FirstUndelivered() uint64 {
	first := uint64(NoEnd)
	for _, c := range v.Cursors {
		if c.Err == nil && c.Name != pipeline.IdempotencyConsumer {
			first = min(first, c.Seq)
		}
	}
	return first
}

// Consumer describes a consumer of the journal and its lag.
type Consumer struct {
	Name string
	Err  error // why its cursor cannot be read; the fields below are then zero
	pipeline.CursorStatus

	Frames    int       // number of frames with rows that it has not consumed
	Rows      int       // number of rows that it has not consumed
	BlockRows int       // number of Rows in the block in flight
	Oldest    time.Time // when the first of Frames was received; zero if there is none
	Deleted   uint64    // number of frames deleted before it had consumed them, while it was not configured
	Ahead     uint64    // number of frames before its position that are missing from the journal
}

// firstUnconsumed returns the first frame not consumed by all consumers, or NoEnd if unknown. It
// ignores unreadable cursors.
func (f *Directory) firstUnconsumed() uint64 {
	first := uint64(NoEnd)
	for _, c := range f.cursors {
		if c.Err == nil {
			first = min(first, c.Seq)
		}
	}
	return first
}

// Consumers implements Journal.
func (f *Directory) Consumers() (consumers []Consumer, gaps []*Gap, err error) {
	err = f.attempt(func() (intact bool, err error) {
		consumers, gaps, err = f.consumers()
		bad := slices.ContainsFunc(consumers, func(c Consumer) bool { return c.Err != nil || c.Ahead > 0 })
		return err == nil && len(gaps) == 0 && !bad, err
	})
	return consumers, gaps, err
}

func (f *Directory) consumers() (consumers []Consumer, gaps []*Gap, err error) {
	in, err := f.Inspect()
	if err != nil {
		return nil, nil, err
	}
	next := nextFrame(in)
	for _, cursor := range f.cursors {
		consumers = append(consumers, newConsumer(cursor, f.oldest, next))
	}
	var b batch.Batch
	for frame, err := range f.Frames(f.firstUnconsumed(), NoEnd) {
		if gap, ok := errors.AsType[*Gap](err); ok {
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

// newConsumer returns a consumer of a journal whose frames are oldest to next-1.
func newConsumer(cursor durable.CursorInfo, oldest, next uint64) Consumer {
	c := Consumer{Name: cursor.Name, Err: cursor.Err}
	if c.Err == nil {
		c.CursorStatus, c.Err = pipeline.DescribeCursor(cursor.Seq, cursor.State)
	}
	switch {
	case c.Err != nil:
	case c.Done.Frame < oldest:
		c.Deleted = oldest - c.Done.Frame
	case c.Done.Frame > next:
		c.Ahead = c.Done.Frame - next
	}
	return c
}

// nextFrame returns the number of the frame after the newest one, 1 if there are no segments, or
// NoEnd if the newest segment is damaged.
func nextFrame(in *journal.Inspection) uint64 {
	if len(in.Segments) == 0 {
		return 1
	}
	newest := in.Segments[len(in.Segments)-1]
	if newest.Err != nil {
		return NoEnd
	}
	return newest.Last + 1
}

// add counts the rows of a frame that the consumer has not consumed.
func (c *Consumer) add(seq uint64, b *batch.Batch) {
	if c.Err != nil || seq < c.Done.Frame {
		return
	}
	done := 0
	if seq == c.Done.Frame {
		done = min(int(c.Done.Row), b.Rows())
	}
	if c.Frames++; c.Frames == 1 {
		c.Oldest = time.Unix(0, b.ReceivedAt)
	}
	c.Rows += b.Rows() - done
	switch {
	case c.Plan == nil || seq > c.End.Frame:
	case seq == c.End.Frame:
		c.BlockRows += max(min(int(c.End.Row), b.Rows())-done, 0)
	default:
		c.BlockRows += b.Rows() - done
	}
}
