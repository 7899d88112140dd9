package inspect

import (
	"errors"
	"fmt"
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

var segmentName = regexp.MustCompile(`^[0-9]{20}\.seg$`)

// looks is how often a cursor that is not whole is looked at, and a segment that is listed but not there: a daemon
// may be writing the one, and has another slot for the next time; it may be deleting the other.
const looks = 3

// Folder is a journal's folder as it was when Open looked. It serves one goroutine.
type Folder struct {
	// OnRead, if it is set, is called with the number of bytes of segments that
	// were read: to show progress. A second reading of a segment counts again.
	OnRead func(n int64)

	dir      string
	segments []segment // ascending
	cursors  []journal.CursorInfo
}

// segment is a segment file, kept open: its bytes stay even if a daemon
// deletes it.
type segment struct {
	name  string
	first uint64 // the name says so
	file  *os.File
	err   error // why there is no file
	bytes int64
}

// Open opens the journal in a folder. The error says, for a person, why the
// folder holds none. The caller closes it.
func Open(dir string) (*Folder, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	if err := recognise(dir, names); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir}
	// The cursors come first: so none of them can be ahead of the segments.
	if err := f.readCursors(names); err != nil {
		return nil, err
	}
	for range looks {
		if names, err = list(dir); err != nil {
			return nil, err
		}
		if f.openSegments(names) {
			break
		}
	}
	return f, nil
}

// Close closes the files.
func (f *Folder) Close() {
	for _, s := range f.segments {
		if s.file != nil {
			s.file.Close()
		}
	}
}

// Bytes is the size of the segments that hold frames from seq on.
func (f *Folder) Bytes(seq uint64) int64 {
	n := int64(0)
	for i, s := range f.segments {
		if i+1 == len(f.segments) || f.segments[i+1].first > seq {
			n += s.bytes
		}
	}
	return n
}

// Inspect lists segments and cursors; it reads the frames' headers only.
func (f *Folder) Inspect() (*journal.Inspection, error) { return f.look(journal.Inspect) }

// silent is the same folder; what is read of it does not count as progress.
func (f *Folder) silent() *Folder {
	s := *f
	s.OnRead = nil
	return &s
}

func (f *Folder) look(how func(string, ...journal.Option) (*journal.Inspection, error)) (*journal.Inspection, error) {
	in, err := how(f.dir, journal.WithFS(f.view(nil)))
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal: %w", err)
	}
	in.Cursors = f.cursors
	return in, nil
}

// openSegments opens the segments of a list. It is false if the last of them was deleted since: a daemon deletes no segment
// before it has another one, so the list lacks those that are there now.
func (f *Folder) openSegments(names []string) (there bool) {
	f.Close()
	f.segments, there = nil, true
	for _, name := range names {
		if !strings.HasSuffix(name, segmentSuffix) {
			continue
		}
		s := segment{name: name}
		s.first, _ = strconv.ParseUint(strings.TrimSuffix(name, segmentSuffix), 10, 64) // another name: the journal will say so
		s.file, s.err = os.Open(filepath.Join(f.dir, name))
		if there = !errors.Is(s.err, fs.ErrNotExist); !there {
			continue // deleted since it was listed
		}
		if s.err == nil {
			s.bytes = sizeOf(s.file)
		}
		f.segments = append(f.segments, s)
	}
	return there
}

func sizeOf(file *os.File) int64 {
	info, err := file.Stat()
	if err != nil {
		return 0 // for the progress only
	}
	return info.Size()
}

func (f *Folder) readCursors(names []string) error {
	var files []string
	for _, name := range names {
		if strings.HasSuffix(name, cursorSuffix) {
			files = append(files, name)
		}
	}
	for range looks {
		in, err := journal.Inspect(f.dir, journal.WithFS(&view{names: files, open: openFile}))
		if err != nil {
			return fmt.Errorf("cannot read the cursors: %w", err)
		}
		if f.cursors = in.Cursors; in.Err() == nil {
			break
		}
	}
	return nil
}

// list gives the names in a folder, sorted.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read the journal: there is no folder %s; the daemon's setting journal.dir names it", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("cannot read the journal: %s is a file; name the folder that holds it", dir)
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

// recognise says why a folder with these names holds no journal.
func recognise(dir string, names []string) error {
	if slices.ContainsFunc(names, isOfJournal) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("the folder %s is empty: no daemon has written a journal there; its setting journal.dir names the folder", dir)
	}
	for _, name := range names {
		below := filepath.Join(dir, name)
		if inside, err := list(below); err == nil && slices.ContainsFunc(inside, isOfJournal) {
			return fmt.Errorf("the folder %s holds no journal, but %s does", dir, below)
		}
	}
	return fmt.Errorf("the folder %s holds no journal: of the %d names in it, %s the first, none is a segment (20 digits and %s) or a cursor (%s)",
		dir, len(names), names[0], segmentSuffix, cursorSuffix)
}

func isOfJournal(name string) bool {
	return segmentName.MatchString(name) || strings.HasSuffix(name, cursorSuffix)
}
