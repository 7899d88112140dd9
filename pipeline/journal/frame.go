package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// CorruptError reports bytes on disk that differ from what was made durable. A torn tail is not an
// error.
type CorruptError struct {
	Path   string // the segment or cursor file
	Offset int64  // in the file
	Seq    uint64 // the expected frame, 0 if unknown
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("%s is corrupt at offset %d: %s; restore it from a copy", e.Path, e.Offset, e.Reason)
	}
	return fmt.Sprintf("%s is corrupt at offset %d, where frame %d should be: %s; restore it from a copy", e.Path, e.Offset, e.Seq, e.Reason)
}

const (
	// blockBytes is the unit of commits. Commits share no block, so a torn write cannot damage a
	// page or a sector (of 512 or 4096 bytes) that contains acknowledged frames.
	blockBytes       = 4096
	frameAlign       = 8
	frameHeaderBytes = 24
	// maxPayloadBytes is the maximum payload length that the format allows. Lengths are checked
	// against it, and against the size of the file, before memory is allocated.
	maxPayloadBytes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameHeader precedes every payload; doc.go shows its layout.
type frameHeader struct {
	mark   uint32 // the segment's mark; never zero
	length uint32 // of the payload
	seq    uint64
	index  uint32 // position in the commit, whose first frame is seq-index
	sum    uint32 // CRC-32C of the segment's salt, the fields above and the payload
}

func (h frameHeader) encode(dst *[frameHeaderBytes]byte, salt uint64, payload []byte) {
	binary.LittleEndian.PutUint32(dst[0:], markOf(salt))
	binary.LittleEndian.PutUint32(dst[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint64(dst[8:], h.seq)
	binary.LittleEndian.PutUint32(dst[16:], h.index)
	sum := crc32.Update(headerSum(dst, salt), castagnoli, payload)
	binary.LittleEndian.PutUint32(dst[20:], sum)
}

// headerSum returns the checksum of the salt and the header.
func headerSum(header *[frameHeaderBytes]byte, salt uint64) uint32 {
	return crc32.Update(uint32(salt>>32), castagnoli, header[:20])
}

func markOf(salt uint64) uint32 { return uint32(salt) }

// walker steps through the frames of a segment, in order. It reads only the first size bytes of the
// file.
type walker struct {
	file io.ReaderAt
	path string
	salt uint64
	size int64

	seq    uint64 // of the next frame
	off    int64  // end of the previous frame
	index  uint32 // of the next frame, if it belongs to the same commit
	commit int64  // start of the newest commit

	head  [frameHeaderBytes]byte
	chunk []byte // buffer of chunks, allocated on first use
}

func (w *walker) reset(file io.ReaderAt, path string, h segmentHeader, size int64) {
	*w = walker{file: file, path: path, salt: h.salt, size: size, seq: h.first, off: blockBytes, commit: blockBytes, chunk: w.chunk}
}

// skip steps over the next frame without reading its payload.
func (w *walker) skip() error {
	h, at, err := w.find()
	if err == nil {
		w.accept(h, at)
	}
	return err
}

// verify verifies the checksum of the next frame, in bounded memory, and steps over it.
func (w *walker) verify() error {
	h, at, err := w.find()
	if err == nil {
		err = w.check(h, at)
	}
	if err == nil {
		w.accept(h, at)
	}
	return err
}

// read appends the payload of the next frame to dst and steps over it. It verifies the checksum.
func (w *walker) read(dst []byte) ([]byte, error) {
	h, at, err := w.find()
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst = slices.Grow(dst, int(h.length))[:start+int(h.length)]
	if err := readFull(w.file, dst[start:], at+frameHeaderBytes); err != nil {
		return dst[:start], fmt.Errorf("cannot read frame %d at offset %d of %s: %w", h.seq, at, w.path, err)
	}
	if crc32.Update(headerSum(&w.head, w.salt), castagnoli, dst[start:]) != h.sum {
		return dst[:start], w.corrupt(at, "wrong checksum")
	}
	w.accept(h, at)
	return dst, nil
}

// find reads the header of the next frame, which follows the previous one (same commit) or starts
// the next block (new commit). It does not verify the checksum.
func (w *walker) find() (h frameHeader, at int64, err error) {
	near, far := alignUp(w.off, frameAlign), alignUp(w.off, blockBytes)
	h, ok, err := w.headerAt(near)
	if err != nil || ok && h.seq == w.seq && (w.index > 0 && h.index == w.index || near == far && h.index == 0) {
		return h, near, err
	}
	if near < far {
		h, ok, err = w.headerAt(far)
		if err != nil || ok && h.seq == w.seq && h.index == 0 {
			return h, far, err
		}
	}
	return h, near, w.corrupt(near, "no frame starts there or in the next block")
}

// headerAt reads the header at an offset. ok is true if the mark matches and the payload fits into
// the file.
func (w *walker) headerAt(at int64) (h frameHeader, ok bool, err error) {
	if at+frameHeaderBytes > w.size {
		return h, false, nil
	}
	if err := readFull(w.file, w.head[:], at); err != nil {
		return h, false, fmt.Errorf("cannot read a frame's header at offset %d of %s: %w", at, w.path, err)
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(w.head[at:]) }
	h = frameHeader{mark: u32(0), length: u32(4), seq: binary.LittleEndian.Uint64(w.head[8:]), index: u32(16), sum: u32(20)}
	fits := h.length <= maxPayloadBytes && int64(h.length) <= w.size-at-frameHeaderBytes
	return h, h.mark == markOf(w.salt) && fits, nil
}

// check verifies the checksum of the frame whose header is in w.head.
func (w *walker) check(h frameHeader, at int64) error {
	sum := headerSum(&w.head, w.salt)
	err := w.chunks(at+frameHeaderBytes, at+frameHeaderBytes+int64(h.length), func(_ int64, p []byte) error {
		sum = crc32.Update(sum, castagnoli, p)
		return nil
	})
	if err == nil && sum != h.sum {
		err = w.corrupt(at, "wrong checksum")
	}
	return err
}

// chunks reads the bytes in [from, to) and calls do with each piece, until do returns an error.
func (w *walker) chunks(from, to int64, do func(at int64, p []byte) error) error {
	if w.chunk == nil {
		w.chunk = make([]byte, 64<<10)
	}
	for from < to {
		p := w.chunk[:min(int64(len(w.chunk)), to-from)]
		if err := readFull(w.file, p, from); err != nil {
			return fmt.Errorf("cannot read %s at offset %d: %w", w.path, from, err)
		}
		if err := do(from, p); err != nil {
			return err
		}
		from += int64(len(p))
	}
	return nil
}

// accept steps over the frame at offset at.
func (w *walker) accept(h frameHeader, at int64) {
	if h.index == 0 {
		w.commit = at
	}
	w.seq, w.index, w.off = h.seq+1, h.index+1, at+frameHeaderBytes+int64(h.length)
}

func (w *walker) corrupt(at int64, reason string) error {
	return &CorruptError{Path: w.path, Offset: at, Seq: w.seq, Reason: reason}
}

func isCorrupt(err error) bool { return errors.As(err, new(*CorruptError)) }

// roomFor returns the maximum number of bytes that a frame adds to the directory: its blocks and
// the header of a new segment.
func roomFor(payload int) int64 {
	return alignUp(frameHeaderBytes+int64(payload), blockBytes) + blockBytes
}

func alignUp(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

// readFull reads exactly len(p) bytes. It returns io.ErrUnexpectedEOF if there are fewer.
func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
