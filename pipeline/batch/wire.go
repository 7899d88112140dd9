package batch

import (
	"encoding/binary"
	"fmt"
)

// WireReader reads binary messages, such as frames, cursors and plans. After the first error all
// methods return zero values, so callers need to check the error only once, at the end.
type WireReader struct {
	rest []byte
	err  error
	kind error // wrapped by all errors
}

// NewWireReader returns a reader of b whose errors wrap kind. The byte slices that its methods
// return are views into b.
func NewWireReader(b []byte, kind error) WireReader { return WireReader{rest: b, kind: kind} }

// Err returns the first error, or nil.
func (r *WireReader) Err() error { return r.err }

// Left returns the number of unread bytes, or 0 after an error.
func (r *WireReader) Left() int { return len(r.rest) }

// Fail records an error unless there has already been one.
func (r *WireReader) Fail(reason string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s (%d bytes left)", r.kind, reason, len(r.rest))
	}
	r.rest = nil
}

// End returns the first error, or an error if unread bytes are left.
func (r *WireReader) End() error {
	if len(r.rest) != 0 {
		r.Fail("trailing bytes")
	}
	return r.err
}

// Bytes reads n bytes.
func (r *WireReader) Bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.Fail("unexpected end")
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Byte reads one byte.
func (r *WireReader) Byte() byte {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Version reads one byte, which must equal want.
func (r *WireReader) Version(want byte) {
	if v := r.Byte(); v != want {
		r.Fail(fmt.Sprintf("unsupported version %d, but this program reads %d", v, want))
	}
}

// Uint64 reads eight bytes in little-endian order.
func (r *WireReader) Uint64() uint64 {
	if b := r.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Uvarint reads a number that binary.AppendUvarint appended.
func (r *WireReader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

// Varint reads a number that binary.AppendVarint appended.
func (r *WireReader) Varint() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *WireReader) skip(n int) {
	if n <= 0 {
		r.Fail("invalid number")
		return
	}
	r.rest = r.rest[n:]
}

// Count reads the number of elements that follow. Each takes at least one byte, so a count that
// exceeds the number of unread bytes is an error and cannot cause a large allocation.
func (r *WireReader) Count() int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)) {
		r.Fail("count too large")
		return 0
	}
	return int(n)
}

// Counted reads bytes that AppendCounted appended.
func (r *WireReader) Counted() []byte { return r.Bytes(r.Count()) }

// AppendCounted appends the length of b, then b.
func AppendCounted[T string | []byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
