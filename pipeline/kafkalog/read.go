package kafkalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
)

const (
	maxFetchBytes = 4 << 20                // maximum size of a response, unless a single record is larger
	fetchWait     = 500 * time.Millisecond // maximum time that a broker waits for a record
)

// clock describes the log up to and including frame or, in Partition.base, before frame.
type clock struct {
	frame   uint64
	highest int64 // highest received_at so far
	stamp   int64 // received_at that the reader has set in the last frame with rows
}

// reader implements durable.Reader. If all rows of a frame are dropped, it returns the frame
// without rows.
type reader struct {
	fetcher
	clock
}

func (r *reader) Next(ctx context.Context, buf []byte) (uint64, []byte, error) {
	if err := r.p.checkOwned(); err != nil {
		return 0, nil, err
	}
	frame, data, err := r.pop(ctx)
	if err != nil {
		return 0, nil, err
	}
	return r.read(ctx, frame, data, buf)
}

func (r *reader) TryNext(buf []byte) (seq uint64, frame []byte, ok bool, err error) {
	if err := r.p.checkOwned(); err != nil {
		return 0, nil, false, err
	}
	if len(r.fetched) == 0 {
		if err := r.fetch(r.p.ctx, time.Millisecond); err != nil || len(r.fetched) == 0 {
			return 0, nil, false, err
		}
	}
	seq, data, _ := r.pop(r.p.ctx)
	seq, frame, err = r.read(r.p.ctx, seq, data, buf)
	return seq, frame, err == nil, err
}

// read drops repeated rows and sets received_at.
func (r *reader) read(ctx context.Context, frame uint64, data, buf []byte) (uint64, []byte, error) {
	fail := func(err error) (uint64, []byte, error) {
		r.next, r.fetched = frame, nil // the next call reads the frame again
		return 0, nil, fmt.Errorf("cannot read frame %d of partition %d of the log: %w", frame, r.p.ID, err)
	}
	h, err := batch.FrameHeader(data)
	if err != nil {
		return fail(err)
	}
	m := mark{frame, max(r.highest, batch.FrameReceivedAt(data)), batch.FrameSum(data)}
	earlier := r.p.seen.earlierFrames(h.ID, m, r.p.log.window)
	if len(earlier) > 0 {
		if data, err = r.p.withoutRepeats(ctx, data, m, earlier); err != nil {
			return fail(err)
		}
	}
	rows, err := batch.FrameRows(data)
	if err != nil {
		return fail(err)
	}
	buf = append(buf[:0], data...)
	r.highest = m.time
	if rows > 0 {
		r.stamp = max(r.stamp+1, batch.FrameReceivedAt(data))
		batch.StampFrame(buf, r.stamp)
	}
	r.clock.frame = frame
	if n := len(r.p.clocks); n == 0 || r.p.clocks[n-1].frame < frame {
		r.p.clocks = append(r.p.clocks, r.clock)
	}
	r.p.seen.note(h.ID, m)
	return frame, buf, nil
}

// withoutRepeats returns a frame without the rows that earlier frames of the same batch contain. An
// earlier frame with the same sum has the same rows. Frames with a different sum, which exist only
// if the registries of two replicas differed, are read again.
func (p *Partition) withoutRepeats(ctx context.Context, data []byte, m mark, earlier []mark) ([]byte, error) {
	for _, e := range earlier {
		if e.sum == m.sum {
			repeatsTotal.Inc()
			return batch.FrameWithoutRows(data), nil
		}
	}
	var frames [][]byte
	for _, e := range earlier {
		f := fetcher{p: p, next: e.frame}
		frame, data, err := f.pop(ctx)
		if err != nil {
			return nil, err
		}
		if frame == e.frame { // otherwise it was deleted
			frames = append(frames, data)
		}
	}
	return batch.FrameWithout(data, frames)
}

// fetcher reads records as they are in the log.
type fetcher struct {
	p       *Partition
	next    uint64 // frame to fetch next
	fetched []record
}

type record struct {
	frame uint64
	data  []byte
}

// pop returns the next record, waiting for it if necessary.
func (f *fetcher) pop(ctx context.Context) (uint64, []byte, error) {
	for len(f.fetched) == 0 {
		wait := fetchWait
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)), time.Millisecond)
		}
		if err := f.fetch(ctx, wait); err != nil {
			return 0, nil, err
		}
		if err := cmp.Or(ctx.Err(), f.p.checkOwned()); err != nil && len(f.fetched) == 0 {
			return 0, nil, err
		}
	}
	r := f.fetched[0]
	f.fetched = f.fetched[1:]
	return r.frame, r.data, nil
}

// fetch appends the next records to fetched. If there are none, it waits at most the given time.
func (f *fetcher) fetch(ctx context.Context, wait time.Duration) error {
	l := f.p.log
	r, err := l.client.Fetch(patient{ctx}, &kafka.FetchRequest{
		Topic: l.cfg.Topic, Partition: f.p.ID, Offset: offsetOf(f.next), MinBytes: 1, MaxBytes: maxFetchBytes, MaxWait: wait,
	})
	if err == nil {
		err = r.Error
	}
	switch {
	case errors.Is(err, kafka.OffsetOutOfRange):
		return f.p.moveToOldest(ctx, f)
	case err != nil:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, context.DeadlineExceeded) { // callers would take it for the end of a wait
			err = fmt.Errorf("no response within request_timeout (%v)", l.cfg.RequestTimeout)
		}
		l.transport.CloseIdleConnections()
		return fmt.Errorf("cannot read partition %d of topic %q from offset %d: %w", f.p.ID, l.cfg.Topic, offsetOf(f.next), err)
	}
	f.p.oldest.Store(frameAt(r.LogStartOffset))
	f.p.end.Store(frameAt(r.HighWatermark))
	for {
		rec, err := r.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read a record of partition %d of topic %q: %w", f.p.ID, l.cfg.Topic, err)
		}
		var data []byte
		if rec.Value != nil {
			data = make([]byte, rec.Value.Len())
			_, err = io.ReadFull(rec.Value, data)
			err = errors.Join(err, rec.Value.Close())
		}
		if rec.Key != nil {
			err = errors.Join(err, rec.Key.Close())
		}
		if err != nil {
			return err
		}
		if frame := frameAt(rec.Offset); frame >= f.next {
			f.fetched = append(f.fetched, record{frame, data})
			f.next = frame + 1
		}
	}
}

// patient is a context that hides its deadline; Done is still closed at the deadline. The client
// would apply it to the connection, which would then fail at the end of a wait without records.
type patient struct{ context.Context }

func (patient) Deadline() (time.Time, bool) { return time.Time{}, false }

// clockBefore returns the clock before a frame.
func (p *Partition) clockBefore(frame uint64) clock {
	i, _ := slices.BinarySearchFunc(p.clocks, frame, func(c clock, frame uint64) int { return cmp.Compare(c.frame, frame) })
	if i == 0 {
		return p.base
	}
	return p.clocks[i-1]
}
