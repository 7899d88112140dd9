package kafkalog

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/durable"
)

// Partition implements pipeline.Source and pipeline.Cursor for one generation of a consumer group.
// Only Bounds is safe for concurrent use.
type Partition struct {
	ID       int
	Assigned int // number of partitions that this replica owns

	log        *Log
	consumer   string
	generation *kafka.Generation
	ctx        context.Context    // done when the partition is lost or delivery stops
	hard       context.Context    // done when even the final commit must be abandoned
	leave      context.CancelFunc // leaves the group

	base      clock     // clock as of the saved cursor
	saved     uint64    // frame of the saved cursor
	state     []byte    // state of the saved cursor
	committed time.Time // time of the last acknowledged commit; zero before the first
	clocks    []clock   // clocks of the frames read since the saved cursor
	seen      *seen
	lost      bool // another replica may own the cursor

	oldest, end atomic.Uint64 // results of Bounds
}

// open reads the cursor and the batches in the idempotency window.
func (p *Partition) open() error {
	committed, err := p.log.committed(p.ctx, p.consumer)
	if err != nil {
		return err
	}
	first, end, err := p.log.bounds(p.ctx, p.ID)
	if err != nil {
		return err
	}
	p.oldest.Store(frameAt(first))
	p.end.Store(frameAt(end))
	offset := committed[p.ID].CommittedOffset
	if offset > end {
		return fmt.Errorf("partition %d of topic %q ends at offset %d, but group %q has read up to %d: accepted measurements are missing",
			p.ID, p.log.cfg.Topic, end, p.log.group(p.consumer), offset)
	}
	if p.base, p.state, err = decodeCursor(committed[p.ID].Metadata); err != nil {
		return fmt.Errorf("cannot read the cursor of group %q in partition %d: %w", p.log.group(p.consumer), p.ID, err)
	}
	if offset >= 0 {
		p.reportDeleted(offset, first)
	}
	p.base.frame = frameAt(max(offset, first))
	p.saved, p.clocks = p.base.frame, nil
	if offset < 0 { // otherwise frames that are deleted before the first commit would not be missed
		if err := p.commit(p.saved, p.base, nil); err != nil {
			return err
		}
	}
	key := delivery{p.consumer, p.ID}
	p.log.mu.Lock()
	p.seen = p.log.seen[key]
	p.log.mu.Unlock()
	if err := p.load(p.ctx); err != nil {
		return err
	}
	p.log.mu.Lock()
	p.log.seen[key] = p.seen
	p.log.mu.Unlock()
	return nil
}

// Reader implements pipeline.Source.
func (p *Partition) Reader(frame uint64) durable.Reader {
	return &reader{fetcher: fetcher{p: p, next: max(frame, p.base.frame)}, clock: p.clockBefore(frame)}
}

// Cursor implements pipeline.Source.
func (p *Partition) Cursor() durable.Cursor { return p }

// Bounds implements pipeline.Source.
func (p *Partition) Bounds() (oldest, next uint64) { return p.oldest.Load(), p.end.Load() }

// Load implements pipeline.Cursor, but only the delivery's goroutine may call it.
func (p *Partition) Load() (frame uint64, state []byte) { return p.saved, p.state }

// Save implements pipeline.Cursor.
func (p *Partition) Save(frame uint64, state []byte) error {
	at := p.clockBefore(frame)
	if err := p.commit(frame, at, state); err != nil {
		return err
	}
	p.saved, p.state = frame, state
	p.base = at
	p.base.frame = frame
	p.clocks = slices.DeleteFunc(p.clocks, func(c clock) bool { return c.frame < frame })
	p.seen.expire(at.highest - int64(p.log.window))
	return nil
}

// Confirm implements pipeline.Source.
func (p *Partition) Confirm() error {
	if time.Since(p.committed) < p.log.cfg.sessionTimeout/2 {
		return p.checkOwned()
	}
	return p.commit(p.saved, p.base, p.state)
}

// checkOwned returns an error if another replica may own the partition.
func (p *Partition) checkOwned() error {
	if p.lost || p.ctx.Err() != nil {
		return p.errLost()
	}
	return nil
}

func (p *Partition) errLost() error {
	return fmt.Errorf("this replica has lost partition %d: %w", p.ID, durable.ErrClosed)
}

// maxCommitAttempts is the maximum number of attempts to commit if the coordinator returns
// temporary errors.
const maxCommitAttempts = 20

// commit saves the cursor as the group's offset and metadata. It retries if the coordinator returns
// a temporary error. If there is no response, or the coordinator has a different generation, the
// partition is lost.
func (p *Partition) commit(frame uint64, at clock, state []byte) (err error) {
	if p.lost { // not checkOwned, because ctx is already done when a delivery saves its cursor on shutdown
		return p.errLost()
	}
	metadata := encodeCursor(at, state)
	for range maxCommitAttempts {
		ctx, cancel := context.WithTimeout(p.hard, p.log.cfg.RequestTimeout)
		err = p.commitOnce(ctx, frame, metadata)
		cancel()
		switch {
		case err == nil:
			p.committed = time.Now()
			return nil
		case errors.Is(err, kafka.OffsetMetadataTooLarge):
			return fmt.Errorf("cannot save a cursor of %d bytes: %w (raise offset.metadata.max.bytes on the brokers)", len(metadata), err)
		case !errors.As(err, new(kafka.Error)), errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.UnknownMemberId),
			errors.Is(err, kafka.FencedInstanceID), errors.Is(err, kafka.RebalanceInProgress):
			p.lost = true
			p.leave()
			return fmt.Errorf("%w: %w", p.errLost(), err)
		}
		p.log.transport.CloseIdleConnections() // so that the next attempt looks up the coordinator again
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("cannot save the cursor of partition %d in group %q: %w", p.ID, p.log.group(p.consumer), err)
}

func (p *Partition) commitOnce(ctx context.Context, frame uint64, metadata string) error {
	topic := p.log.cfg.Topic
	r, err := p.log.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: p.generation.GroupID, GenerationID: int(p.generation.ID), MemberID: p.generation.MemberID,
		Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: p.ID, Offset: offsetOf(frame), Metadata: metadata}}},
	})
	if err != nil {
		return err
	}
	if len(r.Topics[topic]) != 1 {
		return errors.New("the response does not contain the partition")
	}
	return r.Topics[topic][0].Error
}

const cursorVersion = 1

var (
	errCursor       = errors.New("invalid cursor")
	compressor, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(16<<20), zstd.WithDecoderConcurrency(1))
)

// encodeCursor returns the metadata of a commit. It is base64-encoded, because brokers store
// metadata as text.
func encodeCursor(at clock, state []byte) string {
	b := []byte{cursorVersion}
	b = binary.AppendVarint(b, at.highest)
	b = binary.AppendVarint(b, at.stamp)
	b = append(b, state...)
	return base64.RawStdEncoding.EncodeToString(compressor.EncodeAll(b, nil))
}

func decodeCursor(metadata string) (at clock, state []byte, err error) {
	if metadata == "" {
		return clock{}, nil, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(metadata)
	if err == nil {
		b, err = decompressor.DecodeAll(b, nil)
	}
	if err != nil {
		return clock{}, nil, fmt.Errorf("%w: %w", errCursor, err)
	}
	r := batch.NewWireReader(b, errCursor)
	r.Version(cursorVersion)
	at.highest, at.stamp = r.Varint(), r.Varint()
	state = r.Bytes(r.Left())
	return at, state, r.Err()
}

// moveToOldest moves f to the oldest remaining frame. It is called when the next frame of f has
// been deleted.
func (p *Partition) moveToOldest(ctx context.Context, f *fetcher) error {
	first, err := dial.Offset(ctx, p.log.client, p.log.cfg.Topic, p.ID, kafka.FirstOffset)
	if err != nil {
		return err
	}
	if frameAt(first) <= f.next {
		return fmt.Errorf("partition %d of topic %q ends before offset %d: accepted measurements are missing",
			p.ID, p.log.cfg.Topic, offsetOf(f.next))
	}
	if f.next >= p.base.frame { // earlier frames were delivered; they are read again only for their Batch-Ids
		p.reportDeleted(offsetOf(f.next), first)
	}
	f.next = frameAt(first)
	return nil
}

// reportDeleted counts and logs the frames with offsets in [from, to), which were deleted before
// they were delivered. After a restart they may be reported again.
func (p *Partition) reportDeleted(from, to int64) {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	d := p.log.deleted[delivery{p.consumer, p.ID}]
	if from = max(from, d.to); from >= to {
		return
	}
	p.log.deleted[delivery{p.consumer, p.ID}] = deleted{d.frames + to - from, to}
	deletedTotal.WithLabelValues(p.consumer).Add(float64(to - from))
	p.log.log.Error().Int("partition", p.ID).Str("consumer", p.consumer).Int64("from", from).Int64("to", to-1).
		Msg("frames in the log were deleted before they were delivered; raise the topic's retention.ms")
}
