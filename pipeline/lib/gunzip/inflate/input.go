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

// input is a stream of bits. After its last byte it continues with zeros; over reports whether any
// of these zeros were taken.
type input struct {
	from *bufio.Reader
	at   int                       // index in src of the next byte to load
	end  int                       // end of the input's bytes in src
	bits uint64                    // the loaded bits; the next one is the lowest
	n    uint                      // number of loaded bits; higher ones are zero, or the bits of src[at:]
	err  error                     // reason why the input ends at end; nil if more may follow
	src  [inputSize + 2*ahead]byte // a copy of bytes in the buffer of from, then zeros
}

// reset makes in read from the next byte of from.
func (in *input) reset(from *bufio.Reader) {
	in.from, in.at, in.end, in.bits, in.n, in.err = from, 0, 0, 0, 0, nil
}

// fill makes at least ahead bytes of src available, which are zeros after the end of the input.
func (in *input) fill() {
	if in.err != nil || in.end-in.at >= ahead {
		return
	}
	in.unload()
	_, _ = in.from.Discard(in.at) // cannot fail: the bytes are in the buffer of from
	_, in.err = in.from.Peek(ahead)
	next, _ := in.from.Peek(min(in.from.Buffered(), inputSize))
	in.at, in.end = 0, copy(in.src[:], next)
	clear(in.src[in.end : in.end+2*ahead])
}

// refill ensures that at least 56 bits are loaded.
func (in *input) refill() error {
	if in.fill(); in.over() {
		return in.endError()
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

// unload returns the whole bytes among the loaded bits to src.
func (in *input) unload() {
	in.at -= int(in.n >> 3)
	in.n &= 7
	in.bits &= 1<<in.n - 1
}

// align skips the bits up to the next byte of the input.
func (in *input) align() error {
	in.unload()
	in.bits, in.n = 0, 0
	if in.at > in.end {
		return in.endError()
	}
	return nil
}

// over reports whether bits after the end of the input were taken.
func (in *input) over() bool { return in.err != nil && in.at*8-int(in.n) > in.end*8 }

// endError returns the error for an input that ends within a stream.
func (in *input) endError() error {
	if in.err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return in.err
}

// finish advances in.from to the byte after the stream.
func (in *input) finish() error {
	if err := in.align(); err != nil {
		return err
	}
	_, _ = in.from.Discard(in.at)
	in.reset(in.from)
	return nil
}
