package journal

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"trafficd/pipeline/metrics"
)

// tendEvery is the interval at which the writer checks the free disk space while idle, and retries
// after a failure.
const tendEvery = time.Second

// writer is used only by the goroutine of run. That goroutine alone changes the segment's end and
// last, and holds Journal.mu for the readers while it does.
type writer struct {
	active *segment
	dirty  bool // there may be reserved space, older contents or unacknowledged bytes after active.end
	out    *bufio.Writer
	file   io.OffsetWriter
	header [frameHeaderBytes]byte
}

// run is the goroutine that writes frames. Open starts it; Close stops it and waits for it.
func (j *Journal) run() {
	defer close(j.done)
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-j.wake:
			j.flush()
		case <-tick.C:
			if j.failure != nil {
				j.heal()
			}
			j.updateFree()
		case <-j.stop:
			j.flush()
			_ = j.writer.cut() // to spare the next start reading it; all frames are durable
			return
		}
	}
}

// flush writes until the queue is empty. After an error, which voids all waiting entries, it tries
// a new segment at once.
func (j *Journal) flush() {
	for {
		j.mu.Lock()
		batch := j.queue.waiting
		j.queue.waiting, j.queue.spare = j.queue.spare[:0], batch
		j.mu.Unlock()
		if len(batch) == 0 {
			break
		}
		j.write(batch)
		clear(batch) // the entries belong to their callers again
	}
	if j.failure != nil {
		j.heal()
	}
}

// write makes a batch durable, with one sync unless it spans segments.
func (j *Journal) write(batch []*Entry) {
	w := &j.writer
	for len(batch) > 0 && j.failure == nil {
		n := w.fit(batch, j.cfg.SegmentBytes)
		if n == 0 {
			if err := j.roll(); err != nil {
				segmentErrors.Inc()
				j.fail(err)
				break // nothing of it was written
			}
			n = w.fit(batch, j.cfg.SegmentBytes)
		}
		start := time.Now()
		end, err := w.commit(batch[:n])
		metrics.Since(commitSeconds, start)
		j.committed(start, batch[:n], err)
		if err == nil {
			j.mu.Lock() // visible before the entries are settled, so that their callers can read them
			j.bytes += end - w.active.end
			w.active.end = end
			w.active.last += uint64(n)
			j.durable = w.active.last
			for _, e := range batch[:n] {
				j.rows += int64(e.Rows)
			}
			j.wakeReaders()
			j.mu.Unlock()
			framesTotal.Add(float64(n))
			commitsTotal.Inc()
			j.updateFree() // before the frames leave the queue: they are always counted
		} else {
			commitErrors.Inc()
			j.fail(err)
			// After a failed sync the kernel may mark pages clean that are not on disk, so the
			// segment is not written to again.
			if cutErr := w.cut(); cutErr != nil {
				voidErrors.Inc()
				j.log.Error().Err(cutErr).Int("frames", n).Msg("cannot void frames; they may exist after a restart")
				err = ErrUnknown
			} else {
				voidedTotal.Add(float64(n))
				err = ErrVoided
			}
		}
		j.settle(batch[:n], err)
		batch = batch[n:]
	}
	voidedTotal.Add(float64(len(batch)))
	j.settle(batch, ErrVoided)
}

// fit returns how many entries of the batch fit into the active segment; at least one if it is
// empty.
func (w *writer) fit(batch []*Entry, limit int64) int {
	end := w.active.end
	for i, e := range batch {
		end = alignUp(end, frameAlign) + frameHeaderBytes + int64(len(e.Data))
		if end > limit && (i > 0 || !w.active.empty()) {
			return i
		}
	}
	return len(batch)
}

// commit writes the entries after the durable end and syncs them. It returns the end of their last
// block.
func (w *writer) commit(batch []*Entry) (end int64, err error) {
	s := w.active
	w.dirty = true
	w.file = *io.NewOffsetWriter(s.file, s.end)
	if w.out == nil { // small frames share a write; most of a large one is not copied
		w.out = bufio.NewWriterSize(nil, 64<<10)
	}
	w.out.Reset(&w.file)
	end = s.end
	put := func(p []byte) {
		_, _ = w.out.Write(p) // bufio keeps the first error for Flush
		end += int64(len(p))
	}
	for i, e := range batch {
		h := frameHeader{seq: s.last + 1 + uint64(i), index: uint32(i)}
		h.encode(&w.header, s.salt, e.Data)
		put(zeros[:alignUp(end, frameAlign)-end])
		put(w.header[:])
		put(e.Data)
	}
	put(zeros[:alignUp(end, blockBytes)-end])
	if err := w.out.Flush(); err != nil {
		return 0, fmt.Errorf("cannot write to %s: %w", s.path, err)
	}
	// No entry is settled before this returns.
	if err := s.file.Datasync(); err != nil {
		return 0, fmt.Errorf("cannot sync %s: %w", s.path, err)
	}
	return end, nil
}

// fail rejects new entries and releases the seqs of those that are about to be voided.
func (j *Journal) fail(cause error) {
	j.log.Error().Err(cause).Msg("the journal has failed; voiding waiting frames")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = cause
	j.next = j.durable + 1
}

func (j *Journal) heal() {
	err := j.roll()
	if err != nil {
		segmentErrors.Inc()
	} else {
		j.log.Info().Str("file", j.writer.active.path).Msg("the journal has recovered")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = err
}

// cut makes the active segment end with its last durable frame, at most once after each write: as
// soon as the next segment may exist, the size of this one must not change again, not even
// temporarily.
func (w *writer) cut() error {
	if !w.dirty {
		return nil
	}
	if err := w.active.cut(w.active.end); err != nil {
		return err
	}
	w.dirty = false
	return nil
}

// roll starts a new segment after the active one, or replaces an empty one. The active one is cut
// first, because the header of the new one contains its size.
func (j *Journal) roll() error {
	if err := j.writer.cut(); err != nil {
		return err
	}
	old := j.writer.active
	h := segmentHeader{first: old.last + 1, prevFirst: old.first, prevBytes: old.end}
	if old.empty() {
		h.prevFirst, h.prevBytes = old.prevFirst, old.prevBytes
	}
	var spare string
	j.mu.Lock()
	if n := len(j.spares); n > 0 {
		spare, j.spares = j.spares[n-1], j.spares[:n-1]
	}
	j.mu.Unlock()
	s, err := createSegment(j.fs, j.cfg.Dir, spare, h, j.cfg.SegmentBytes)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if old.empty() { // the new one has its name, and no reader has used it
		j.segments = j.segments[:len(j.segments)-1]
		j.bytes -= old.end
		_ = old.close() // it is empty
	}
	j.segments = append(j.segments, s)
	j.bytes += s.end
	j.writer.active = s
	return nil
}

// updateFree measures the free disk space. It keeps the last value if that fails.
func (j *Journal) updateFree() {
	free, err := j.writer.active.file.Free()
	if err != nil {
		diskFreeErrors.Inc()
		return
	}
	j.mu.Lock()
	j.free = free
	low := j.low(roomFor(0))
	changed := low != j.diskLow
	j.diskLow = low
	j.mu.Unlock()
	if changed {
		j.log.Warn().Bool("low", low).Int64("free_bytes", free).Int64("min_free_bytes", j.cfg.MinFreeBytes).
			Msg("free space on the journal's disk has crossed min_free_bytes")
	}
}

var zeros [blockBytes]byte

// Entry is a frame to be written. It can be reused after Wait, without further allocations.
type Entry struct {
	// Data is the payload. It must not be changed from a successful Enqueue until Wait returns.
	Data []byte
	// Seq is the frame's number in the journal, dense from 1, set by Enqueue. It is valid only if
	// Wait returns nil; the seqs of voided frames are reused.
	Seq uint64
	// Rows is what the frame adds to Journal.Rows.
	Rows int

	verdict chan error // capacity 1: the writer never waits for a caller
}

// Wait returns the outcome of the entry. It must be called exactly once after each successful
// Enqueue. If it returns nil, the frame is durable. See ErrVoided and ErrUnknown for failures.
func (e *Entry) Wait() error { return <-e.verdict }

// Open prepares e for Wait. Every implementation of Enqueue calls it, and then Settle once.
func (e *Entry) Open() {
	if e.verdict == nil {
		e.verdict = make(chan error, 1)
	}
}

// Settle makes Wait return err.
func (e *Entry) Settle(err error) { e.verdict <- err }

// Enqueue queues e for the next commit, without waiting for the disk. Frames are in the order of
// the calls. It fails with ErrTooLarge, ErrBusy, ErrFull, ErrDiskLow, ErrFailed or ErrClosed; Wait
// must not be called then.
func (j *Journal) Enqueue(e *Entry) error {
	if len(e.Data) > j.cfg.MaxFrameBytes {
		return ErrTooLarge
	}
	e.Open()
	room := roomFor(len(e.Data))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.unready(room); err != nil {
		if err == ErrFull {
			j.refused = room // Ready must report this too
		}
		return err
	}
	if j.queue.depth >= j.cfg.QueueEntries || j.queue.bytes+int64(len(e.Data)) > j.cfg.QueueBytes {
		return ErrBusy
	}
	e.Seq = j.next
	j.next++
	j.queue.waiting = append(j.queue.waiting, e)
	j.queue.count(+1, e)
	select {
	case j.wake <- struct{}{}:
	default: // the writer sees this entry together with the one that woke it
	}
	return nil
}

// queue holds the entries that wait for the writer and counts those that are not settled. Guarded
// by Journal.mu.
type queue struct {
	waiting []*Entry
	spare   []*Entry // the slice that the writer used last

	depth int   // entries that are not settled
	bytes int64 // their payloads
	room  int64 // upper bound of what they add to the folder
}

func (q *queue) count(sign int, e *Entry) {
	q.depth += sign
	q.bytes += int64(sign) * int64(len(e.Data))
	q.room += int64(sign) * roomFor(len(e.Data))
}

// settle sends the verdict to every entry, in order. The entries then belong to their callers
// again.
func (j *Journal) settle(batch []*Entry, verdict error) {
	j.mu.Lock()
	for _, e := range batch {
		j.queue.count(-1, e)
	}
	j.mu.Unlock()
	for _, e := range batch {
		e.verdict <- verdict
	}
}
