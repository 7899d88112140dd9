// Package inflate decompresses DEFLATE streams (RFC 1951) into a buffer that it shares with its
// caller: the text that Next returns is also the history from which later matches copy, so no byte
// is copied twice. The memory is fixed, whatever a stream contains.
package inflate

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// Errors of invalid streams. A stream that ends too early is io.ErrUnexpectedEOF.
var (
	ErrBlock    = errors.New("deflate: unknown block type")
	ErrStored   = errors.New("deflate: the length of a stored block does not match its complement")
	ErrCode     = errors.New("deflate: invalid Huffman code")
	ErrDistance = errors.New("deflate: a match begins before the start of the stream")
)

const (
	// Slack is the number of bytes after the text of Next that may be read. They have no meaning.
	Slack = 64
	// MaxKeep is the largest argument of Next.
	MaxKeep = history

	history  = 32 << 10 // the largest distance of a match
	chunk    = 32 << 10 // Next returns little more: the text is still in the CPU's caches when it is used
	size     = history + 4*chunk
	maxMatch = 258
	maxCopy  = 512 + 16 // bytes after the start of a match that decode may read or write
	maxLoad  = 24       // bytes of input that an iteration of decode may read
	bufSize  = size + chunk + maxCopy + 2*Slack
)

// Reader decompresses streams that follow each other in its input. The zero value must be Reset.
type Reader struct {
	pos   int // end of the text in buf
	start int // of the current stream's text in buf

	last   bool // the current block is the last one
	fixed  bool // tables are the fixed ones
	next   part
	stored int // bytes left of a stored block

	limit   uint // of decode: an iteration begins below this position in buf
	stop    uint // and up to this one in the input
	lengths [maxCodes]uint8
	input   input
	tables  // of the current block
	buf     [bufSize]byte
}

// part is what follows in the input.
type part uint8

const (
	blockHeader part = iota
	storedBytes
	codes
	nothing
)

// Reset makes r read from in, which must have a buffer of at least 64 bytes. A stream begins with
// Begin.
func (r *Reader) Reset(in *bufio.Reader) {
	r.pos, r.next = 0, nothing
	r.input.reset(in)
}

// Begin begins a stream at the next byte of the input.
func (r *Reader) Begin() {
	r.start, r.next, r.last = r.pos, blockHeader, false
	r.input.reset(r.input.from)
}

// Next decompresses more. It returns the last keep bytes of all text since Reset and, after them,
// what is new: at least one byte, unless there is an error. At the end of the stream that is
// io.EOF, and the input continues with the byte after the stream. The text is valid until the next
// call and must not be changed.
func (r *Reader) Next(keep int) ([]byte, error) {
	if r.pos > size {
		from := r.pos - max(keep, min(history, r.pos-r.start))
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
	if err != nil && r.input.over() { // the error may be due to zeros after the end of the input
		err = r.input.early()
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
		return in.early()
	}
	length := binary.LittleEndian.Uint32(in.src[in.at:])
	in.at += 4
	if length&0xffff != ^length>>16 {
		return ErrStored
	}
	r.stored, r.next = int(length&0xffff), storedBytes
	return nil
}

// copyStored copies bytes of a stored block.
func (r *Reader) copyStored(limit int) error {
	in := &r.input
	if in.at == in.end {
		if in.fill(); in.at == in.end && r.stored > 0 {
			return in.early()
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
// An iteration has up to three literals, or two and a match. Matches are copied 16 bytes at a time,
// past their end, and the first 32 bytes without asking for the length: branches that cannot be
// predicted cost more.
//
// The time of an iteration is that of the shifts and look-ups that wait for each other. A variable
// that the compiler has no register for would lengthen it. Therefore the loop needs no pointer but
// r: the tables and both buffers are arrays in r, limit and stop are fields. Bits are shifted
// before values are computed from those taken. Only the lowest six bits of n count, so that entries
// can be subtracted as they are.
func (r *Reader) decode(limit int) error {
	in := &r.input
	in.fill()
	r.limit, r.stop = uint(limit), uint(in.end-maxLoad)
	if in.err != nil { // one iteration at a time, to see whether its bits are there
		r.limit, r.stop = uint(r.pos+1), uint(len(in.src)-maxLoad)
	}
	at, bits, n, o := uint(in.at), in.bits, in.n, uint(r.pos)
	var err error
loop:
	for at <= r.stop && o < min(r.limit, bufSize-maxCopy-2) { // min spares checks of indexes
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
		// At most one literal was taken from the 56 bits. The others suffice for a length with a code
		// in the root (11 bits and 5 extra ones) and a distance (15 and 13).
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
		if int(from) < r.start || max(from, o) > bufSize-maxCopy { // max spares checks of indexes: it is never so large
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
		return in.early()
	}
	r.pos = int(o)
	return err
}

// repeat fills out[o:end] with the distance bytes before it, which are so few that the CPU would
// wait for them to be written. It writes up to seven bytes more.
func repeat(out []byte, o, end, distance int) {
	wide := (15/distance + 1) * distance // the text repeats after that many bytes, too; then after twice as many
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
