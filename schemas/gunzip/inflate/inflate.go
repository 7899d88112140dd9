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
)

// Reader decompresses streams that follow each other in its input. The zero value must be Reset.
type Reader struct {
	buf   []byte
	pos   int // end of the text in buf
	start int // of the current stream's text in buf

	input  input
	last   bool // the current block is the last one
	next   part
	stored int // bytes left of a stored block

	literals  *litTable
	distances *distTable
	own       struct { // tables of the current block, if it has its own
		literals  litTable
		distances distTable
	}
	lengths [maxCodes]uint8
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
	if r.buf == nil {
		r.buf = make([]byte, size+chunk+maxMatch+2*Slack)
	}
	r.pos, r.next = 0, nothing
	r.input = input{from: in}
}

// Begin begins a stream at the next byte of the input.
func (r *Reader) Begin() {
	r.start, r.next, r.last = r.pos, blockHeader, false
	r.input = input{from: r.input.from}
}

// Next decompresses more. It returns the last keep bytes of all text since Reset and, after them,
// what is new: at least one byte, unless there is an error. At the end of the stream that is
// io.EOF, and the input continues with the byte after the stream. The text is valid until the next
// call and must not be changed.
func (r *Reader) Next(keep int) ([]byte, error) {
	if r.pos > size {
		from := r.pos - max(keep, min(history, r.pos-r.start))
		copy(r.buf, r.buf[from:r.pos])
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
		r.literals, r.distances = &fixed.literals, &fixed.distances
	case 2:
		if err := r.readTables(); err != nil {
			return err
		}
		r.literals, r.distances = &r.own.literals, &r.own.distances
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
// An iteration has up to three look-ups of literals and one match. It loads eight bytes of input at
// a time, and copies matches 16 bytes at a time, past their end.
func (r *Reader) decode(limit int) error {
	in := &r.input
	in.fill()
	before := r.pos
	if in.err != nil { // one iteration at a time, to see whether its bits are there
		limit = before + 1
	}
	src, at, bits, n := in.src, in.at, in.bits, in.n
	stop := len(src) - 16
	out, o := r.buf, r.pos
	literals, distances := r.literals, r.distances
	litMask, distMask := uint64(1)<<literals.root-1, uint64(1)<<distances.root-1
	var err error
loop:
	for at <= stop && o < limit {
		bits |= binary.LittleEndian.Uint64(src[at:]) << (n & 63)
		at += int((63 - n) >> 3 & 7)
		n |= 56
		e := literals.entries[bits&litMask]
		if e&isLiteral != 0 {
			bits >>= e & 63
			n -= uint(e & 63)
			out[o] = byte(e >> 16)
			o++
			e = literals.entries[bits&litMask]
			if e&isLiteral != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				out[o] = byte(e >> 16)
				o++
				e = literals.entries[bits&litMask]
				if e&isLiteral != 0 {
					bits >>= e & 63
					n -= uint(e & 63)
					out[o] = byte(e >> 16)
					o++
					continue
				}
			}
		}
		if e&isOther != 0 {
			if e&isSub != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				e = literals.entries[uint64(e>>16)+bits&(1<<(e>>8&15)-1)]
				if e&isLiteral != 0 {
					bits >>= e & 63
					n -= uint(e & 63)
					out[o] = byte(e >> 16)
					o++
					continue
				}
			}
			if e&isOther != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				if e>>16 != 0 {
					err = ErrCode
				}
				r.next = blockHeader
				break loop
			}
		}
		length := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e & 63)

		if n < 2*maxLength { // a distance has at most 15 bits of code and 13 more
			bits |= binary.LittleEndian.Uint64(src[at:]) << (n & 63)
			at += int((63 - n) >> 3 & 7)
			n |= 56
		}
		e = distances.entries[bits&distMask]
		if e&isOther != 0 {
			if e&isSub != 0 {
				bits >>= e & 63
				n -= uint(e & 63)
				e = distances.entries[uint64(e>>16)+bits&(1<<(e>>8&15)-1)]
			}
			if e&isOther != 0 {
				n -= uint(e & 63)
				err = ErrCode
				break
			}
		}
		distance := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		n -= uint(e & 63)
		from := o - distance
		if from < r.start {
			err = ErrDistance
			break
		}
		end := o + length
		if distance < 32 {
			repeat(out, o, end, distance)
			o = end
			continue
		}
		for ; o < end; o, from = o+16, from+16 {
			*(*[16]byte)(out[o : o+16]) = *(*[16]byte)(out[from : from+16])
		}
		o = end
	}
	in.at, in.bits, in.n, r.pos = at, bits, n, o
	if in.over() {
		r.pos = before
		return in.early()
	}
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
