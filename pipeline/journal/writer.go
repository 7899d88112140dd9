package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/metrics"
)

// maintenanceInterval is the interval at which an idle writer measures the free disk space, looks
// for its file and, after a failure, tries to create a new segment.
const maintenanceInterval = time.Second

// writer is the state of the goroutine that executes run. Only that goroutine changes end and last
// of the active segment, while holding Journal.mu.
type writer struct {
	active *segment
	dirty  bool          // active was written to: there may be reserved space, old contents or voided frames after its end
	out    *bufio.Writer // joins small frames into one write; most of a large frame bypasses the buffer
	file   io.OffsetWriter
	header [frameHeaderBytes]byte
}

// run is the goroutine that writes frames. Open starts it; Close stops it and waits for it.
func (j *Journal) run() {
	defer close(j.done)
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-j.wake:
			j.flush()
		case <-tick.C:
			if j.failure != nil {
				j.heal()
			} else if err := j.writer.findFile(j.fs); err != nil {
				j.fail(err)
			}
			j.updateFree()
		case <-j.stop:
			j.flush()
			_ = j.writer.truncate() // so that the next start need not read what follows the frames
			return
		}
	}
}

// flush writes until the queue is empty. An error voids all waiting entries; flush then tries to
// create a new segment.
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

// write makes a batch of entries durable, with one sync for each segment that it writes to, and
// settles them.
func (j *Journal) write(batch []*durable.Entry) {
	w := &j.writer
	for len(batch) > 0 && j.failure == nil {
		n := w.fit(batch, j.cfg.SegmentBytes)
		if n == 0 {
			if err := j.roll(); err != nil {
				j.counters.segmentErrors.Inc()
				j.fail(err)
				break // none of the remaining entries was written
			}
			n = w.fit(batch, j.cfg.SegmentBytes)
		}
		start := time.Now()
		end, err := w.commit(batch[:n])
		metrics.Since(j.counters.commitSeconds, start)
		if j.committed != nil {
			j.committed(start, batch[:n], err)
		}
		if err == nil {
			j.mu.Lock() // before the entries are settled, so that the frames can be read when Wait returns
			j.bytes += end - w.active.end
			w.active.end = end
			w.active.last += uint64(n)
			j.durable = w.active.last
			j.wakeReaders()
			j.mu.Unlock()
			j.counters.frames.Add(float64(n))
			j.counters.commits.Inc()
			j.updateFree() // before settle removes the frames from the queue, so that low always counts them
		} else {
			j.counters.commitErrors.Inc()
			j.fail(err)
			// After a failed sync the kernel may mark pages clean that are not on disk, so the
			// segment is not written to again.
			if truncateErr := w.truncate(); truncateErr != nil {
				j.counters.voidErrors.Inc()
				j.log.Error().Err(truncateErr).Int("frames", n).Msg("cannot void frames; they may exist after a restart")
				err = durable.ErrUnknown
			} else {
				j.counters.voided.Add(float64(n))
				err = durable.ErrVoided
			}
		}
		j.complete(batch[:n], err)
		batch = batch[n:]
	}
	j.counters.voided.Add(float64(len(batch)))
	j.complete(batch, durable.ErrVoided)
}

// fit returns the number of entries that fit into the active segment: at least one if it is empty.
func (w *writer) fit(batch []*durable.Entry, limit int64) int {
	end := w.active.end
	for i, e := range batch {
		end = alignUp(end, frameAlign) + frameHeaderBytes + int64(len(e.Data))
		if end > limit && (i > 0 || !w.active.empty()) {
			return i
		}
	}
	return len(batch)
}

// commit writes the entries at the end of the active segment and syncs it. It returns the new end.
// The caller updates the segment and settles the entries.
func (w *writer) commit(batch []*durable.Entry) (end int64, err error) {
	s := w.active
	w.dirty = true
	w.file = *io.NewOffsetWriter(s.file, s.end)
	w.out.Reset(&w.file)
	end = s.end
	put := func(p []byte) {
		_, _ = w.out.Write(p) // Flush returns the first error
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
	if err := s.file.Datasync(); err != nil {
		return 0, fmt.Errorf("cannot sync %s: %w", s.path, err)
	}
	return end, nil
}

// fail makes Enqueue fail, and releases the seqs of the entries that the caller will void.
func (j *Journal) fail(cause error) {
	j.log.Error().Err(cause).Msg("the journal has failed; voiding waiting frames")
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = cause
	j.next = j.durable + 1
}

// heal tries to create a new segment after a failure.
func (j *Journal) heal() {
	err := j.writer.findFile(j.fs)
	if err == nil {
		err = j.roll()
	}
	if err != nil {
		j.counters.segmentErrors.Inc()
	} else {
		j.log.Info().Str("file", j.writer.active.path).Msg("the journal has recovered")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failure = err
}

// findFile returns an error if the file of the active segment has lost its name: frames in it would
// be durable, but lost at the next start. A new segment in a new directory would not help, because
// the saved cursors are lost too.
func (w *writer) findFile(fs FS) error {
	file, err := fs.Open(w.active.path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: the directory was deleted or hidden by a mount; restart the daemon after it has delivered everything", err)
	}
	if err == nil {
		_ = file.Close() // nothing was written
	}
	return nil // other errors, such as too many open files, do not concern the active segment
}

// truncate truncates the active segment after its last durable frame, unless nothing was written
// since the last call: once the next segment exists, the size of this one must not change, not even
// temporarily.
func (w *writer) truncate() error {
	if !w.dirty {
		return nil
	}
	if err := w.active.truncate(w.active.end); err != nil {
		return err
	}
	w.dirty = false
	return nil
}

// roll makes a new segment active. If the old one is empty, the new segment replaces it. If not,
// the old one is sealed: truncated first, because the header of the new segment contains its size.
func (j *Journal) roll() error {
	if err := j.writer.truncate(); err != nil {
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
	if old.empty() { // the new segment has replaced its file, and no reader uses it
		j.segments = j.segments[:len(j.segments)-1]
		j.bytes -= old.end
		_ = old.close() // nothing was written
	}
	j.segments = append(j.segments, s)
	j.bytes += s.end
	j.writer.active = s
	return nil
}

// updateFree measures the free disk space. If that fails, j.free keeps its value. If the disk is
// low, updateFree removes the spares and measures again.
func (j *Journal) updateFree() {
	free, err := j.writer.active.file.Free()
	if err != nil {
		j.counters.diskFreeErrors.Inc()
		return
	}
	j.mu.Lock()
	j.free = free
	low := j.low(roomFor(0))
	if spares := j.spares; low && len(spares) > 0 {
		j.spares = nil
		j.mu.Unlock()
		for _, path := range spares {
			j.removeSpare(path)
		}
		j.updateFree()
		return
	}
	changed := low != j.diskLow
	j.diskLow = low
	j.mu.Unlock()
	if changed {
		level, message := zerolog.InfoLevel, "the journal's disk has enough space again"
		if low {
			level, message = zerolog.WarnLevel, "the journal's disk is low on space: batches are rejected; see the runbook, TrafficdDiskLow"
		}
		j.log.WithLevel(level).Str("dir", j.cfg.Dir).Int64("free_bytes", free).Int64("min_free_bytes", j.cfg.MinFreeBytes).Msg(message)
	}
}

var zeros [blockBytes]byte

// Enqueue queues e for the next commit, without waiting for the disk. Frames are written in the
// order of the calls. After an error (ErrTooLarge, ErrBusy, ErrFull, ErrDiskLow, ErrFailed or
// ErrClosed), Wait must not be called.
func (j *Journal) Enqueue(e *durable.Entry) error {
	if len(e.Data) > j.cfg.MaxFrameBytes {
		return durable.ErrTooLarge
	}
	e.Open()
	room := roomFor(len(e.Data))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.readyFor(room); err != nil {
		if err == durable.ErrFull {
			j.rejected = room // so that Ready returns ErrFull too
		}
		return err
	}
	if j.queue.depth >= maxQueueEntries || j.queue.depth > 0 && j.queue.bytes+int64(len(e.Data)) > maxQueueBytes {
		return durable.ErrBusy
	}
	e.Seq = j.next
	j.next++
	j.queue.waiting = append(j.queue.waiting, e)
	j.queue.count(+1, e)
	select {
	case j.wake <- struct{}{}:
	default: // the writer has been woken and will find this entry
	}
	return nil
}

// queue holds the entries that wait for the writer, and counts all unsettled entries. It is guarded
// by Journal.mu.
type queue struct {
	waiting []*durable.Entry
	spare   []*durable.Entry // the slice that the writer used last

	depth int   // number of unsettled entries
	bytes int64 // size of their payloads
	room  int64 // upper bound of the bytes that they add to the directory
}

func (q *queue) count(sign int, e *durable.Entry) {
	q.depth += sign
	q.bytes += int64(sign) * int64(len(e.Data))
	q.room += int64(sign) * roomFor(len(e.Data))
}

// complete makes Wait return err for each entry. The entries then belong to their callers again.
func (j *Journal) complete(batch []*durable.Entry, err error) {
	j.mu.Lock()
	for _, e := range batch {
		j.queue.count(-1, e)
	}
	j.mu.Unlock()
	for _, e := range batch {
		e.Settle(err)
	}
}
