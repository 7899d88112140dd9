package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	segmentMagic   = "trjrnl\r\n" // the line end shows a transfer that treated the file as text
	segmentVersion = 1
	segmentSuffix  = ".seg"
	segmentDigits  = 20 // a uint64 in decimal: names sort like numbers
	tempSuffix     = ".tmp"
)

// VersionError says that a file was written by another version of this package; its bytes may be perfectly sound.
type VersionError struct {
	Path    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this program knows version %d; start the program that wrote it and let it drain", e.Path, e.Version, segmentVersion)
}

// segmentHeader is the first block of a segment file; doc.go draws it.
type segmentHeader struct {
	first     uint64 // seq of its first frame; the file is named after it
	salt      uint64 // random; binds the frames to this file
	prevFirst uint64 // first seq of the segment before it, 0 for none
	prevBytes int64  // size at which that one was sealed
}

// segment is one open segment file.
type segment struct {
	segmentHeader
	path string

	// Guarded by Journal.mu.
	end  int64  // end of the last durable commit; a multiple of blockBytes
	last uint64 // newest durable frame; first-1 when there is none

	// mu lets readers finish before the file is closed.
	mu     sync.RWMutex
	file   File
	closed bool
}

func (s *segment) empty() bool { return s.last < s.first }

func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.Close()
}

// cut makes the file end at end, durably. The size is changed in any case: had an earlier attempt shortened the file and
// then failed to sync it, another truncate to the same size would change nothing, and so its sync would prove nothing.
func (s *segment) cut(end int64) error {
	if err := s.file.Truncate(end + blockBytes); err != nil {
		return fmt.Errorf("cannot cut %s to %d bytes: %w", s.path, end, err)
	}
	if err := s.file.Truncate(end); err != nil {
		return fmt.Errorf("cannot cut %s to %d bytes: %w", s.path, end, err)
	}
	if err := s.file.Sync(); err != nil { // fsync, not fdatasync: a smaller size is metadata that no read needs
		return fmt.Errorf("cannot sync %s after cutting it: %w", s.path, err)
	}
	return nil
}

// createSegment makes a segment file durable before anybody can see it: written and synced under a temporary name, renamed,
// folder synced. So a file with the right name always has a whole header. An empty segment of the same name is replaced.
// Space for reserve bytes is taken ahead, where the file system can: it makes each commit cheaper. A disk without so much is full:
// the header alone might fit, and a journal that has just failed would call itself sound, only to fail with the next frame.
func createSegment(fs FS, dir string, h segmentHeader, reserve int64) (*segment, error) {
	h.salt = newSalt()
	path := filepath.Join(dir, segmentName(h.first))
	file, err := createFile(fs, dir, path, func(f File) error {
		if err := f.Reserve(reserve); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		} // without it for another reason commits are slower, no more
		_, err := f.WriteAt(h.encode(), 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &segment{segmentHeader: h, path: path, end: blockBytes, last: h.first - 1, file: file}, nil
}

// createFile creates path with what fill writes, whole or not at all.
func createFile(fs FS, dir, path string, fill func(File) error) (_ File, err error) {
	temp := path + tempSuffix
	file, err := fs.Open(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("cannot create %s: %w", temp, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = fs.Remove(temp) // for its space; Open removes it in any case
		}
	}()
	if err := fill(file); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", temp, err)
	}
	if err := file.Sync(); err != nil { // before the rename: the name stands for whole contents
		return nil, fmt.Errorf("cannot sync %s: %w", temp, err)
	}
	if err := fs.Rename(temp, path); err != nil {
		return nil, fmt.Errorf("cannot rename %s to %s: %w", temp, path, err)
	}
	if err := fs.SyncDir(dir); err != nil { // before use: what is written into the file must not go with its name
		return nil, fmt.Errorf("cannot sync folder %s: %w", dir, err)
	}
	return file, nil
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, blockBytes)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[8:], segmentVersion)
	binary.LittleEndian.PutUint64(b[16:], h.salt)
	binary.LittleEndian.PutUint64(b[24:], h.first)
	binary.LittleEndian.PutUint64(b[32:], h.prevFirst)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.prevBytes))
	binary.LittleEndian.PutUint32(b[blockBytes-4:], crc32.Checksum(b[:blockBytes-4], castagnoli))
	return b
}

func decodeSegmentHeader(path string, b []byte) (h segmentHeader, err error) {
	if string(b[:8]) != segmentMagic {
		return h, &CorruptError{Path: path, Reason: "it does not begin like a segment"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return h, &VersionError{Path: path, Version: v}
	}
	if crc32.Checksum(b[:blockBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[blockBytes-4:]) {
		return h, &CorruptError{Path: path, Reason: "the checksum of its header is wrong"}
	}
	h = segmentHeader{
		salt:      binary.LittleEndian.Uint64(b[16:]),
		first:     binary.LittleEndian.Uint64(b[24:]),
		prevFirst: binary.LittleEndian.Uint64(b[32:]),
		prevBytes: int64(binary.LittleEndian.Uint64(b[40:])),
	}
	if filepath.Base(path) != segmentName(h.first) || h.first == 0 || markOf(h.salt) == 0 {
		return h, &CorruptError{Path: path, Reason: fmt.Sprintf("its header (first frame %d) does not fit its name", h.first)}
	}
	return h, nil
}

// openSegment opens a segment file and reads its header. The caller finds out what end and last are.
func openSegment(fs FS, path string, flag int) (*segment, error) {
	file, err := fs.Open(path, flag)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	s, err := loadSegment(file, path)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

func loadSegment(file File, path string) (*segment, error) {
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("cannot take the size of %s: %w", path, err)
	}
	if size < blockBytes {
		return nil, &CorruptError{Path: path, Offset: size, Reason: "its header is cut off"}
	}
	block := make([]byte, blockBytes)
	if err := readFull(file, block, 0); err != nil {
		return nil, fmt.Errorf("cannot read the header of %s: %w", path, err)
	}
	h, err := decodeSegmentHeader(path, block)
	if err != nil {
		return nil, err
	}
	return &segment{segmentHeader: h, path: path, end: size, last: h.first - 1, file: file}, nil
}

// openSegments opens all segments of a folder in ascending order. On an error it closes what it opened.
func openSegments(fs FS, dir string, flag int) (_ []*segment, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list folder %s: %w", dir, err)
	}
	var segments []*segment
	defer func() {
		if err != nil {
			closeSegments(segments)
		}
	}()
	for _, name := range names {
		if !strings.HasSuffix(name, segmentSuffix) {
			continue
		}
		s, err := openSegment(fs, filepath.Join(dir, name), flag)
		if err != nil {
			return nil, err
		}
		segments = append(segments, s)
	}
	slices.SortFunc(segments, func(a, b *segment) int { return cmp.Compare(a.first, b.first) })
	return segments, nil
}

func closeSegments(segments []*segment) {
	for _, s := range segments {
		_ = s.close()
	}
}

// follows says why next cannot be the segment after prev, or nil.
func follows(prev, next *segment) error {
	if next.prevFirst != prev.first {
		return &CorruptError{
			Path: next.path, Seq: next.first,
			Reason: fmt.Sprintf("the segment before it should be %s, but is %s", segmentName(next.prevFirst), filepath.Base(prev.path)),
		}
	}
	if next.prevBytes != prev.end {
		return &CorruptError{
			Path: prev.path, Offset: min(prev.end, next.prevBytes), Seq: prev.first,
			Reason: fmt.Sprintf("it was sealed with %d bytes and now has %d", next.prevBytes, prev.end),
		}
	}
	return nil
}

func segmentName(first uint64) string {
	digits := strconv.FormatUint(first, 10)
	return strings.Repeat("0", segmentDigits-len(digits)) + digits + segmentSuffix
}

// newSalt is random, so that nobody who sends us bytes can put a frame into them. Its low word, the mark, is never zero:
// zero bytes are no frame.
func newSalt() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand
		if salt := binary.LittleEndian.Uint64(b[:]); markOf(salt) != 0 {
			return salt
		}
	}
}
