package inflate

import (
	"bufio"
	"encoding/binary"
	"io"
)

const (
	// ahead is the number of bytes of input that fill provides.
	ahead = 32

	inputSize = 8 << 10
)

// input is a stream of bits. After the last byte it continues with zeros, and over reports that
// some were used.
type input struct {
	from *bufio.Reader
	at   int                       // next byte of src
	end  int                       // of the input's bytes in src
	bits uint64                    // bits that were loaded, the next one lowest
	n    uint                      // how many; the bits above them are zero, or equal to src[at]
	err  error                     // why there is nothing after src
	src  [inputSize + 2*ahead]byte // a copy of bytes that from has buffered, then zeros
}

// reset makes in read from the next byte of from.
func (in *input) reset(from *bufio.Reader) {
	in.from, in.at, in.end, in.bits, in.n, in.err = from, 0, 0, 0, 0, nil
}

// fill makes at least ahead bytes of src available, the last of which may be zeros after the end.
func (in *input) fill() {
	if in.err != nil || in.end-in.at >= ahead {
		return
	}
	in.unload()
	_, _ = in.from.Discard(in.at) // they are in its buffer
	_, in.err = in.from.Peek(ahead)
	next, _ := in.from.Peek(min(in.from.Buffered(), inputSize))
	in.at, in.end = 0, copy(in.src[:], next)
	clear(in.src[in.end : in.end+2*ahead])
}

// refill loads at least 56 bits.
func (in *input) refill() error {
	if in.fill(); in.over() {
		return in.early()
	}
	in.bits |= binary.LittleEndian.Uint64(in.src[in.at:]) << (in.n & 63)
	in.at += int((63 - in.n) >> 3)
	in.n |= 56
	return nil
}

// take returns the next k bits, which must be loaded.
func (in *input) take(k uint) uint {
	v := uint(in.bits & (1<<k - 1))
	in.bits >>= k
	in.n -= k
	return v
}

// unload returns unused whole bytes to the input.
func (in *input) unload() {
	in.at -= int(in.n >> 3)
	in.n &= 7
	in.bits &= 1<<in.n - 1
}

// align drops the bits up to the next byte.
func (in *input) align() error {
	in.unload()
	in.bits, in.n = 0, 0
	if in.at > in.end {
		return in.early()
	}
	return nil
}

// over reports whether bits after the end of the input were taken.
func (in *input) over() bool { return in.err != nil && in.at*8-int(in.n) > in.end*8 }

// early returns the error for an input that ends within a stream.
func (in *input) early() error {
	if in.err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return in.err
}

// finish leaves the input at the byte after the last one of the stream.
func (in *input) finish() error {
	if err := in.align(); err != nil {
		return err
	}
	_, _ = in.from.Discard(in.at)
	in.reset(in.from)
	return nil
}
