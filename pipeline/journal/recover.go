package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recover brings the folder into the state that the writer needs. The numbers are those of doc.go.
func (j *Journal) recover(consumers []string) error {
	if err := j.tidy(); err != nil { // 2
		return err
	}
	segments, err := openSegments(j.fs, j.cfg.Dir, os.O_RDWR) // 3
	if err != nil {
		return err
	}
	j.segments = segments
	if err := j.mendNewest(); err != nil { // 4
		return err
	}
	if err := j.openCursors(consumers); err != nil { // 5
		return err
	}
	j.collect()                            // 6
	if err := j.checkChain(); err != nil { // 7
		return err
	}
	return j.begin() // 8
}

// tidy removes files that were never finished, and makes the names that it found durable: a name may have been seen by the
// process before us without ever having reached the disk, and frames must not go with it.
func (j *Journal) tidy() error {
	names, err := j.fs.List(j.cfg.Dir)
	if err != nil {
		return fmt.Errorf("cannot list folder %s: %w", j.cfg.Dir, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, tempSuffix) {
			continue
		}
		if err := j.fs.Remove(filepath.Join(j.cfg.Dir, name)); err != nil {
			return fmt.Errorf("cannot remove unfinished file %s: %w", name, err)
		}
	}
	if err := j.fs.SyncDir(j.cfg.Dir); err != nil {
		return fmt.Errorf("cannot sync folder %s: %w", j.cfg.Dir, err)
	}
	return nil
}

// mendNewest finds the end of the newest segment, and from it and the names what each one holds.
func (j *Journal) mendNewest() error {
	for i, s := range j.segments {
		if i < len(j.segments)-1 {
			s.last = j.segments[i+1].first - 1
			continue
		}
		if err := j.mend(s); err != nil {
			return err
		}
		j.durable = s.last
	}
	return nil
}

// mend reads a segment to its last whole frame, cuts off what is behind, and writes the last commit anew.
func (j *Journal) mend(s *segment) error {
	var w walker
	w.reset(s.file, s.path, s.segmentHeader, s.end)
	if err := w.run(); err != nil {
		return err
	}
	torn, err := w.torn()
	if err != nil {
		return err
	}
	if torn > 0 {
		j.log.Warn().Str("file", s.path).Int64("offset", w.off).Int64("bytes", torn).Uint64("last", w.seq-1).
			Msg("cut a torn tail that nobody was promised")
	}
	end := alignUp(w.off, blockBytes)
	if err := w.rewrite(s.file, end); err != nil {
		return err
	}
	if err := s.cut(end); err != nil { // also the sync of the rewrite
		return err
	}
	s.end, s.last = end, w.seq-1
	return nil
}

// run verifies frames until there is none. That a frame is broken is no error yet: only torn knows what it means.
func (w *walker) run() error {
	for {
		err := w.verify()
		if isCorrupt(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// torn tells how many bytes stand behind the last whole frame, from the first that is not zero on. It is a CorruptError if
// a later frame proves that they were durable once: then they are not the rest of a write that never finished.
func (w *walker) torn() (int64, error) {
	from := min(alignUp(w.off, frameAlign), w.size)
	blank := from
	err := w.chunks(from, w.size, func(at int64, p []byte) error {
		if blank == at { // all zero so far
			blank += int64(len(p) - len(bytes.TrimLeft(p, "\x00")))
		}
		return nil
	})
	if blank == w.size || err != nil {
		return 0, err
	}
	if err := w.proof(from); err != nil {
		return 0, err
	}
	return w.size - blank, nil
}

// proof looks for a whole frame whose commit began after frame w.seq, the missing one. A commit begins only when all before
// it is durable. Frames of the same commit prove nothing: the disk may write them in any order.
func (w *walker) proof(from int64) error {
	probe := *w
	probe.chunk = nil // chunks of w are in use while it looks
	mark := make([]byte, 4)
	binary.LittleEndian.PutUint32(mark, markOf(w.salt))
	return w.chunks(from, w.size, func(at int64, p []byte) error {
		for i := 0; i+len(mark) <= len(p); i += frameAlign {
			if !bytes.Equal(p[i:i+len(mark)], mark) {
				continue
			}
			if err := probe.evidence(at + int64(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// evidence is an error if a whole frame stands at an offset and proves that frame w.seq was durable.
func (w *walker) evidence(at int64) error {
	h, ok, err := w.headerAt(at)
	if err != nil || !ok || h.seq < uint64(h.index) || h.seq-uint64(h.index) <= w.seq {
		return err
	}
	if err := w.check(h, at); err != nil {
		if isCorrupt(err) {
			return nil
		}
		return err
	}
	return w.corrupt(alignUp(w.off, frameAlign),
		fmt.Sprintf("it is broken, but frame %d at offset %d was written after it had been acknowledged", h.seq, at))
}

// rewrite writes the last commit again, with zeros up to end. If the sync of it had failed and the process then died, the
// bytes are read from memory though the disk does not have them, and no later sync would bring them there.
func (w *walker) rewrite(file File, end int64) error {
	err := w.chunks(w.commit, w.off, func(at int64, p []byte) error {
		_, err := file.WriteAt(p, at)
		return err
	})
	if err == nil {
		_, err = file.WriteAt(zeros[:end-w.off], w.off)
	}
	if err != nil {
		return fmt.Errorf("cannot write the last commit of %s again: %w", w.path, err)
	}
	return nil
}

// checkChain compares each segment with what the next one says of it.
func (j *Journal) checkChain() error {
	for i := 1; i < len(j.segments); i++ {
		if err := follows(j.segments[i-1], j.segments[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin readies the counters and the segment that is written to.
func (j *Journal) begin() error {
	for _, s := range j.segments {
		j.bytes += s.end
	}
	if len(j.segments) == 0 {
		s, err := createSegment(j.fs, j.cfg.Dir, segmentHeader{first: 1}, j.cfg.SegmentBytes)
		if err != nil {
			return err
		}
		j.segments, j.bytes = []*segment{s}, s.end
	}
	j.next = j.durable + 1
	j.writer.active = j.newest()
	j.gauge()
	return nil
}

// removeFile deletes a file durably. One that is gone already is deleted too.
func removeFile(fs FS, dir, path string) error {
	if err := fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot delete %s: %w", path, err)
	}
	if err := fs.SyncDir(dir); err != nil {
		return fmt.Errorf("cannot sync folder %s: %w", dir, err)
	}
	return nil
}
