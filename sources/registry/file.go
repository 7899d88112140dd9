package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// fileSource reads a CSV or JSON file, gzip-compressed or not. A file is read
// only when nobody has touched it for a while, so that one that is being
// written in place is met whole; renames and swapped links are met at once.
type fileSource struct {
	FileConfig
	settle   time.Duration
	maxBytes int64
	watch    *watch

	last, kept fs.FileInfo // the version read last, the version in use
}

func newFileSource(cfg FileConfig, settle time.Duration, maxBytes int64) *fileSource {
	return &fileSource{FileConfig: cfg, settle: settle, maxBytes: maxBytes, watch: newWatch(cfg.Path)}
}

func (s *fileSource) changes() <-chan struct{} { return s.watch.poke }

func (s *fileSource) keep() { s.kept = s.last }

func (s *fileSource) close() { s.watch.close() }

func (s *fileSource) read(context.Context) ([]string, error) {
	s.watch.follow() // before looking, so that no change falls between
	before, err := os.Stat(s.Path)
	switch {
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", s.Path)
	case s.kept != nil && sameVersion(s.kept, before):
		return nil, errUnchanged
	}
	// An age below zero is a clock that went back, or another machine's.
	if age := time.Since(before.ModTime()); age >= 0 && age < s.settle {
		return nil, errUnsettled
	}
	codes, err := s.parse()
	if after, gone := os.Stat(s.Path); gone != nil || !sameVersion(before, after) {
		return nil, errUnsettled
	}
	s.last = before
	return codes, err
}

func (s *fileSource) parse() ([]string, error) {
	file, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body, err := readBody(file, s.maxBytes)
	if err == nil {
		var codes []string
		if codes, err = s.codes(body); err == nil {
			return codes, nil
		}
	}
	return nil, fmt.Errorf("cannot read %s: %w", s.Path, err)
}

func (s *fileSource) codes(body []byte) ([]string, error) {
	if s.format() == FormatJSON {
		return parseJSON(body, s.Column)
	}
	return parseCSV(body, s.Column, s.comma())
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readBody reads all of r, uncompressed if it is gzip, and without the byte
// order mark that some programs put in front of UTF-8.
func readBody(r io.Reader, maxBytes int64) ([]byte, error) {
	body, err := readAtMost(r, maxBytes)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = readAtMost(unzipped, maxBytes); err != nil {
			return nil, fmt.Errorf("cannot decompress: %w", err)
		}
	}
	return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), nil
}

var errTooLong = errors.New("longer than max_bytes of the registry's configuration")

func readAtMost(r io.Reader, maxBytes int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err == nil && int64(len(body)) > maxBytes {
		return nil, errTooLong
	}
	return body, err
}
