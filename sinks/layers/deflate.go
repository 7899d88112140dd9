package layers

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// deflater compresses text made up of similar records into DEFLATE blocks (RFC 1951). A
// general-purpose compressor looks for earlier occurrences of the text at every byte. A deflater is
// told where records differ and looks only there, which takes a fraction of the time and compresses
// equally well. It is not safe for concurrent use.
type deflater struct {
	blockWriter
	plain  []byte
	end    int                   // end of the part of plain that tokens already cover
	table  [1 << tableBits]int32 // positions in plain plus 1 (0: none), indexed by the high bits of a hash of the text there
	shift  int                   // right shift that turns a hash into an index into table
	tokens []token
}

// value is a part [from, to) of a text that differs between records, such as a number. The text
// between two values is usually the same in every record.
type value struct{ from, to int }

// token is a literal byte, or a match: length<<16 | distance. A match copies length bytes from
// distance bytes earlier in the text.
type token uint32

const (
	tableBits   = 15 // log2 of the size of table; enough for one piece, because newer positions overwrite older ones
	minMatch    = 3
	maxMatch    = 258
	maxDistance = 32 << 10 // the maximum distance
)

// deflate compresses plain into DEFLATE blocks, which are valid until the next call. They end at a
// byte boundary, and none is marked as the final block. They can follow any other blocks, because
// no match refers to text before the start of plain. The values must be in order and must not
// overlap.
func (d *deflater) deflate(plain []byte, values []value) []byte {
	d.plain, d.end, d.tokens = plain, 0, d.tokens[:0]
	width := min(tableBits, bits.Len(uint(len(plain))))
	d.shift = 64 - width
	clear(d.table[:1<<width])
	start := 0
	for _, v := range values {
		d.addConstant(start, v.from)
		d.addValue(v)
		start = v.to
	}
	d.literals(len(plain))
	return d.write(d.tokens)
}

// addConstant adds tokens for the text between two values. It prefers an earlier occurrence that is
// followed by the same value, or at least by a value with the same low bytes: these come first in
// the text, and decimal fractions have only a few distinct ones.
func (d *deflater) addConstant(start, end int) {
	text, next := xxhash.Sum64(d.plain[start:end]), d.word(end)
	for _, count := range [...]int{8, 6, 5, 0} {
		earlier := d.visit(text^(next<<(64-8*count)+uint64(count))*mixer, start)
		if at := max(start, d.end); at < end {
			d.match(earlier+at-start, at, end+count)
		}
	}
	d.addValue(value{max(start, d.end), end}) // the rest has not occurred before
}

// addValue adds tokens for a value. It looks for earlier occurrences at every byte.
func (d *deflater) addValue(v value) {
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

// word returns the 8 bytes of plain at position at, padded with zeros after its end.
func (d *deflater) word(at int) (word uint64) {
	if at+8 <= len(d.plain) {
		return binary.LittleEndian.Uint64(d.plain[at:])
	}
	for i, b := range d.plain[at:] {
		word |= uint64(b) << (8 * i)
	}
	return word
}

// match adds tokens for the text that starts at position at, if it equals the text that starts at
// earlier, at least up to end. No token may cover position at yet.
func (d *deflater) match(earlier, at, end int) {
	if earlier < 0 || earlier >= at || at-earlier > maxDistance {
		return
	}
	to := at + d.matchLen(earlier, at)
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

// matchLen returns the length of the common prefix of plain[a:] and plain[b:]. a must be less than
// b.
func (d *deflater) matchLen(a, b int) (n int) {
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

// literals adds a literal for each byte before position to that no token covers yet.
func (d *deflater) literals(to int) {
	for ; d.end < to; d.end++ {
		d.tokens = append(d.tokens, token(d.plain[d.end]))
	}
}
