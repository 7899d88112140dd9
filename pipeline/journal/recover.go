package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recover restores the journal from its directory and prepares it for the writer. The numbers refer
// to the steps in doc.go.
func (j *Journal) recover(consumers []string) error {
	if err := j.removeUnfinished(); err != nil { // 2
		return err
	}
	segments, err := openSegments(j.fs, j.cfg.Dir, os.O_RDWR) // 3
	if err != nil {
		return err
	}
	j.segments = segments
	for i, s := range segments { // 4
		if i+1 < len(segments) {
			s.last = segments[i+1].first - 1
		} else if err := j.repair(s); err != nil {
			return err
		}
		j.durable = s.last
		j.bytes += s.end
	}
	if err := j.openCursors(consumers); err != nil { // 5
		return err
	}
	j.collect()                            // 6
	for i := 1; i < len(j.segments); i++ { // 7
		if err := follows(j.segments[i-1], j.segments[i]); err != nil {
			return err
		}
	}
	if len(j.segments) == 0 { // 8
		s, err := createSegment(j.fs, j.cfg.Dir, "", segmentHeader{first: 1}, j.cfg.SegmentBytes)
		if err != nil {
			return err
		}
		j.segments, j.bytes = []*segment{s}, s.end
	}
	j.next = j.durable + 1
	j.writer.active, j.writer.out = j.newest(), bufio.NewWriterSize(nil, 64<<10)
	return nil
}

// removeUnfinished removes unfinished files and syncs the directory: entries created by the
// previous process might not be durable yet, and a file is lost without its directory entry.
func (j *Journal) removeUnfinished() error {
	names, err := j.fs.List(j.cfg.Dir)
	if err != nil {
		return fmt.Errorf("cannot list directory %s: %w", j.cfg.Dir, err)
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
		return fmt.Errorf("cannot sync directory %s: %w", j.cfg.Dir, err)
	}
	return nil
}

// repair reads a segment up to its last valid frame, rewrites the last commit and truncates the
// rest.
func (j *Journal) repair(s *segment) error {
	var w walker
	w.reset(s.file, s.path, s.segmentHeader, s.end)
	var err error
	for err == nil {
		err = w.verify()
	}
	if !isCorrupt(err) {
		return err
	}
	torn, err := w.tornBytes()
	if err != nil {
		return err
	}
	if torn > 0 {
		j.log.Warn().Str("file", s.path).Int64("offset", w.off).Int64("bytes", torn).Uint64("last", w.seq-1).
			Msg("truncated an unacknowledged tail, or the former contents of a reused file")
	}
	end := alignUp(w.off, blockBytes)
	if err := w.rewrite(s.file, end); err != nil {
		return err
	}
	if err := s.truncate(end); err != nil { // this also syncs what was rewritten
		return err
	}
	s.end, s.last = end, w.seq-1
	return nil
}

// tornBytes returns the number of bytes from the first nonzero byte after the last valid frame to
// the end of the segment, or 0 if all of them are zero. It returns a *CorruptError if a later frame
// proves that these bytes are not the remains of an unfinished write.
func (w *walker) tornBytes() (int64, error) {
	from := min(alignUp(w.off, frameAlign), w.size)
	blank := from
	err := w.chunks(from, w.size, func(at int64, p []byte) error {
		if blank == at { // only zeros so far
			blank += int64(len(p) - len(bytes.TrimLeft(p, "\x00")))
		}
		return nil
	})
	if blank == w.size || err != nil {
		return 0, err
	}
	if err := w.checkUnacknowledged(from); err != nil {
		return 0, err
	}
	return w.size - blank, nil
}

// checkUnacknowledged returns a *CorruptError if there is a valid frame whose commit started after
// the missing frame w.seq: a commit starts only after all earlier frames are durable. Frames of the
// same commit prove nothing, because the disk may write them in any order.
func (w *walker) checkUnacknowledged(from int64) error {
	probe := *w
	probe.chunk = nil // w.chunk is in use
	mark := binary.LittleEndian.AppendUint32(nil, markOf(w.salt))
	return w.chunks(from, w.size, func(at int64, p []byte) error {
		for i := 0; i+len(mark) <= len(p); i += frameAlign {
			if !bytes.Equal(p[i:i+len(mark)], mark) {
				continue
			}
			h, ok, err := probe.headerAt(at + int64(i))
			if err == nil && ok && h.seq >= uint64(h.index) && h.seq-uint64(h.index) > w.seq {
				if err = probe.check(h, at+int64(i)); err == nil {
					return w.corrupt(alignUp(w.off, frameAlign),
						fmt.Sprintf("the frame was acknowledged but is invalid: frame %d at offset %d was written later", h.seq, at+int64(i)))
				}
			}
			if err != nil && !isCorrupt(err) {
				return err
			}
		}
		return nil
	})
}

// rewrite writes the last commit again, followed by zeros up to end; see the assumptions in doc.go.
func (w *walker) rewrite(file File, end int64) error {
	err := w.chunks(w.commit, w.off, func(at int64, p []byte) error {
		_, err := file.WriteAt(p, at)
		return err
	})
	if err == nil {
		_, err = file.WriteAt(zeros[:end-w.off], w.off)
	}
	if err != nil {
		return fmt.Errorf("cannot rewrite the last commit of %s: %w", w.path, err)
	}
	return nil
}
