package journal

import (
	"bufio"
	"fmt"
	"time"
)

// tendEvery is how often the writer looks at the disk's free space, and tries to mend a failed journal.
const tendEvery = time.Second

// writer is what only the goroutine of run touches. The segment's end and last are changed by it alone too, under
// Journal.mu for the readers' sake.
type writer struct {
	active *segment
	dirty  bool // behind active.end there may be reserved space, or bytes of frames that nobody was promised
	out    *bufio.Writer
	sink   sink
	header [frameHeaderBytes]byte
}

// run is the one goroutine that writes frames: Open starts it; Close stops it and waits for it.
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

// flush writes until nothing waits. A fault voids all that waits, and is mended at once if the disk lets us.
func (j *Journal) flush() {
	for batch := j.take(); len(batch) > 0; batch = j.take() {
		j.write(batch)
		clear(batch) // the entries are their callers' now
	}
	if j.failure != nil {
		j.heal()
	}
}

func (j *Journal) take() []*Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.queue.take()
}

// write makes a batch durable: all of it with one sync, unless it goes over the end of a segment.
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
		commitSeconds.UpdateDuration(start)
		if err != nil {
			commitErrors.Inc()
			j.fail(err)
			j.settle(batch[:n], j.void(n))
		} else {
			j.publish(n, end)
			j.settle(batch[:n], nil)
		}
		batch = batch[n:]
	}
	voidedTotal.Add(len(batch))
	j.settle(batch, ErrVoided)
}

// place returns how many entries of the batch the active segment takes, at least one; it begins a new segment if need be.
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

// commit writes the entries behind the durable end and syncs them. It returns the end of the last block that they take.
func (w *writer) commit(batch []*Entry) (end int64, err error) {
	s := w.active
	w.dirty = true
	w.begin(s)
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
	// The promise of the package: no verdict before this returns.
	if err := s.file.Datasync(); err != nil {
		return 0, fmt.Errorf("cannot sync %s: %w", s.path, err)
	}
	return w.sink.off, nil
}

// publish lets the readers see n more frames of the active segment. It comes before the verdicts, so that a caller who knows of
// its frame can read it.
func (j *Journal) publish(n int, end int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.writer.active
	j.bytes += end - s.end
	s.end = end
	s.last += uint64(n)
	j.durable = s.last
	j.wakeReaders()
	j.gauge()
	framesTotal.Add(n)
	commitsTotal.Inc()
}

// fail refuses new entries and takes back the seqs of those that are about to be voided.
func (j *Journal) fail(cause error) {
	j.log.Error().Err(cause).Msg("the journal has failed; frames that wait are voided")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = cause
	j.next = j.durable + 1
}

// void removes what a failed commit may have left behind the durable end, and returns the verdict for its n entries. After
// a failed sync the kernel may call its pages clean though the disk never got them, so the segment is not written to again.
func (j *Journal) void(n int) error {
	if err := j.writer.cut(); err != nil {
		voidErrors.Inc()
		j.log.Error().Err(err).Int("frames", n).Msg("cannot void frames; after a restart they may be there")
		return ErrUnknown
	}
	voidedTotal.Add(n)
	return ErrVoided
}

// heal tries to make a failed journal work again: nothing behind the durable end, and a new segment.
func (j *Journal) heal() {
	err := j.roll()
	if err != nil {
		segmentErrors.Inc()
	} else {
		j.log.Info().Str("file", j.writer.active.path).Msg("the journal writes again")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = err
}

// cut makes the active segment end with its last durable frame. It is done once after each write at most: as soon as the
// next segment may exist, this one's size must not change again, not even for a moment.
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

// roll begins a new segment behind the active one, or in place of it if it is empty. The active one ends where its frames
// end before there is another: the header of the next one says how long it is.
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
	if old.empty() { // its name is the new one's now, and no reader ever entered it
		j.segments = j.segments[:len(j.segments)-1]
		j.bytes -= old.end
		_ = old.close() // nothing of it is needed
	}
	j.segments = append(j.segments, s)
	j.bytes += s.end
	j.writer.active = s
	j.gauge()
	return nil
}

func (j *Journal) tend() {
	if j.failure != nil {
		j.heal()
	}
	j.lookAtDisk()
}

// lookAtDisk keeps the last answer if the disk gives none.
func (j *Journal) lookAtDisk() {
	free, err := j.fs.Free(j.cfg.Dir)
	if err != nil {
		diskFreeErrors.Inc()
		return
	}
	low := free < j.cfg.MinFreeBytes
	j.mu.Lock()
	changed := low != j.diskLow
	j.diskLow = low
	j.mu.Unlock()
	if changed {
		j.log.Warn().Bool("low", low).Int64("free_bytes", free).Int64("min_free_bytes", j.cfg.MinFreeBytes).
			Msg("free space on the journal's disk has crossed its limit")
	}
}

// begin turns the output to the end of s.
func (w *writer) begin(s *segment) {
	w.sink = sink{file: s.file, off: s.end}
	if w.out == nil {
		// Small frames share a write; of a large one only the first part is copied, the rest goes straight to the file.
		w.out = bufio.NewWriterSize(&w.sink, 64<<10)
		return
	}
	w.out.Reset(&w.sink)
}

var zeros [blockBytes]byte

func (w *writer) pad(to int64) {
	at := w.sink.off + int64(w.out.Buffered())
	_, _ = w.out.Write(zeros[:alignUp(at, to)-at])
}

// sink writes to a file from an offset on.
type sink struct {
	file File
	off  int64
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.off)
	s.off += int64(n)
	return n, err
}
