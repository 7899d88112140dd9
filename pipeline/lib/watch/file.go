// Package watch reads files that other programs replace.
package watch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// Settle is how long a file must be unmodified before it is read: programs write it in several
	// steps, with pauses on a busy machine.
	Settle = 500 * time.Millisecond
	// Recheck is the time between checks for changes that the operating system does not report, as on
	// network file systems.
	Recheck = time.Minute
)

// Read returns ErrUnchanged if the version in use is still current, ErrUnsettled if the file is
// being written, and ErrTooLong if the content exceeds the limit.
var (
	ErrUnchanged = errors.New("unchanged")
	ErrUnsettled = errors.New("still being written: it is read once it has settled")
	ErrTooLong   = errors.New("longer than max_bytes in this section of the configuration")
)

// File is a file that other programs replace or write in place. It is read as a whole once it has
// not been modified for a while. It is not safe for concurrent use.
//
// It watches directories rather than the file, because replacing the file, or a symlink anywhere on
// the path, changes a directory entry.
type File struct {
	path     string
	others   []string // read together with the file, by the caller
	settle   time.Duration
	maxBytes int64
	poke     chan struct{} // capacity 1: one check suffices for several changes
	watcher  *fsnotify.Watcher
	running  sync.WaitGroup

	last, kept, rejected fs.FileInfo // the last version read, the version in use, the invalid version
	reason               error       // why rejected is invalid
}

// NewFile returns a File. The file need not exist yet. Watching begins with the first Read and ends
// with Close. Changes of the other files, which the caller reads itself, are also reported.
func NewFile(path string, settle time.Duration, maxBytes int64, others ...string) *File {
	return &File{path: path, others: others, settle: settle, maxBytes: maxBytes, poke: make(chan struct{}, 1)}
}

// CheckReadable returns an error if the file at path cannot be read. It accepts an empty path,
// which is an invalid setting and reported as such.
func CheckReadable(path string) error {
	if path == "" {
		return nil
	}
	if err := unix.Access(path, unix.R_OK); err != nil {
		return &fs.PathError{Op: "cannot read", Path: path, Err: err}
	}
	return nil
}

// Changes returns a channel that receives a value when there may be a new version.
func (f *File) Changes() <-chan struct{} { return f.poke }

// Poke sends a value to the channel of Changes unless one is pending. It may be called from any
// goroutine.
func (f *File) Poke() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// Close stops watching.
func (f *File) Close() {
	if f.watcher != nil {
		_ = f.watcher.Close() // ends forward
		f.running.Wait()
	}
}

// Keep marks the last version read as in use. Read then returns ErrUnchanged until there is a
// different version.
func (f *File) Keep() { f.kept = f.last }

// Forget marks no version as in use.
func (f *File) Forget() { f.kept = nil }

// Reject marks the last version read as invalid. Read then returns reason until there is a
// different version.
func (f *File) Reject(reason error) { f.rejected, f.reason = f.last, reason }

// Read returns the content of the file, decompressed if it is gzip, and the modification time,
// which is set even if the error is ErrUnchanged.
func (f *File) Read() (content []byte, modified time.Time, err error) {
	f.follow() // before Stat, so that no change is missed
	before, err := os.Stat(f.path)
	if err != nil {
		return nil, modified, err
	}
	if !before.Mode().IsRegular() {
		return nil, modified, fmt.Errorf("%s is not a regular file", f.path)
	}
	modified = before.ModTime()
	switch {
	case f.kept != nil && sameVersion(f.kept, before):
		return nil, modified, ErrUnchanged
	case f.rejected != nil && sameVersion(f.rejected, before):
		return nil, modified, f.reason
	}
	// The age is negative if the clock was set back, or if the clock of another machine is ahead.
	if age := time.Since(modified); age >= 0 && age < f.settle {
		return nil, modified, ErrUnsettled
	}
	file, err := os.Open(f.path)
	switch {
	case err != nil:
	case before.Size() > f.maxBytes:
		err = fmt.Errorf("cannot read %s: %w", f.path, ErrTooLong)
		file.Close()
	default:
		defer file.Close()
		if content, err = ReadAll(file, f.maxBytes); err != nil {
			content, err = nil, fmt.Errorf("cannot read %s: %w", f.path, err)
		}
	}
	if after, gone := os.Stat(f.path); gone != nil || !sameVersion(before, after) {
		return nil, modified, ErrUnsettled
	}
	f.last = before
	return content, modified, err
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// ReadAll returns all of r, decompressed if it is gzip, and without a UTF-8 byte order mark. The
// content must have at most maxBytes bytes, and so must the input unless r is an io.ReadSeeker,
// such as a file. ReadAll reads an io.ReadSeeker twice instead of holding the input in memory.
func ReadAll(r io.Reader, maxBytes int64) ([]byte, error) {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
			return nil, errors.New("it is a pipe or a device, must be a regular file, which can be read again: write it to a file first")
		}
	}
	s, ok := r.(io.ReadSeeker)
	if !ok {
		all, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
		if err == nil && int64(len(all)) > maxBytes {
			err = ErrTooLong
		}
		if err != nil {
			return nil, err
		}
		s = bytes.NewReader(all)
	}
	// The first pass only measures the content, so that a decompression bomb uses no memory, and
	// other content no more than its size.
	size, err := decompress(s, func(plain io.Reader) (int64, error) { return io.Copy(io.Discard, io.LimitReader(plain, maxBytes+1)) })
	if err == nil && size > maxBytes {
		err = ErrTooLong
	}
	if err != nil {
		return nil, err
	}
	content := make([]byte, size)
	_, err = decompress(s, func(plain io.Reader) (int64, error) {
		n, err := io.ReadFull(plain, content)
		return int64(n), err
	})
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), err
}

// decompress calls read with the whole content of s, decompressed if it is gzip.
func decompress(s io.ReadSeeker, read func(plain io.Reader) (int64, error)) (n int64, err error) {
	if _, err := s.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	packed := bufio.NewReader(s)
	if magic, _ := packed.Peek(2); string(magic) != "\x1f\x8b" {
		return read(packed)
	}
	plain, err := gzip.NewReader(packed)
	if err == nil {
		n, err = read(plain)
	}
	if err != nil {
		err = fmt.Errorf("cannot decompress: %w", err)
	}
	return n, err
}

// follow watches exactly the directories that are currently on the paths to the files. The periodic
// check finds changes that cannot be watched.
func (f *File) follow() {
	if f.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		f.watcher = watcher
		f.running.Go(func() { f.forward(watcher) })
	}
	dirs := dirsTo(f.path)
	for _, other := range f.others {
		dirs = append(dirs, dirsTo(other)...)
	}
	for _, dir := range dirs {
		_ = f.watcher.Add(dir) // the periodic check covers a missing directory
	}
	for _, dir := range f.watcher.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = f.watcher.Remove(dir) // it may have been deleted
		}
	}
}

// forward calls Poke for each event, and for each error, because events may have been lost, until
// the watcher is closed.
func (f *File) forward(watcher *fsnotify.Watcher) {
	for {
		var ok bool
		select {
		case _, ok = <-watcher.Events:
		case _, ok = <-watcher.Errors:
		}
		if !ok {
			return
		}
		f.Poke()
	}
}

// dirsTo returns the directories that contain the file and every symlink on the path.
func dirsTo(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var dirs []string
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil || links == 40 { // not a link, or more links than the operating system follows
			if len(rest) == 0 {
				dirs = append(dirs, at)
			}
			at = next
			continue
		}
		links++
		dirs = append(dirs, at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
