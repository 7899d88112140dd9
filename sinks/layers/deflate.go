package layers

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// deflater compresses texts that consist of similar records into deflate blocks (RFC 1951). A
// general-purpose compressor looks for earlier occurrences of the text at every byte. A deflater is
// told where records differ and looks only there, which takes a fraction of the time and compresses
// equally well. It must not be used concurrently.
type deflater struct {
	blockWriter
	plain  []byte
	end    int                   // end of the text that tokens cover
	table  [1 << tableBits]int32 // positions in plain plus 1, by the high bits of a hash of the text at the position
	shift  int                   // number of bits by which a hash is shifted right to get an index of table
	tokens []token
}

// variable is a part [from, to) of a text that differs between records, such as a number. The text
// between two variables is mostly the same in other records.
type variable struct{ from, to int }

// token is a literal byte, or a match: length<<16 | distance. A match copies length bytes from
// distance bytes earlier in the text.
type token uint32

const (
	tableBits = 15 // bits of an index of table; enough for a piece, because newer positions replace older ones
	minMatch  = 3
	maxMatch  = 258
	window    = 32 << 10 // the maximum distance
)

// deflate returns deflate blocks of plain, valid until the next call. They end at a byte boundary,
// and none is marked as the last one. They decode to plain after any other blocks, because no
// distance reaches back beyond plain. The variables must be in order and must not overlap.
func (d *deflater) deflate(plain []byte, variables []variable) []byte {
	d.plain, d.end, d.tokens = plain, 0, d.tokens[:0]
	width := min(tableBits, bits.Len(uint(len(plain))))
	d.shift = 64 - width
	clear(d.table[:1<<width])
	start := 0
	for _, v := range variables {
		d.constant(start, v.from)
		d.vary(v)
		start = v.to
	}
	d.literals(len(plain))
	return d.write(d.tokens)
}

// constant adds tokens for the text between two variables. It prefers an earlier occurrence that is
// followed by the same value, or at least by a value with the same low bytes: these come first in
// the text, and decimal fractions have few different ones.
func (d *deflater) constant(start, end int) {
	text, value := xxhash.Sum64(d.plain[start:end]), d.word(end)
	for _, count := range [...]int{8, 6, 5, 0} {
		earlier := d.visit(text^(value<<(64-8*count)+uint64(count))*mixer, start)
		if at := max(start, d.end); at < end {
			d.match(earlier+at-start, at, end+count)
		}
	}
	d.vary(variable{max(start, d.end), end}) // the rest has not occurred before
}

// vary adds tokens for a variable. It looks for earlier occurrences at every byte.
func (d *deflater) vary(v variable) {
	for at := v.from; at+8 <= v.to; at++ {
		word := d.word(at)
		if at == v.from {
			if earlier := d.visit(word*mixer, at); d.end <= at {
				d.match(earlier, at, at+8)
			}
		}
		if earlier := d.visit(word<<32*mixer, at); d.end <= at {
			d.match(earlier, at, at+4)
		}
	}
	d.literals(v.to)
}

const mixer = 0x9e3779b97f4a7c15

// visit records the position of a hash, and returns its previous position, or -1 if there is none.
func (d *deflater) visit(hash uint64, position int) (previous int) {
	entry := &d.table[hash>>d.shift]
	previous, *entry = int(*entry)-1, int32(position+1)
	return previous
}

// word returns 8 bytes of the text, padded with zeros at its end.
func (d *deflater) word(at int) (word uint64) {
	if at+8 <= len(d.plain) {
		return binary.LittleEndian.Uint64(d.plain[at:])
	}
	for i, b := range d.plain[at:] {
		word |= uint64(b) << (8 * i)
	}
	return word
}

// match adds tokens for the text from position at, which no tokens cover yet, if it equals the text
// at an earlier position at least up to end.
func (d *deflater) match(earlier, at, end int) {
	if earlier < 0 || earlier >= at || at-earlier > window {
		return
	}
	to := at + d.equal(earlier, at)
	if to < max(end, at+minMatch) {
		return
	}
	d.literals(at)
	for n := len(d.tokens); n > 0 && d.tokens[n-1] < 256 && earlier > 0 && d.plain[earlier-1] == d.plain[at-1]; n-- {
		d.tokens = d.tokens[:n-1] // the match also covers the literal before it
		earlier, at = earlier-1, at-1
	}
	d.end = to
	for distance := at - earlier; at < to; {
		length := min(to-at, maxMatch)
		if rest := to - at - length; rest > 0 && rest < minMatch {
			length -= minMatch
		}
		d.tokens = append(d.tokens, token(length<<16|distance))
		at += length
	}
}

// equal returns the number of equal bytes from positions a and b on; b is the later one.
func (d *deflater) equal(a, b int) (n int) {
	for ; b+n+8 <= len(d.plain); n += 8 {
		if diff := d.word(a+n) ^ d.word(b+n); diff != 0 {
			return n + bits.TrailingZeros64(diff)/8
		}
	}
	for b+n < len(d.plain) && d.plain[a+n] == d.plain[b+n] {
		n++
	}
	return n
}

// literals adds literals for the text before position to that no tokens cover yet.
func (d *deflater) literals(to int) {
	for ; d.end < to; d.end++ {
		d.tokens = append(d.tokens, token(d.plain[d.end]))
	}
}
