// Package inspect reads the directory of a journal while a daemon is running, or when the daemon
// does not start.
//
// It opens files read-only and takes no lock. It reads the directory as of one point in time, even
// if a daemon continues to write and delete files. Package journal defines the format of segments
// and cursors, package batch that of frames, and package pipeline that of delivery cursors; this
// package adds reading past damage and counting what each consumer has not consumed.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"trafficd/pipeline/journal"
)

// Names of the files of a journal (package journal).
const (
	segmentSuffix = ".seg"
	cursorSuffix  = ".cursor"
)

var journalName = regexp.MustCompile(`^[0-9]{20}\.seg$|\.cursor$`)

// attempts is the number of attempts to read the cursors and to open the segments. A daemon may be
// writing a cursor, or may have deleted a listed segment.
const attempts = 3

// Folder is a journal's directory at the time of Open. It is not safe for concurrent use.
type Folder struct {
	onRead   func(n int64) // may be nil
	dir      string
	segments []segment // ascending
	cursors  []journal.CursorInfo
}

// segment is an open segment file, which stays readable if a daemon deletes it.
type segment struct {
	name  string
	first uint64 // frame, from the name
	file  *os.File
	err   error // why file is nil
	bytes int64 // for the progress
}

// Open opens the journal in a directory. The caller closes it.
func Open(dir string) (*Folder, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	if err := recognise(dir, names); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir}
	// Read the cursors first, so that none of them is ahead of the segments.
	cursors := &view{names: slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(name, cursorSuffix) })}
	for range attempts {
		in, err := journal.Inspect(dir, journal.WithFS(cursors))
		if err != nil {
			return nil, fmt.Errorf("cannot read the cursors: %w", err)
		}
		if f.cursors = in.Cursors; in.Err() == nil {
			break
		}
	}
	for range attempts {
		if names, err = list(dir); err != nil {
			return nil, err
		}
		if f.openSegments(names) {
			break
		}
	}
	return f, nil
}

// OnRead implements Journal.
func (f *Folder) OnRead(count func(n int64)) { f.onRead = count }

// Close closes the files.
func (f *Folder) Close() {
	for _, s := range f.segments {
		if s.file != nil {
			s.file.Close()
		}
	}
}

// Bytes returns the size of the segments with frames from seq on.
func (f *Folder) Bytes(seq uint64) int64 {
	n := int64(0)
	for i, s := range f.segments {
		if i+1 == len(f.segments) || f.segments[i+1].first > seq {
			n += s.bytes
		}
	}
	return n
}

// Inspect lists segments and cursors. It reads only the headers of frames.
func (f *Folder) Inspect() (*journal.Inspection, error) { return f.look(journal.Inspect) }

// silent returns the same folder without OnRead.
func (f *Folder) silent() *Folder {
	s := *f
	s.onRead = nil
	return &s
}

func (f *Folder) look(how func(string, ...journal.Option) (*journal.Inspection, error)) (*journal.Inspection, error) {
	in, err := how(f.dir, journal.WithFS(f.view(f.segments)))
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	in.Cursors = f.cursors
	return in, nil
}

// openSegments opens the listed segments. It reports whether the last one exists. If not, the list
// is outdated, because a daemon deletes a segment only once there is a newer one.
func (f *Folder) openSegments(names []string) (there bool) {
	f.Close()
	f.segments, there = nil, true
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentSuffix)
		if !ok {
			continue
		}
		s := segment{name: name}
		s.first, _ = strconv.ParseUint(digits, 10, 64) // package journal reports an invalid name
		s.file, s.err = os.Open(filepath.Join(f.dir, name))
		if there = !errors.Is(s.err, fs.ErrNotExist); !there {
			continue // deleted after the listing
		}
		if s.err == nil {
			if info, err := s.file.Stat(); err == nil {
				s.bytes = info.Size()
			}
		}
		f.segments = append(f.segments, s)
	}
	return there
}

func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read the journal: directory %s does not exist; the daemon's setting journal.dir names it", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("cannot read the journal: %s is a file; name its directory", dir)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("cannot read the journal: %w; run this as the daemon's user", err)
	case err != nil:
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// recognise returns an error unless there is a journal's file among names.
func recognise(dir string, names []string) error {
	if slices.ContainsFunc(names, journalName.MatchString) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("directory %s is empty; the daemon's setting journal.dir names the journal", dir)
	}
	for _, name := range names {
		below := filepath.Join(dir, name)
		if inside, err := list(below); err == nil && slices.ContainsFunc(inside, journalName.MatchString) {
			return fmt.Errorf("directory %s contains no journal, but %s does", dir, below)
		}
	}
	return fmt.Errorf("directory %s contains no journal: none of its %d files, of which %s is the first, is a segment (20 digits and %s) or "+
		"a cursor (%s)",
		dir, len(names), names[0], segmentSuffix, cursorSuffix)
}

// view is a read-only journal.FS with some of the files of a directory. The embedded FS is nil,
// because package journal only calls List and Open to read.
type view struct {
	journal.FS
	names    []string
	segments []segment // already open
	meter    func(n int64)
}

func (f *Folder) view(segments []segment) *view {
	v := &view{segments: segments, meter: f.onRead}
	for _, s := range segments {
		v.names = append(v.names, s.name)
	}
	return v
}

func (v *view) List(string) ([]string, error) { return v.names, nil }

func (v *view) Open(path string, _ int) (journal.File, error) {
	for _, s := range v.segments {
		if s.name == filepath.Base(path) {
			return &file{kept: s.file, meter: v.meter}, s.err
		}
	}
	return openFile(path)
}

func openFile(path string) (journal.File, error) {
	f, err := os.Open(path)
	return &file{kept: f, closes: true}, err
}

// file is a read-only file that reports progress. The embedded File is nil. When a daemon seals a
// segment, it truncates the preallocated end. The file then reads as zeros up to the size that Size
// returned.
type file struct {
	journal.File
	kept   *os.File
	closes bool // otherwise Close does nothing
	meter  func(n int64)
	far    int64
	size   int64 // returned by Size
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.kept.ReadAt(p, off)
	if blank := min(int64(len(p)), f.size-off); err == io.EOF && int64(n) < blank {
		clear(p[n:blank])
		if n = int(blank); n == len(p) {
			err = nil
		}
	}
	if end := off + int64(n); f.meter != nil && end > f.far {
		f.meter(end - f.far)
		f.far = end
	}
	return n, err
}

func (f *file) Size() (int64, error) {
	info, err := f.kept.Stat()
	if err != nil {
		return 0, err
	}
	f.size = info.Size()
	return f.size, nil
}

func (f *file) Close() error {
	if f.closes {
		return f.kept.Close()
	}
	return nil
}
