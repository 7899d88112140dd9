package batch

import (
	"encoding/binary"
	"fmt"
)

// WireReader takes bytes apart that were put together by appending numbers, counts
// and texts: frames, cursors, plans. After the first error all reads give zero, so
// that the error is looked at once, at the end.
type WireReader struct {
	rest []byte
	err  error
	kind error
}

// NewWireReader starts reading b; errors wrap kind. What Bytes gives are views into b.
func NewWireReader(b []byte, kind error) WireReader { return WireReader{rest: b, kind: kind} }

// Err is the first error.
func (u *WireReader) Err() error { return u.err }

// Left is the number of bytes that are not read yet, 0 after an error.
func (u *WireReader) Left() int { return len(u.rest) }

// Fail makes what the first error, if there was none.
func (u *WireReader) Fail(what string) {
	if u.err == nil {
		u.err = fmt.Errorf("%w: %s with %d bytes to go", u.kind, what, len(u.rest))
	}
	u.rest = nil
}

// End is the error of the whole: surplus bytes are one too.
func (u *WireReader) End() error {
	if len(u.rest) != 0 {
		u.Fail("surplus bytes")
	}
	return u.err
}

// Bytes takes n bytes, nil where there are not as many.
func (u *WireReader) Bytes(n int) []byte {
	if n < 0 || n > len(u.rest) {
		u.Fail("cut off")
		return nil
	}
	b := u.rest[:n:n]
	u.rest = u.rest[n:]
	return b
}

// Byte takes one byte.
func (u *WireReader) Byte() byte {
	if b := u.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Version takes one byte, which has to be want.
func (u *WireReader) Version(want byte) {
	if v := u.Byte(); v != want && u.err == nil {
		u.Fail(fmt.Sprintf("version %d, this program reads %d,", v, want))
	}
}

// Uint64 takes eight bytes, little endian.
func (u *WireReader) Uint64() uint64 {
	if b := u.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint takes what binary.AppendUvarint appended.
func (u *WireReader) Uvarint() uint64 {
	v, n := binary.Uvarint(u.rest)
	u.skip(n)
	return v
}

// Varint takes what binary.AppendVarint appended.
func (u *WireReader) Varint() int64 {
	v, n := binary.Varint(u.rest)
	u.skip(n)
	return v
}

func (u *WireReader) skip(n int) {
	if n <= 0 {
		u.Fail("bad number")
		return
	}
	u.rest = u.rest[n:]
}

// Count takes a number of things that take at least one byte each, so that no
// memory is taken for more than there can be.
func (u *WireReader) Count() int {
	n := u.Uvarint()
	if n > uint64(len(u.rest)) {
		u.Fail("count too large")
		return 0
	}
	return int(n)
}

// Counted takes a count and as many bytes, as AppendCounted appended them.
func (u *WireReader) Counted() []byte { return u.Bytes(u.Count()) }

// AppendCounted appends the length of b and b.
func AppendCounted[T string | []byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
