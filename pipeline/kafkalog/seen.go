package kafkalog

import (
	"context"
	"fmt"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
)

// seen holds the batch IDs of a contiguous range of frames in a partition. It remains valid while
// other replicas own the partition, because it depends only on the log.
type seen struct {
	from, to uint64              // the range of frames: from ≤ frame < to
	batches  map[batch.ID][]mark // the frames of each batch, ascending
	order    []batch.ID          // the batch IDs in the order of their frames
	highest  int64               // time of the last frame
}

// mark identifies a frame of a batch.
type mark struct {
	frame uint64
	time  int64  // highest received_at up to and including the frame
	sum   uint64 // see batch.FrameSum
}

// note adds a frame, unless it was added before.
func (s *seen) note(id batch.ID, m mark) {
	if m.frame < s.to {
		return
	}
	s.batches[id] = append(s.batches[id], m)
	s.order = append(s.order, id)
	s.to, s.highest = m.frame+1, m.time
}

// pass moves past a record that is not a frame.
func (s *seen) pass(frame uint64) { s.to = max(s.to, frame+1) }

// earlierFrames returns the frames of a batch that precede m in the log by at most window.
func (s *seen) earlierFrames(id batch.ID, m mark, window time.Duration) []mark {
	marks := s.batches[id]
	for len(marks) > 0 && marks[len(marks)-1].frame >= m.frame {
		marks = marks[:len(marks)-1]
	}
	for len(marks) > 0 && m.time-marks[0].time > int64(window) {
		marks = marks[1:]
	}
	return marks
}

// expire removes the frames whose time is before the given one.
func (s *seen) expire(before int64) {
	for len(s.order) > 0 {
		id := s.order[0]
		marks := s.batches[id]
		if marks[0].time >= before {
			return
		}
		s.order, s.from = s.order[1:], marks[0].frame+1
		if len(marks) == 1 {
			delete(s.batches, id)
		} else {
			s.batches[id] = marks[1:]
		}
	}
}

// load sets p.seen to the batches from the start of the window to the cursor. It reads only frames
// that p.seen does not cover yet.
func (p *Partition) load(ctx context.Context) error {
	if p.base.highest == 0 { // no frame has ever been read
		p.seen = newSeen(p.base.frame)
		return nil
	}
	oldest := max(0, p.base.highest-int64(p.log.window))
	start, err := dial.Offset(ctx, p.log.client, p.log.cfg.Topic, p.ID, oldest/int64(time.Millisecond))
	if err != nil {
		return err
	}
	from := frameAt(start)
	if start < 0 || from > p.base.frame { // no record before the cursor is in the window
		from = p.base.frame
	}
	if p.seen == nil || p.seen.from > from || p.seen.to < from {
		p.seen = newSeen(from)
	}
	began, r := time.Now(), fetcher{p: p, next: p.seen.to}
	for r.next < p.base.frame || len(r.fetched) > 0 {
		rec, err := r.pop(ctx)
		if err != nil {
			return err
		}
		if rec.frame >= p.base.frame {
			break
		}
		h, err := p.check(rec)
		switch {
		case isRecordError(err): // the delivery has passed it
			p.seen.pass(rec.frame)
		case err != nil:
			return fmt.Errorf("cannot read the batches of the idempotency window: %w: upgrade this replica", err)
		default:
			p.seen.note(h.ID, mark{rec.frame, max(p.seen.highest, batch.FrameReceivedAt(rec.data)), batch.FrameSum(rec.data)})
		}
	}
	p.log.log.Debug().Int("partition", p.ID).Str("consumer", p.consumer).Uint64("frames", p.base.frame-from).Dur("took", time.Since(began)).
		Msg("read the batches of the idempotency window from the log")
	return nil
}

func newSeen(from uint64) *seen {
	return &seen{from: from, to: from, batches: map[batch.ID][]mark{}}
}

// frameAt returns the number of the frame at an offset. Frames are numbered from 1, as in the
// journal on disk.
func frameAt(offset int64) uint64 { return uint64(offset) + 1 }

func offsetOf(frame uint64) int64 { return int64(frame) - 1 }
