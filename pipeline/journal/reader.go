package journal

import (
	"context"
	"errors"
	"slices"
	"sort"

	"trafficd/pipeline/lib/durable"
)

// Reader reads durable frames in order. It is not safe for concurrent use and need not be closed.
// Next and TryNext allocate only if buf is too small for the frame. It does not prevent frames from
// being deleted: if its next frame was deleted, it continues with the oldest one.
type Reader struct {
	journal *Journal
	seq     uint64   // of the next frame
	segment *segment // the segment that walk reads; nil before the first frame and after a deletion
	walk    walker
	wake    chan struct{} // capacity 1; signalled when a frame becomes durable or the journal is closed
}

// Reader returns a reader that starts at frame seq, which need not exist yet, or at the oldest
// frame if seq is lower.
func (j *Journal) Reader(seq uint64) *Reader {
	return &Reader{journal: j, seq: seq, wake: make(chan struct{}, 1)}
}

// Next waits until the next frame is durable and appends it to buf[:0]. The error is ctx.Err(),
// ErrClosed, a *CorruptError or an I/O error. After an error, the next call tries the same frame
// again.
func (r *Reader) Next(ctx context.Context, buf []byte) (seq uint64, frame []byte, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		seq, frame, ok, err := r.TryNext(buf)
		if ok || err != nil {
			return seq, frame, err
		}
		r.wait(ctx)
	}
}

// TryNext is like Next but does not wait: ok is false if the next frame is not durable yet.
func (r *Reader) TryNext(buf []byte) (seq uint64, frame []byte, ok bool, err error) {
	for {
		s, size, err := r.journal.locate(r)
		if s == nil || err != nil {
			return 0, nil, false, err
		}
		frame, err := r.readFrom(s, size, buf[:0])
		switch {
		case errors.Is(err, errDeleted):
			r.segment = nil
			continue
		case err != nil:
			r.journal.counters.readErrors.Inc()
			return 0, nil, false, err
		}
		r.seq++
		return r.seq - 1, frame, true, nil
	}
}

// locate returns the segment that contains the reader's next frame, and the segment's durable end,
// or nil if the frame is not durable yet.
func (j *Journal) locate(r *Reader) (*segment, int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, 0, durable.ErrClosed
	}
	r.seq = max(r.seq, j.segments[0].first)
	if r.seq > j.durable {
		return nil, 0, nil
	}
	s := r.segment
	if s == nil || r.seq < s.first || r.seq > s.last {
		i := sort.Search(len(j.segments), func(i int) bool { return j.segments[i].first > r.seq })
		s = j.segments[i-1]
	}
	return s, s.end, nil
}

// errDeleted means that the segment was deleted after locate returned it.
var errDeleted = errors.New("segment deleted")

// readFrom reads the next frame from s, whose durable end is size, or returns errDeleted.
func (r *Reader) readFrom(s *segment, size int64, dst []byte) (frame []byte, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errDeleted
	}
	if r.segment != s {
		r.walk.reset(s.file, s.path, s.segmentHeader, size)
		r.segment = s
	}
	r.walk.size = size
	for r.walk.seq < r.seq {
		if err := r.walk.skip(); err != nil {
			return nil, err
		}
	}
	return r.walk.read(dst)
}

// wait returns when the next frame may be durable, the journal is closed, or ctx is done.
func (r *Reader) wait(ctx context.Context) {
	j := r.journal
	j.mu.Lock()
	if j.closed || r.seq <= j.durable { // a commit since TryNext could not wake this reader
		j.mu.Unlock()
		return
	}
	j.waiting = append(j.waiting, r)
	j.mu.Unlock()
	select {
	case <-r.wake:
	case <-ctx.Done():
		j.mu.Lock()
		if i := slices.Index(j.waiting, r); i >= 0 {
			j.waiting = slices.Delete(j.waiting, i, i+1)
		}
		j.mu.Unlock()
	}
}

// wakeReaders wakes all waiting readers. The caller must hold mu.
func (j *Journal) wakeReaders() {
	for _, r := range j.waiting {
		select {
		case r.wake <- struct{}{}:
		default: // woken already
		}
	}
	clear(j.waiting)
	j.waiting = j.waiting[:0]
}
