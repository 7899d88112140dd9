// Package inspect reads a journal, in a directory or in Kafka.
//
// It opens files read-only. While it reads a directory, no daemon can open it; if a daemon has it
// open, only Inspect and Consumers can be used, which then start over when the files have changed
// under them.
//
// The formats are defined in package journal (segments and cursors), package batch (frames) and
// package pipeline (the state in a cursor). This package reads past damage and counts the rows that
// each consumer has not consumed.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// Names of the files of a journal (package journal).
const (
	segmentSuffix = ".seg"
	cursorSuffix  = ".cursor"
)

var journalName = regexp.MustCompile(`^[0-9]{20}\.seg$|\.cursor$`)

// maxAttempts is the maximum number of attempts to read the journal of a running daemon, which
// writes and deletes files meanwhile.
const maxAttempts = 10

// Directory is a journal in a directory. It is not safe for concurrent use.
type Directory struct {
	onRead   func(n int64) // may be nil
	dir      string
	lock     io.Closer // nil if a daemon has the directory open
	segments []segment // ascending
	cursors  []durable.CursorInfo
	oldest   uint64 // first frame when the segments were listed
}

// segment is a segment file.
type segment struct {
	name  string
	first uint64 // number of the first frame, from the name
	bytes int64  // size of the file
}

// Open reads the cursors of the journal in a directory and lists its segments. The caller closes
// the directory; until then, no daemon can open it.
func Open(dir string) (*Directory, error) {
	f := &Directory{dir: dir}
	lock, err := journal.LockShared(dir)
	switch {
	case err == nil:
		f.lock = lock
	case !errors.Is(err, journal.ErrLocked):
		return nil, err
	}
	if err := f.load(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Live returns an error if a daemon has the directory open.
func (f *Directory) Live() error {
	if f.lock != nil {
		return nil
	}
	return fmt.Errorf("cannot read %s: a daemon is using it; stop the daemon or copy the directory", f.dir)
}

func (f *Directory) load() error {
	names, err := list(f.dir)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(names, journalName.MatchString) {
		return fmt.Errorf("directory %s contains no journal: it has no segment (20 digits and %s) and no cursor (%s); "+
			"see the daemon's setting journal.dir", f.dir, segmentSuffix, cursorSuffix)
	}
	// Read the cursors first, so that none of them is ahead of the segments.
	cursors := &view{names: slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, cursorSuffix) })}
	in, err := journal.Inspect(f.dir, journal.WithFS(cursors))
	if err != nil {
		return fmt.Errorf("cannot read the cursors: %w", err)
	}
	f.cursors = in.Cursors
	if names, err = list(f.dir); err != nil {
		return err
	}
	f.segments = nil
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, segmentSuffix)
		if !ok {
			continue
		}
		s := segment{name: name}
		s.first, _ = strconv.ParseUint(digits, 10, 64) // package journal reports an invalid name
		if info, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
			s.bytes = info.Size()
		}
		f.segments = append(f.segments, s)
	}
	f.oldest = 1
	if len(f.segments) > 0 {
		f.oldest = f.segments[0].first
	}
	return nil
}

// OnRead implements Journal.
func (f *Directory) OnRead(count func(n int64)) { f.onRead = count }

// Close implements Journal.
func (f *Directory) Close() {
	if f.lock != nil {
		_ = f.lock.Close()
	}
}

// Bytes implements Journal. It returns the total size of the segments with such frames.
func (f *Directory) Bytes(unconsumed bool) int64 {
	n := int64(0)
	for i, s := range f.segments {
		if !unconsumed || i+1 == len(f.segments) || f.segments[i+1].first > f.firstUnconsumed() {
			n += s.bytes
		}
	}
	return n
}

// Inspect implements Journal. It reads only the headers of frames.
func (f *Directory) Inspect() (in *journal.Inspection, err error) {
	err = f.attempt(func() (intact bool, err error) {
		in, err = f.inspect(journal.Inspect, nil)
		return err == nil && in.Err() == nil, err
	})
	return in, err
}

// attempt calls read until it returns true. Without a daemon that could be the reason, it calls
// read only once.
func (f *Directory) attempt(read func() (intact bool, err error)) error {
	for n := 1; ; n++ {
		intact, err := read()
		if intact || f.lock != nil || n == maxAttempts {
			return err
		}
		if err := f.load(); err != nil {
			return err
		}
	}
}

func (f *Directory) inspect(
	read func(string, ...journal.Option) (*journal.Inspection, error), onRead func(n int64),
) (*journal.Inspection, error) {
	in, err := read(f.dir, journal.WithFS(newView(f.segments, onRead)))
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	in.Cursors = f.cursors
	return in, nil
}

func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w; specify the daemon's journal.dir, and run the command as the daemon's user", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// view is a read-only journal.FS with some of the files in a directory. The embedded FS is nil,
// because package journal reads only through List and Open.
type view struct {
	journal.FS
	names []string
	meter func(n int64) // may be nil
}

func newView(segments []segment, onRead func(n int64)) *view {
	v := &view{meter: onRead}
	for _, s := range segments {
		v.names = append(v.names, s.name)
	}
	return v
}

func (v *view) List(string) ([]string, error) { return v.names, nil }

func (v *view) Open(path string, _ int) (journal.File, error) {
	f, err := os.Open(path)
	return &file{raw: f, meter: v.meter}, err
}

// file is a read-only file that reports progress. The embedded File is nil.
type file struct {
	journal.File
	raw   *os.File
	meter func(n int64)
	read  int64 // end of the part that has been reported to meter
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.raw.ReadAt(p, off)
	if end := off + int64(n); f.meter != nil && end > f.read {
		f.meter(end - f.read)
		f.read = end
	}
	return n, err
}

func (f *file) Size() (int64, error) {
	info, err := f.raw.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *file) Close() error { return f.raw.Close() }
