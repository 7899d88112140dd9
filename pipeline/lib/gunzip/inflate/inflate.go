// Package inflate decompresses DEFLATE streams (RFC 1951). Next returns a slice of the Reader's own
// buffer, so that no text is copied for the caller. A Reader uses the same amount of memory for
// every stream.
package inflate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// Errors for invalid streams. If a stream ends too early, Next returns io.ErrUnexpectedEOF.
var (
	ErrBlock    = errors.New("deflate: unknown block type")
	ErrStored   = errors.New("deflate: the length of a stored block does not match its complement")
	ErrCode     = errors.New("deflate: invalid Huffman code")
	ErrDistance = errors.New("deflate: a match begins before the start of the stream")
)

const (
	// Slack is the number of bytes after the text returned by Next that the caller may read and
	// overwrite. Their values are undefined.
	Slack = 64
	// MaxKeep is the largest argument of Next.
	MaxKeep = maxDistance

	maxDistance = 32 << 10              // maximum distance of a match
	chunk       = 32 << 10              // Next returns after this much new text, which is then still in the CPU's caches
	size        = maxDistance + 4*chunk // if the text in buf is longer, Next moves the part that is still needed to the start
	maxMatch    = 258
	maxCopy     = 512 + 16 // bytes after the start of a match that decode may read or write
	maxLoad     = 24       // bytes of input that an iteration of decode may read
	bufSize     = size + chunk + maxCopy + 2*Slack
)

// Reader decompresses consecutive streams of its input. Reset must be called before the first use.
type Reader struct {
	pos   int // end of the text in buf
	start int // start of the current stream's text in buf

	last   bool // the current block is the last one
	fixed  bool // tables contains the fixed codes
	next   part
	stored int // number of bytes left in a stored block

	limit   uint // decode starts no iteration if the text in buf ends at limit or later
	stop    uint // decode starts no iteration if the next byte of the input is after stop
	lengths [maxCodes]uint8
	input   input
	tables  // of the current block
	buf     [bufSize]byte
}

// part is the kind of data that follows in the input.
type part uint8

const (
	blockHeader part = iota
	storedBytes
	codes
	nothing
)

// Reset makes r read from in, which must have a buffer of at least 64 bytes. Begin must be called
// before Next.
func (r *Reader) Reset(in *bufio.Reader) {
	r.pos, r.next = 0, nothing
	r.input.reset(in)
}

// Begin makes Next decompress the stream that starts at the next byte of the input.
func (r *Reader) Begin() {
	r.start, r.next, r.last = r.pos, blockHeader, false
	r.input.reset(r.input.from)
}

// Next decompresses more text. It returns the last keep bytes of the previous result and, unless
// there is an error, at least one byte of new text. keep must not exceed MaxKeep or the length of
// the previous result. At the end of the stream, the error is io.EOF, and the next byte of the
// input is the one after the stream. The result is valid until the next call and must not be
// changed.
func (r *Reader) Next(keep int) ([]byte, error) {
	if r.pos > size {
		from := r.pos - max(keep, min(maxDistance, r.pos-r.start))
		copy(r.buf[:], r.buf[from:r.pos])
		r.pos, r.start = r.pos-from, max(r.start-from, 0)
	}
	before := r.pos
	var err error
	for limit := r.pos + chunk; r.pos < limit && err == nil; {
		switch r.next {
		case blockHeader:
			err = r.header()
		case storedBytes:
			err = r.copyStored(limit)
		case codes:
			err = r.decode(limit)
		case nothing:
			if err = r.input.finish(); err == nil {
				err = io.EOF
			}
		}
	}
	if err != nil && r.input.over() { // the error may be caused by the zeros after the end of the input
		err = r.input.endError()
	}
	return r.buf[before-keep : r.pos : r.pos+Slack], err
}

// header reads the header of a block.
func (r *Reader) header() error {
	in := &r.input
	if r.last {
		r.next = nothing
		return nil
	}
	if err := in.refill(); err != nil {
		return err
	}
	r.last = in.take(1) == 1
	switch in.take(2) {
	case 0:
		return r.storedHeader()
	case 1:
		if !r.fixed {
			r.tables, r.fixed = fixed, true
		}
	case 2:
		if err := r.readTables(); err != nil {
			return err
		}
	default:
		return ErrBlock
	}
	r.next = codes
	return nil
}

func (r *Reader) storedHeader() error {
	in := &r.input
	if err := in.align(); err != nil {
		return err
	}
	if in.fill(); in.end-in.at < 4 {
		return in.endError()
	}
	length := binary.LittleEndian.Uint32(in.src[in.at:])
	in.at += 4
	if length&0xffff != ^length>>16 {
		return ErrStored
	}
	r.stored, r.next = int(length&0xffff), storedBytes
	return nil
}

// copyStored copies the available bytes of a stored block, until the text reaches limit.
func (r *Reader) copyStored(limit int) error {
	in := &r.input
	if in.at == in.end {
		if in.fill(); in.at == in.end && r.stored > 0 {
			return in.endError()
		}
	}
	n := copy(r.buf[r.pos:limit], in.src[in.at:min(in.end, in.at+r.stored)])
	r.pos, in.at = r.pos+n, in.at+n
	if r.stored -= n; r.stored == 0 {
		r.next = blockHeader
	}
	return nil
}

// decode decompresses codes of a block until the text reaches limit, the block ends, or more input
// is needed.
//
// An iteration decodes up to three literals, or up to two and a match. It copies a match 16 bytes
// at a time, possibly past its end. It always copies the first 32 bytes, because a mispredicted
// branch would cost more.
//
// The time of an iteration depends on its chain of dependent shifts and lookups, which variables
// outside registers would lengthen. Therefore r is the only pointer that the loop needs: the
// tables and both buffers are arrays in r, and limit and stop are fields. Bits are shifted out
// before values are computed from a copy of them. Only the lowest six bits of n are used, so that a
// whole table entry can be subtracted from it.
func (r *Reader) decode(limit int) error {
	in := &r.input
	in.fill()
	r.limit, r.stop = uint(limit), uint(in.end-maxLoad)
	if in.err != nil { // one iteration at a time, because each must check whether the input had enough bits
		r.limit, r.stop = uint(r.pos+1), uint(len(in.src)-maxLoad)
	}
	at, bits, n, o := uint(in.at), in.bits, in.n, uint(r.pos)
	var err error
loop:
	for at <= r.stop && o < min(r.limit, bufSize-maxCopy-2) { // min avoids bounds checks
		bits |= binary.LittleEndian.Uint64(r.input.src[at:at+8]) << (n & 63)
		at += ^n >> 3 & 7
		n |= 56
		e := r.literals[bits&(1<<litRoot-1)]
		if e&isLiteral != 0 {
			bits >>= e & 63
			n -= uint(e)
			r.buf[o] = byte(e >> 16)
			o++
			e = r.literals[bits&(1<<litRoot-1)]
			if e&isLiteral != 0 {
				bits >>= e & 63
				n -= uint(e)
				r.buf[o] = byte(e >> 16)
				o++
				e = r.literals[bits&(1<<litRoot-1)]
				bits |= binary.LittleEndian.Uint64(r.input.src[at:at+8]) << (n & 63)
				at += ^n >> 3 & 7
				n |= 56
				if e&isLiteral != 0 {
					bits >>= e & 63
					n -= uint(e)
					r.buf[o] = byte(e >> 16)
					o++
					continue
				}
			}
		}
		// At most one literal was taken from the 56 bits. The remaining bits suffice for a length
		// with a code in the root table (11 bits and 5 extra bits) and a distance (15 and 13).
		if e&isOther != 0 {
			if e&isSub != 0 {
				bits |= binary.LittleEndian.Uint64(r.input.src[at:at+8]) << (n & 63)
				at += ^n >> 3 & 7
				n |= 56
				bits >>= e & 63
				n -= uint(e)
				e = r.literals[uint64(e>>16)+bits&(1<<(e>>8&15)-1)]
				if e&isLiteral != 0 {
					bits >>= e & 63
					n -= uint(e)
					r.buf[o] = byte(e >> 16)
					o++
					continue
				}
			}
			if e&isOther != 0 {
				bits >>= e & 63
				n -= uint(e)
				if e>>16 != 0 {
					err = ErrCode
				}
				r.next = blockHeader
				break loop
			}
		}
		taken := bits
		bits >>= e & 63
		n -= uint(e)
		length := uint(e>>16) + uint((taken^bits<<(e&63))>>(e>>8&63))

		e = r.distances[bits&(1<<distRoot-1)]
		if e&isOther != 0 {
			if e&isSub != 0 {
				bits >>= e & 63
				n -= uint(e)
				e = r.distances[uint64(e>>16)+bits&(1<<(e>>8&15)-1)]
			}
			if e&isOther != 0 {
				n -= uint(e)
				err = ErrCode
				break
			}
		}
		taken = bits
		bits >>= e & 63
		n -= uint(e)
		distance := uint(e>>16) + uint((taken^bits<<(e&63))>>(e>>8&63))
		from := o - distance
		if int(from) < r.start || max(from, o) > bufSize-maxCopy { // the latter is always false; it avoids bounds checks
			err = ErrDistance
			break
		}
		if distance < 32 {
			repeat(r.buf[:], int(o), int(o+length), int(distance))
			o += length
			continue
		}
		src, dst := r.buf[from:from+maxCopy], r.buf[o:o+maxCopy]
		o += length
		*(*[16]byte)(dst[:16]) = *(*[16]byte)(src[:16])
		*(*[16]byte)(dst[16:32]) = *(*[16]byte)(src[16:32])
		for i := uint(32); i < length&511; i += 16 {
			*(*[16]byte)(dst[i : i+16]) = *(*[16]byte)(src[i : i+16])
		}
	}
	in.at, in.bits, in.n = int(at), bits, n&63
	if in.over() {
		return in.endError()
	}
	r.pos = int(o)
	return err
}

// repeat fills out[o:end] with repetitions of out[o-distance:o]. It may write up to seven bytes
// after end. It is for small distances, for which each copy of 16 bytes would depend on the one
// before.
func repeat(out []byte, o, end, distance int) {
	wide := (15/distance + 1) * distance // the smallest multiple of distance that is at least 16
	stop := min(end, o+wide-distance)
	if distance >= 8 {
		for ; o < stop; o += 8 {
			binary.LittleEndian.PutUint64(out[o:], binary.LittleEndian.Uint64(out[o-distance:]))
		}
	} else {
		word := binary.LittleEndian.Uint64(out[o-distance:]) & (1<<(8*distance) - 1)
		for have := 8 * distance; have < 64; have *= 2 {
			word |= word << have
		}
		for step := 8 / distance * distance; o < stop; o += step {
			binary.LittleEndian.PutUint64(out[o:], word)
		}
	}
	for from := o - wide; o < end; {
		o += copy(out[o:end], out[from:o])
	}
}

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
