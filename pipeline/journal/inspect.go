package journal

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"trafficd/pipeline/lib/durable"
)

// Inspection is the result of Inspect and Verify.
type Inspection struct {
	Segments []SegmentInfo        // sorted by name
	Cursors  []durable.CursorInfo // sorted by name
}

// SegmentInfo describes a segment file. If Err is not nil, First, Last and Frames describe the
// frames before the error.
type SegmentInfo struct {
	Name        string
	First, Last uint64 // Last is First-1 if there are no frames
	Frames      int
	Bytes       int64 // size of the file
	TornBytes   int64 // bytes after the newest segment's last valid frame: torn, or left from an earlier use of the file; Open truncates them
	Err         error
}

// Err returns the joined errors of all segments and cursors, or nil if there are none.
func (in *Inspection) Err() error {
	var errs []error
	for _, s := range in.Segments {
		errs = append(errs, s.Err)
	}
	for _, c := range in.Cursors {
		errs = append(errs, c.Err)
	}
	return errors.Join(errs...)
}

// Inspect describes the segments and cursors of a directory that no daemon has open. It reads the
// headers of frames but not their payloads, takes no lock and writes nothing. It returns an error
// only if the directory cannot be listed; the Inspection contains the errors of the files.
func Inspect(dir string, opts ...Option) (*Inspection, error) {
	return inspect(dir, (*walker).skip, opts)
}

// Verify is like Inspect but also verifies every checksum, in bounded memory.
func Verify(dir string, opts ...Option) (*Inspection, error) {
	return inspect(dir, (*walker).verify, opts)
}

// Frames yields the frames of a directory that no daemon has open, from frame seq on, after
// verifying their checksums. It stops after the last valid frame or the first error.
func Frames(dir string, seq uint64, opts ...Option) iter.Seq2[durable.Frame, error] {
	return func(yield func(durable.Frame, error) bool) {
		segments, err := openSegments(newJournal(Config{}, opts).fs, dir, os.O_RDONLY)
		if err != nil {
			yield(durable.Frame{}, err)
			return
		}
		defer closeSegments(segments)
		var w walker
		var buf []byte
		for i, s := range segments {
			newest := i+1 == len(segments)
			if !newest && segments[i+1].first <= seq {
				continue
			}
			w.reset(s.file, s.path, s.segmentHeader, s.end)
			for newest || w.seq < segments[i+1].first {
				frame := durable.Frame{Seq: w.seq, Segment: filepath.Base(s.path), Offset: w.off}
				if frame.Seq < seq {
					err = w.skip()
				} else {
					buf, err = w.read(buf[:0])
					frame.Data = buf
				}
				if newest && isCorrupt(err) {
					if _, err = w.tornBytes(); err == nil {
						return // the end of the journal
					}
				}
				if err != nil {
					yield(durable.Frame{}, err)
					return
				}
				if frame.Seq >= seq && !yield(frame, nil) {
					return
				}
			}
		}
	}
}

func inspect(dir string, step func(*walker) error, opts []Option) (*Inspection, error) {
	fs := newJournal(Config{}, opts).fs
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list directory %s: %w", dir, err)
	}
	in := &Inspection{}
	var prev *segment
	var endErr error // the result of SegmentInfo.read for prev
	for _, name := range names {
		if consumer, ok := strings.CutSuffix(name, cursorSuffix); ok {
			in.Cursors = append(in.Cursors, readCursor(fs, dir, consumer))
		}
		if !strings.HasSuffix(name, segmentSuffix) {
			continue
		}
		info := SegmentInfo{Name: name}
		s, err := openSegment(fs, filepath.Join(dir, name), os.O_RDONLY)
		if err != nil {
			info.Err = err
		} else {
			if prev != nil {
				// Only the newest segment may be torn, and no frame may be missing between
				// segments.
				before := &in.Segments[len(in.Segments)-1]
				if before.Err == nil && (before.TornBytes > 0 || before.Last+1 != s.first) {
					before.TornBytes, before.Err = 0, endErr // before s was created, the end of this segment was valid
				}
				before.Err = errors.Join(before.Err, follows(prev, s))
			}
			endErr = info.read(s, step)
			_ = s.close() // read-only
		}
		in.Segments = append(in.Segments, info)
		prev = s
	}
	return in, nil
}

// read fills info from the frames of s. It returns the *CorruptError after the last valid frame,
// which means damage unless the data ends there, or nil if it set info.Err to another error.
func (info *SegmentInfo) read(s *segment, step func(*walker) error) (end error) {
	info.First, info.Last, info.Bytes = s.first, s.first-1, s.end
	var w walker
	w.reset(s.file, s.path, s.segmentHeader, s.end)
	for end = step(&w); end == nil; end = step(&w) {
		info.Last = w.seq - 1
		info.Frames++
	}
	if !isCorrupt(end) {
		info.Err = end
		return nil
	}
	info.TornBytes, info.Err = w.tornBytes()
	return end
}

func readCursor(fs FS, dir, name string) durable.CursorInfo {
	info := durable.CursorInfo{Name: name}
	path := filepath.Join(dir, name+cursorSuffix)
	file, err := fs.Open(path, os.O_RDONLY)
	if err != nil {
		info.Err = fmt.Errorf("cannot open cursor file %s: %w", path, err)
		return info
	}
	s, _, err := newestSlot(file, path)
	info.Seq, info.Generation, info.State = s.seq, s.gen, s.state
	info.Err = errors.Join(err, file.Close())
	return info
}
