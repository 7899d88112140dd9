// Package gunzip decompresses request bodies: gzip (RFC 1952) with any number of members, header
// fields of any length, and nothing after the last member. The readers of the standard library and
// of klauspost/compress reject header fields of 512 bytes or more, and treat a header that is cut
// off within a field as the end of the stream.
package gunzip

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"trafficd/pipeline/lib/gunzip/inflate"
)

// Errors returned by a Reader, in addition to the errors of package inflate and of the underlying
// reader. If the stream ends too early, a Reader returns an error that wraps io.ErrUnexpectedEOF.
var (
	ErrEmpty    = errors.New("the body is empty")
	ErrHeader   = errors.New("the body does not begin with the gzip magic 1f 8b")
	ErrTrailing = errors.New("bytes after the end of the gzip stream: send one stream and nothing after it")
	ErrChecksum = errors.New("the checksum or the length does not match: the body was corrupted in transit")
)

const (
	bufferSize = 32 << 10
	headerSize = 10
	deflate    = 8 // the only compression method

	// Flags in a header.
	hasCRC     = 1 << 1
	hasExtra   = 1 << 2
	hasName    = 1 << 3
	hasComment = 1 << 4
	reserved   = 0xe0
)

// Reader decompresses gzip. Reset must be called before the first use.
type Reader struct {
	from    counter
	in      *bufio.Reader
	inflate inflate.Reader
	text    []byte // the last result of inflate.Next
	unread  []byte // the part of text that Read has not returned yet
	members int    // number of headers that have been read
	open    bool   // the next byte belongs to the content of a member
	crc     uint32 // checksum of the header, then of the content
	size    uint32 // length of the content, modulo 2^32
	err     error
}

// Reset makes z read from r. It reuses the buffers.
func (z *Reader) Reset(r io.Reader) {
	if z.in == nil {
		z.in = bufio.NewReaderSize(nil, bufferSize)
	}
	z.from = counter{Reader: r}
	z.in.Reset(&z.from)
	z.inflate.Reset(z.in)
	z.text, z.unread, z.members, z.open, z.err = nil, nil, 0, false, nil
}

// Next decompresses more text. It returns the last keep bytes of the previous result and, unless
// there is an error, at least one byte of new text. keep must not exceed inflate.MaxKeep or the
// length of the previous result. io.EOF means that the checksums of all members are correct. Errors
// of the underlying reader are returned unchanged. The result is valid until the next call, must
// not be changed, and has at least inflate.Slack bytes of capacity after its end.
func (z *Reader) Next(keep int) ([]byte, error) {
	z.text = z.text[len(z.text)-keep:]
	for z.err == nil && len(z.text) == keep {
		if !z.open {
			z.err = z.header()
			continue
		}
		z.text, z.err = z.inflate.Next(keep)
		z.crc, z.size = crc32.Update(z.crc, crc32.IEEETable, z.text[keep:]), z.size+uint32(len(z.text)-keep)
		if z.err == io.EOF {
			z.open, z.err = false, z.trailer()
		}
	}
	if z.err == io.ErrUnexpectedEOF {
		z.err = fmt.Errorf("%w after %d bytes", io.ErrUnexpectedEOF, z.from.read)
	}
	return z.text, z.err
}

// Read implements io.Reader, with the errors of Next.
func (z *Reader) Read(p []byte) (n int, err error) {
	if len(z.unread) == 0 {
		z.unread, err = z.Next(0)
	}
	if n = copy(p, z.unread); n > 0 {
		err = nil
	}
	z.unread = z.unread[n:]
	return n, err
}

// header reads the header of the next member. It returns io.EOF if there is none.
func (z *Reader) header() error {
	switch _, err := z.in.Peek(1); {
	case err == io.EOF && z.members > 0:
		return io.EOF
	case err == io.EOF:
		return ErrEmpty
	case err != nil:
		return noEOF(err)
	}
	z.crc = 0
	h, err := z.take(headerSize)
	switch {
	case len(h) > 0 && h[0] != 0x1f || len(h) > 1 && h[1] != 0x8b:
		if z.members > 0 {
			return ErrTrailing
		}
		return foreign(h)
	case err != nil:
		return err
	case h[2] != deflate:
		return fmt.Errorf("unknown compression method %d, must be %d (deflate)", h[2], deflate)
	}
	flags := h[3]
	if flags&reserved != 0 { // the header may have unknown fields
		return fmt.Errorf("reserved flags %#x are set in the gzip header", flags&reserved)
	}
	if flags&hasExtra != 0 {
		if err := z.extra(); err != nil {
			return err
		}
	}
	for _, flag := range []byte{hasName, hasComment} {
		if flags&flag != 0 {
			if err := z.skipText(); err != nil {
				return err
			}
		}
	}
	if flags&hasCRC != 0 {
		if err := z.headerChecksum(); err != nil {
			return err
		}
	}
	z.members, z.open, z.crc, z.size = z.members+1, true, 0, 0
	z.inflate.Begin()
	return nil
}

// foreign returns ErrHeader with the format of a body that starts like this, if it is known.
func foreign(start []byte) error {
	kind := ""
	for magic, name := range map[string]string{
		"\x28\xb5\x2f\xfd": "zstd", "PK\x03\x04": "a ZIP archive", "\xfd7zXZ": "xz", "BZh": "bzip2", "\x04\x22\x4d\x18": "LZ4",
	} {
		if bytes.HasPrefix(start, []byte(magic)) {
			kind = name
		}
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case len(start) > 1 && start[0] == 0x78 && (int(start[0])<<8|int(start[1]))%31 == 0: // RFC 1950
		kind = "zlib, as in Content-Encoding: deflate"
	case len(text) > 0 && (text[0] == '{' || text[0] == '['):
		kind = "JSON that is not compressed"
	case bytes.HasPrefix(start, []byte("H4sI")):
		kind = "gzip in base64"
	}
	if kind == "" {
		return ErrHeader
	}
	return fmt.Errorf("%w; it looks like %s", ErrHeader, kind)
}

// headerChecksum compares the checksum of the header with that in it.
func (z *Reader) headerChecksum() error {
	want := uint16(z.crc)
	got, err := z.take(2)
	if err == nil && binary.LittleEndian.Uint16(got) != want {
		err = ErrChecksum
	}
	return err
}

// extra skips the extra field, which is shorter than 64 KiB.
func (z *Reader) extra() error {
	length, err := z.take(2)
	if err != nil {
		return err
	}
	for left := int(binary.LittleEndian.Uint16(length)); left > 0; {
		part, err := z.take(min(left, bufferSize))
		if err != nil {
			return err
		}
		left -= len(part)
	}
	return nil
}

// skipText skips a field that ends with a zero byte.
func (z *Reader) skipText() error {
	for {
		part, err := z.in.ReadSlice(0)
		z.crc = crc32.Update(z.crc, crc32.IEEETable, part)
		if err != bufio.ErrBufferFull {
			return noEOF(err)
		}
	}
}

// trailer compares the checksum and size of the content with those in the member's trailer.
func (z *Reader) trailer() error {
	crc, size := z.crc, z.size
	t, err := z.take(8)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(t) != crc || binary.LittleEndian.Uint32(t[4:]) != size {
		return ErrChecksum
	}
	return nil
}

// take reads n bytes, at most bufferSize. They are valid until the next read. If the input ends or
// fails earlier, take returns an error and the bytes read so far.
func (z *Reader) take(n int) ([]byte, error) {
	part, err := z.in.Peek(n)
	z.crc = crc32.Update(z.crc, crc32.IEEETable, part)
	_, _ = z.in.Discard(len(part)) // cannot fail: the bytes are in the buffer
	return part, noEOF(err)
}

// counter counts the bytes of the compressed stream.
type counter struct {
	io.Reader
	read int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += int64(n)
	return n, err
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
