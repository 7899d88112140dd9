// Package inspect reads a journal, in a directory or in Kafka, while daemons are running or when a
// daemon cannot start.
//
// It opens files read-only and takes no lock. A daemon may continue to write and delete files.
//
// The formats are defined in package journal (segments and cursors), package batch (frames) and
// package pipeline (the state in a cursor). This package reads past damage and counts the rows that
// each consumer has not consumed.
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

	"trafficd/cmd/internal/must"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// Names of the files of a journal (package journal).
const (
	segmentSuffix = ".seg"
	cursorSuffix  = ".cursor"
)

var journalName = regexp.MustCompile(`^[0-9]{20}\.seg$|\.cursor$`)

// maxAttempts is the maximum number of attempts to read the cursors and the segments. A daemon may
// be writing them, or may have deleted segments since they were listed.
const maxAttempts = 10

// Directory is a journal in a directory. It is not safe for concurrent use.
type Directory struct {
	onRead   func(n int64) // may be nil
	dir      string
	segments []segment // ascending
	cursors  []durable.CursorInfo
	oldest   uint64 // first frame when the segments were listed
}

// segment is a segment file. A daemon may delete it at any time.
type segment struct {
	name  string
	first uint64 // number of the first frame, from the name
	bytes int64  // size of the file
}

// Open reads the cursors of the journal in a directory and lists its segments.
func Open(dir string) (*Directory, error) {
	f := &Directory{dir: dir}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Directory) load() (err error) {
	defer must.Return(&err)
	names := must.Get(list(f.dir))
	if !slices.ContainsFunc(names, journalName.MatchString) {
		return fmt.Errorf("directory %s contains no journal: it has no segment (20 digits and %s) and no cursor (%s); "+
			"see the daemon's setting journal.dir", f.dir, segmentSuffix, cursorSuffix)
	}
	// Read the cursors first, so that none of them is ahead of the segments.
	cursors := &view{names: slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, cursorSuffix) })}
	for range maxAttempts {
		in, err := journal.Inspect(f.dir, journal.WithFS(cursors))
		must.Do(err, "cannot read the cursors")
		if f.cursors = in.Cursors; in.Err() == nil {
			break
		}
	}
	names = must.Get(list(f.dir))
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

// deleted reports whether a daemon has deleted the segment since it was listed.
func (f *Directory) deleted(s segment) bool {
	_, err := os.Stat(filepath.Join(f.dir, s.name))
	return errors.Is(err, fs.ErrNotExist)
}

// OnRead implements Journal.
func (f *Directory) OnRead(count func(n int64)) { f.onRead = count }

// Close implements Journal.
func (f *Directory) Close() {}

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
func (f *Directory) Inspect() (*journal.Inspection, error) { return f.inspect(journal.Inspect, nil) }

// inspect calls read. It drops segments that a daemon has deleted, and perhaps overwritten, in the
// meantime. If the newest segment is one of them, it lists the segments again and starts over. If
// the newest segment is damaged, it reads again, because a daemon may have been writing to it.
func (f *Directory) inspect(
	read func(string, ...journal.Option) (*journal.Inspection, error), onRead func(n int64),
) (in *journal.Inspection, err error) {
	defer must.Return(&err)
	damage := "" // of the newest segment
	for range maxAttempts {
		in, err := read(f.dir, journal.WithFS(newView(f.segments, onRead)))
		must.Do(err, "cannot read the journal")
		newest, outdated := len(f.segments)-1, 0 // index of the newest segment; number of segments to drop
		for i, s := range f.segments {
			// If the newest segment was overwritten, frames may be missing without an error.
			if (in.Segments[i].Err != nil || i == newest) && f.deleted(s) {
				outdated = i + 1
			}
		}
		switch {
		case outdated > newest && newest >= 0:
			must.Do(f.load())
		case newest >= 0 && in.Segments[newest].Err != nil && in.Segments[newest].Err.Error() != damage:
			damage = in.Segments[newest].Err.Error()
		default:
			f.segments, in.Segments, in.Cursors = f.segments[outdated:], in.Segments[outdated:], f.cursors
			return in, nil
		}
	}
	return nil, errors.New("cannot read the journal: the daemon writes or deletes segments faster than they are read; try again")
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

// file is a read-only file that reports progress. The embedded File is nil. When a daemon seals a
// segment, it truncates the preallocated end; ReadAt then returns zeros up to the size that Size
// returned before.
type file struct {
	journal.File
	raw   *os.File
	meter func(n int64)
	read  int64 // end of the part that has been reported to meter
	size  int64 // last size returned by Size
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.raw.ReadAt(p, off)
	if want := min(int64(len(p)), f.size-off); err == io.EOF && int64(n) < want {
		clear(p[n:want])
		if n = int(want); n == len(p) {
			err = nil
		}
	}
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
	f.size = info.Size()
	return f.size, nil
}

func (f *file) Close() error { return f.raw.Close() }
