package journal

import (
	"bufio"
	"fmt"
	"time"

	"trafficd/pipeline/metrics"
)

// tendEvery is the interval at which the writer checks the free disk space while idle, and retries after a failure.
const tendEvery = time.Second

// writer is used only by the goroutine of run, which alone changes the segment's end and last, too, holding Journal.mu for the
// readers.
type writer struct {
	active *segment
	dirty  bool // there may be reserved space or unacknowledged bytes after active.end
	out    *bufio.Writer
	sink   sink
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
			j.tend()
		case <-j.stop:
			j.flush()
			return
		}
	}
}

// flush writes until the queue is empty. An error voids all waiting entries; a new segment is then tried at once.
func (j *Journal) flush() {
	for {
		j.mu.Lock()
		batch := j.queue.take()
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
	for len(batch) > 0 && j.failure == nil {
		n, err := j.place(batch)
		if err != nil {
			segmentErrors.Inc()
			j.fail(err)
			break // nothing of it was written
		}
		start := time.Now()
		end, err := j.writer.commit(batch[:n])
		metrics.Since(commitSeconds, start)
		if err != nil {
			commitErrors.Inc()
			j.fail(err)
			j.settle(batch[:n], j.void(n))
		} else {
			j.publish(n, end)
			j.lookAtDisk() // before the frames leave the queue: they are always counted
			j.settle(batch[:n], nil)
		}
		batch = batch[n:]
	}
	voidedTotal.Add(float64(len(batch)))
	j.settle(batch, ErrVoided)
}

// place returns how many entries of the batch, at least one, fit into the active segment. It starts a new one if necessary.
func (j *Journal) place(batch []*Entry) (int, error) {
	if n := j.writer.fit(batch, j.cfg.SegmentBytes); n > 0 {
		return n, nil
	}
	if err := j.roll(); err != nil {
		return 0, err
	}
	return j.writer.fit(batch, j.cfg.SegmentBytes), nil
}

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

// commit writes the entries after the durable end and syncs them. It returns the end of their last block.
func (w *writer) commit(batch []*Entry) (end int64, err error) {
	s := w.active
	w.dirty = true
	w.sink = sink{file: s.file, off: s.end}
	if w.out == nil { // small frames share a write; most of a large one is not copied
		w.out = bufio.NewWriterSize(nil, 64<<10)
	}
	w.out.Reset(&w.sink)
	for i, e := range batch {
		h := frameHeader{seq: s.last + 1 + uint64(i), index: uint32(i)}
		h.encode(&w.header, s.salt, e.Data)
		w.pad(frameAlign)
		_, _ = w.out.Write(w.header[:]) // bufio keeps the first error for Flush
		_, _ = w.out.Write(e.Data)
	}
	w.pad(blockBytes)
	if err := w.out.Flush(); err != nil {
		return 0, fmt.Errorf("cannot write to %s: %w", s.path, err)
	}
	// No entry is settled before this returns.
	if err := s.file.Datasync(); err != nil {
		return 0, fmt.Errorf("cannot sync %s: %w", s.path, err)
	}
	return w.sink.off, nil
}

// publish makes n more frames of the active segment visible to readers. It is called before the entries are settled, so that
// their callers can read them.
func (j *Journal) publish(n int, end int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.writer.active
	j.bytes += end - s.end
	s.end = end
	s.last += uint64(n)
	j.durable = s.last
	j.wakeReaders()
	framesTotal.Add(float64(n))
	commitsTotal.Inc()
}

// fail rejects new entries and releases the seqs of those that are about to be voided.
func (j *Journal) fail(cause error) {
	j.log.Error().Err(cause).Msg("the journal has failed; voiding waiting frames")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = cause
	j.next = j.durable + 1
}

// void removes what a failed commit may have left after the durable end and returns the outcome of its n entries. After a
// failed sync the kernel may mark pages clean that are not on disk, so the segment is not written to again.
func (j *Journal) void(n int) error {
	if err := j.writer.cut(); err != nil {
		voidErrors.Inc()
		j.log.Error().Err(err).Int("frames", n).Msg("cannot void frames; they may exist after a restart")
		return ErrUnknown
	}
	voidedTotal.Add(float64(n))
	return ErrVoided
}

// heal tries to recover a failed journal with a new segment.
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

// cut makes the active segment end with its last durable frame, at most once after each write: as soon as the next segment may
// exist, the size of this one must not change again, not even temporarily.
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

// roll starts a new segment after the active one, or replaces an empty one. The active one is cut first, because the header of
// the new one contains its size.
func (j *Journal) roll() error {
	if err := j.writer.cut(); err != nil {
		return err
	}
	old := j.writer.active
	h := segmentHeader{first: old.last + 1, prevFirst: old.first, prevBytes: old.end}
	if old.empty() {
		h.prevFirst, h.prevBytes = old.prevFirst, old.prevBytes
	}
	s, err := createSegment(j.fs, j.cfg.Dir, h, j.cfg.SegmentBytes)
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

func (j *Journal) tend() {
	if j.failure != nil {
		j.heal()
	}
	j.lookAtDisk()
}

// lookAtDisk updates free. It keeps the last value if the free space is unknown.
func (j *Journal) lookAtDisk() {
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

func (w *writer) pad(to int64) {
	at := w.sink.off + int64(w.out.Buffered())
	_, _ = w.out.Write(zeros[:alignUp(at, to)-at])
}

// sink is an io.Writer at an offset of a file.
type sink struct {
	file File
	off  int64
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.off)
	s.off += int64(n)
	return n, err
}
