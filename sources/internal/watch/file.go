package watch

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// What Read says of a file that is well, but gives nothing new.
var (
	ErrUnchanged = errors.New("unchanged")
	ErrUnsettled = errors.New("the file is being written: it is read when it has settled")
)

// ErrTooLong is told of content that is longer than it may be.
var ErrTooLong = errors.New("longer than max_bytes in this section of the configuration")

// File is read whole, and only when nobody has touched it for a while, so that
// one that is being written in place is met whole; renames and swapped links
// are met at once. It is for one goroutine.
type File struct {
	path     string
	settle   time.Duration
	maxBytes int64
	folders  *folders

	last, kept, refused fs.FileInfo // the version read last, the one in use, the one that is of no use
	apiErr              error       // why it is not
}

// NewFile names the file, which need not be there yet. The watching begins with
// the first Read and ends with Close.
func NewFile(path string, settle time.Duration, maxBytes int64) *File {
	return &File{path: path, settle: settle, maxBytes: maxBytes, folders: watchFolders(path)}
}

// Changes yields when there may be another version.
func (f *File) Changes() <-chan struct{} { return f.folders.poke }

// Close ends the watching.
func (f *File) Close() { f.folders.close() }

// Keep says that the version read last is the one in use: until there is
// another one, Read gives ErrUnchanged.
func (f *File) Keep() { f.kept = f.last }

// Refuse says that the version read last is of no use, and why: until there is
// another one, Read gives that reason instead of reading all of it again.
func (f *File) Refuse(reason error) { f.refused, f.apiErr = f.last, reason }

// Read gives the file's content, uncompressed if it is gzip, and the time of its
// last modification, which comes with ErrUnchanged as well.
func (f *File) Read() (content []byte, modified time.Time, err error) {
	f.folders.follow() // before looking, so that no change falls between
	before, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, modified, err
	case !before.Mode().IsRegular():
		return nil, modified, fmt.Errorf("%s is no regular file", f.path)
	}
	modified = before.ModTime()
	switch {
	case f.kept != nil && sameVersion(f.kept, before):
		return nil, modified, ErrUnchanged
	case f.refused != nil && sameVersion(f.refused, before):
		return nil, modified, f.apiErr
	}
	// An age below zero is a clock that went back, or another machine's.
	if age := time.Since(modified); age >= 0 && age < f.settle {
		return nil, modified, ErrUnsettled
	}
	content, err = f.content()
	if after, gone := os.Stat(f.path); gone != nil || !sameVersion(before, after) {
		return nil, modified, ErrUnsettled
	}
	f.last = before
	return content, modified, err
}

func (f *File) content() ([]byte, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := ReadAll(file, f.maxBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", f.path, err)
	}
	return content, nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// ReadAll gives all of r, uncompressed if it is gzip, and without the byte order
// mark that some programs put in front of UTF-8. Neither form may be longer than
// maxBytes.
func ReadAll(r io.Reader, maxBytes int64) ([]byte, error) {
	content, err := readAtMost(r, maxBytes)
	if err == nil && bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		content, err = unzip(content, maxBytes)
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), err
}

func unzip(packed []byte, maxBytes int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress: %w", err)
	}
	content, err := readAtMost(r, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot decompress: %w", err)
	}
	return content, nil
}

func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && int64(len(content)) > maxBytes {
		return nil, ErrTooLong
	}
	return content, err
}
