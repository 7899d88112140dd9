package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	segmentMagic   = "trjrnl\r\n" // a transfer in text mode would change the line ending
	segmentVersion = 1
	segmentSuffix  = ".seg"
	tempSuffix     = ".tmp"
)

// VersionError reports a file that a different version of this package wrote.
type VersionError struct {
	Path    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, but this program reads version %d; drain the journal with the program that wrote it",
		e.Path, e.Version, segmentVersion)
}

// segmentHeader is the first block of a segment file; doc.go shows its layout.
type segmentHeader struct {
	first     uint64 // seq of its first frame; the file is named after it
	salt      uint64 // random; frames with a different salt are invalid in this file
	prevFirst uint64 // first seq of the previous segment, 0 if there was none
	prevBytes int64  // size of the previous segment
}

// segment is an open segment file.
type segment struct {
	segmentHeader
	path string

	// Guarded by Journal.mu.
	end  int64  // end of the last durable commit; a multiple of blockBytes
	last uint64 // newest durable frame; first-1 if there is none

	// Readers hold a read lock, so that the file is not closed while they use it.
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

// truncate truncates the file durably. It first sets a larger size, so that the size always
// changes: if an earlier attempt truncated the file but failed to sync it, setting the same size
// again would change nothing, and the sync would prove nothing.
func (s *segment) truncate(end int64) error {
	for _, size := range [...]int64{end + blockBytes, end} {
		if err := s.file.Truncate(size); err != nil {
			return fmt.Errorf("cannot truncate %s to %d bytes: %w", s.path, size, err)
		}
	}
	if err := s.file.Sync(); err != nil { // not Datasync, which does not make a smaller size durable
		return fmt.Errorf("cannot sync %s after truncating it: %w", s.path, err)
	}
	return nil
}

// createSegment creates a segment file, or replaces an empty one. If spare is not empty, that file
// is reused. createSegment reserves disk space if the file system supports that, and fails if the
// disk has too little: the header might fit, but the next frame would not.
func createSegment(fs FS, dir, spare string, h segmentHeader, reserve int64) (*segment, error) {
	for markOf(h.salt) == 0 { // zero bytes must not look like a frame
		var b [8]byte
		_, _ = rand.Read(b[:]) // crypto/rand, so that clients cannot forge frames; it never fails
		h.salt = binary.LittleEndian.Uint64(b[:])
	}
	path := filepath.Join(dir, segmentName(h.first))
	file, err := createFile(fs, dir, spare, path, func(f File) error {
		if err := f.Reserve(reserve); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return err
		} // other errors only make commits slower
		_, err := f.WriteAt(h.encode(), 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &segment{segmentHeader: h, path: path, end: blockBytes, last: h.first - 1, file: file}, nil
}

// createFile creates or replaces a file atomically, with the contents that fill writes. If spare is
// not empty, that file is reused or, if it cannot be opened, removed.
func createFile(fs FS, dir, spare, path string, fill func(File) error) (_ File, err error) {
	temp, flag := spare, os.O_RDWR
	if spare == "" {
		temp, flag = path+tempSuffix, flag|os.O_CREATE|os.O_TRUNC
	}
	file, err := fs.Open(temp, flag)
	if err != nil && spare != "" {
		_ = fs.Remove(spare)
		return createFile(fs, dir, "", path, fill)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create %s: %w", temp, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = fs.Remove(temp) // Open would remove the file too; this frees the space now
		}
	}()
	if err := fill(file); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", temp, err)
	}
	if err := file.Sync(); err != nil { // before the rename: the final name implies complete contents
		return nil, fmt.Errorf("cannot sync %s: %w", temp, err)
	}
	if err := fs.Rename(temp, path); err != nil {
		return nil, fmt.Errorf("cannot rename %s to %s: %w", temp, path, err)
	}
	if err := fs.SyncDir(dir); err != nil { // before the file is used: without its name, its frames are lost
		return nil, fmt.Errorf("cannot sync directory %s: %w", dir, err)
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
		return h, &CorruptError{Path: path, Reason: "it does not start with the magic number of a segment"}
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return h, &VersionError{Path: path, Version: v}
	}
	if crc32.Checksum(b[:blockBytes-4], castagnoli) != binary.LittleEndian.Uint32(b[blockBytes-4:]) {
		return h, &CorruptError{Path: path, Reason: "its header has a wrong checksum"}
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	h = segmentHeader{salt: u64(16), first: u64(24), prevFirst: u64(32), prevBytes: int64(u64(40))}
	if filepath.Base(path) != segmentName(h.first) || h.first == 0 || markOf(h.salt) == 0 {
		return h, &CorruptError{Path: path, Reason: fmt.Sprintf("its header (first frame %d) does not match its name", h.first)}
	}
	return h, nil
}

// openSegment opens a segment file and reads its header. The caller determines end and last.
func openSegment(fs FS, path string, flag int) (_ *segment, err error) {
	file, err := fs.Open(path, flag)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("cannot stat %s: %w", path, err)
	}
	if size < blockBytes {
		return nil, &CorruptError{Path: path, Offset: size, Reason: "its header is truncated"}
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

// openSegments opens the segments of a directory, sorted by name and therefore by first frame.
func openSegments(fs FS, dir string, flag int) (_ []*segment, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list directory %s: %w", dir, err)
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
	return segments, nil
}

func closeSegments(segments []*segment) {
	for _, s := range segments {
		_ = s.close()
	}
}

// follows returns an error unless the header of next describes prev.
func follows(prev, next *segment) error {
	if next.prevFirst != prev.first {
		return &CorruptError{
			Path: next.path, Seq: next.first,
			Reason: fmt.Sprintf("the previous segment should be %s, but is %s", segmentName(next.prevFirst), filepath.Base(prev.path)),
		}
	}
	if next.prevBytes != prev.end {
		return &CorruptError{
			Path: prev.path, Offset: min(prev.end, next.prevBytes), Seq: prev.first,
			Reason: fmt.Sprintf("it was sealed with %d bytes but now has %d", next.prevBytes, prev.end),
		}
	}
	return nil
}

func segmentName(first uint64) string {
	return fmt.Sprintf("%020d", first) + segmentSuffix // names sort like numbers
}
