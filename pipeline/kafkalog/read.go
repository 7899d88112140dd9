package kafkalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/durable"
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
	rec, err := r.pop(ctx)
	if err != nil {
		return 0, nil, err
	}
	return r.read(ctx, rec, buf)
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
	rec, _ := r.pop(r.p.ctx)
	seq, frame, err = r.read(r.p.ctx, rec, buf)
	return seq, frame, err == nil || isRecordError(err), err
}

// read drops repeated rows and sets received_at. A record that is not an intact frame has no effect
// on the clock and on later frames.
func (r *reader) read(ctx context.Context, rec record, buf []byte) (uint64, []byte, error) {
	frame, data := rec.frame, rec.data
	fail := func(err error) (uint64, []byte, error) {
		r.next, r.fetched = frame, nil // the next call reads the frame again
		return 0, nil, fmt.Errorf("cannot read frame %d of partition %d of the log: %w", frame, r.p.ID, err)
	}
	h, err := r.p.check(rec)
	switch {
	case isRecordError(err):
		r.p.seen.pass(frame)
		return frame, nil, err
	case err != nil:
		return fail(fmt.Errorf("%w: upgrade this replica", err))
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
		rec, err := f.pop(ctx)
		if err != nil {
			return nil, err
		}
		if rec.frame == e.frame { // otherwise it was deleted
			frames = append(frames, rec.data)
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
	frame  uint64
	data   []byte
	header []byte // see headerOf; nil if there is none
}

// frameHeader is the key of the header of all frames in the log.
const frameHeader = "trafficd-frame"

// headerOf returns the value of a frame's header: the version of the frame (1 byte) and the
// xxHash64 of the frame (8 bytes). Later versions must not change this, so that older programs
// recognise their frames and wait.
func headerOf(frame []byte) []byte {
	return binary.LittleEndian.AppendUint64([]byte{frame[0]}, xxhash.Sum64(frame))
}

// VersionError reports an intact frame that a different version of this program wrote.
type VersionError struct {
	Topic     string
	Partition int
	Offset    int64
	Version   byte
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the record at offset %d of partition %d of topic %q has frame version %d, but this program reads version %d",
		e.Offset, e.Partition, e.Topic, e.Version, batch.FrameVersion)
}

// check returns the header of a frame. It returns a *VersionError for an intact frame of another
// version, and a *durable.RecordError for a record that is not an intact frame.
func (p *Partition) check(r record) (h batch.Header, err error) {
	switch {
	case r.header == nil:
		err = fmt.Errorf("it has no header %s, so another program wrote it", frameHeader)
	case len(r.data) == 0 || !bytes.Equal(r.header, headerOf(r.data)):
		err = errors.New("wrong checksum")
	case r.data[0] != batch.FrameVersion:
		return h, &VersionError{p.log.cfg.Topic, p.ID, offsetOf(r.frame), r.data[0]}
	default:
		h, err = batch.FrameHeader(r.data)
	}
	if err != nil {
		err = &durable.RecordError{Topic: p.log.cfg.Topic, Partition: p.ID, Offset: offsetOf(r.frame), Data: r.data, Reason: err}
	}
	return h, err
}

func isRecordError(err error) bool { return errors.As(err, new(*durable.RecordError)) }

// pop returns the next record, waiting for it if necessary.
func (f *fetcher) pop(ctx context.Context) (record, error) {
	for len(f.fetched) == 0 {
		wait := fetchWait
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)), time.Millisecond)
		}
		if err := f.fetch(ctx, wait); err != nil {
			return record{}, err
		}
		if err := cmp.Or(ctx.Err(), f.p.checkOwned()); err != nil && len(f.fetched) == 0 {
			return record{}, err
		}
	}
	r := f.fetched[0]
	f.fetched = f.fetched[1:]
	return r, nil
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
	// The stream would omit the markers of transactions, which only other programs write. Their offsets
	// must not be missing.
	readers := []kafka.RecordReader{r.Records}
	if stream, ok := r.Records.(*protocol.RecordStream); ok {
		readers = stream.Records
	}
	for _, records := range readers {
		if err := f.append(records); err != nil {
			return fmt.Errorf("cannot read a record of partition %d of topic %q: %w", f.p.ID, l.cfg.Topic, err)
		}
	}
	return nil
}

// append appends records to fetched.
func (f *fetcher) append(records kafka.RecordReader) error {
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
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
		var header []byte
		for _, h := range rec.Headers {
			if h.Key == frameHeader {
				header = h.Value
			}
		}
		if frame := frameAt(rec.Offset); frame >= f.next {
			f.fetched = append(f.fetched, record{frame, data, header})
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
