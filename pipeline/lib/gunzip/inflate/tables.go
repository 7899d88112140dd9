package inflate

import "math/bits"

// A table has 2^root entries, one for each value of the next root bits of the input, followed by
// subtables for longer codes. The bits of an entry are:
//
//	0–5    number of bits to take: the bits of the code and the extra bits
//	8–11   number of bits of the code; in a link, number of bits of the subtable's index
//	13–15  flags
//	16–31  a literal, the base of a length or distance, or the start of a subtable
//
// In the entries of a subtable, the numbers of bits exclude the root bits.
const (
	isSub     = 1 << 13 // a link to a subtable; isOther is set too
	isOther   = 1 << 14 // a link, the end of the block (bits 16–31 contain 0) or an invalid code (they contain 1)
	isLiteral = 1 << 15
	invalid   = isOther | 1<<16

	endOfBlock   = 256
	maxLitCodes  = 288
	maxDistCodes = 32
	maxCodes     = maxLitCodes + maxDistCodes
	maxLength    = 15 // maximum length of a code in bits
	litRoot      = 11 // root bits of each table
	distRoot     = 8
	precodeRoot  = 7
)

// tables contains the tables of a block. Their sizes suffice for every complete code: see enough.c
// in zlib.
type tables struct {
	literals  [2342]uint32
	distances [402]uint32
}

// The entries of all symbols, without the lengths of their codes, and the tables of the fixed
// codes.
var (
	litSymbols     [maxLitCodes]uint32
	distSymbols    [maxDistCodes]uint32
	precodeSymbols [19]uint32
	fixed          tables
)

func init() {
	for i := range litSymbols {
		litSymbols[i] = invalid
	}
	for i := range 256 {
		litSymbols[i] = uint32(i)<<16 | isLiteral
	}
	litSymbols[endOfBlock] = isOther
	for i, base := 0, 3; i < 28; i++ {
		extra := max(0, i/4-1)
		litSymbols[257+i] = uint32(base)<<16 | uint32(extra)
		base += 1 << extra
	}
	litSymbols[285] = maxMatch << 16
	for i, base := 0, 1; i < maxDistCodes; i++ {
		distSymbols[i] = invalid
		if i < 30 {
			extra := max(0, i/2-1)
			distSymbols[i] = uint32(base)<<16 | uint32(extra)
			base += 1 << extra
		}
	}
	for i := range precodeSymbols {
		precodeSymbols[i] = uint32(i) << 16
	}
	lengths := fixedLengths()
	_ = build(fixed.literals[:], litRoot, lengths[:maxLitCodes], litSymbols[:])
	_ = build(fixed.distances[:], distRoot, lengths[maxLitCodes:], distSymbols[:])
}

// fixedLengths returns the lengths of the fixed codes (RFC 1951, 3.2.6): literals and lengths, then
// distances.
func fixedLengths() (lengths [maxCodes]uint8) {
	for i := range lengths {
		switch {
		case i < 144, i >= 280 && i < maxLitCodes:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < maxLitCodes:
			lengths[i] = 7
		default:
			lengths[i] = 5
		}
	}
	return lengths
}

// build makes the table of the canonical code whose codewords have the given lengths. It returns an
// error if the code is invalid. A code may be incomplete only if it has no symbols, or one symbol
// whose codeword has one bit.
func build(table []uint32, root uint, lengths []uint8, symbols []uint32) error {
	var count, next [maxLength + 2]uint16
	for _, l := range lengths {
		count[l]++
	}
	longest := uint(maxLength)
	for longest > 0 && count[longest] == 0 {
		longest--
	}
	count[0] = 0
	left := 1
	for l := 1; l <= maxLength; l++ {
		if left = left<<1 - int(count[l]); left < 0 {
			return ErrCode
		}
		next[l+1] = next[l] + count[l]
	}
	if left > 0 && longest > 1 {
		return ErrCode
	}
	var sorted [maxLitCodes]uint16
	for symbol, l := range lengths {
		if l != 0 {
			sorted[next[l]] = uint16(symbol)
			next[l]++
		}
	}

	// For each code length, the filled part of the table is doubled first. The bits of codes are
	// reversed, as in the input.
	code, k, first := uint(0), 0, uint(1)
	if left > 0 {
		table[0], table[1], first = invalid|1, invalid|1, 2
		if longest == 1 {
			table[0] = symbols[sorted[0]] + 0x101
		}
	}
	for l := first; l <= root; l++ {
		copy(table[1<<(l-1):1<<l], table[:1<<(l-1)])
		for range count[l] {
			table[code] = symbols[sorted[k]] + uint32(l)*0x101
			code = increment(code, l)
			k++
		}
	}
	end, prefix, start := uint(1)<<root, ^uint(0), uint(0)
	for l := root + 1; l <= longest; l++ {
		for left := int(count[l]); left > 0; left-- {
			if code&(1<<root-1) != prefix { // the code starts the next subtable
				prefix, start = code&(1<<root-1), end
				width := l - root
				for used := left; used < 1<<width; used = used<<1 + int(count[root+width]) {
					width++
				}
				table[prefix] = uint32(start)<<16 | isOther | isSub | uint32(width)<<8 | uint32(root)
				end += 1 << width
			}
			entry := symbols[sorted[k]] + uint32(l-root)*0x101
			for i := start + code>>root; i < end; i += 1 << (l - root) {
				table[i] = entry
			}
			code = increment(code, l)
			k++
		}
	}
	return nil
}

// increment returns the n-bit codeword that follows code, or 0 if there is none. The bits of both
// are reversed.
func increment(code, n uint) uint {
	zeros := code ^ (1<<n - 1)
	if zeros == 0 {
		return 0
	}
	top := uint(1) << (bits.Len(zeros) - 1)
	return code&(top-1) | top
}

// order is the order of the precode's lengths in a stream.
var order = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// readTables reads the code lengths of a block and builds its tables.
func (r *Reader) readTables() error {
	in := &r.input
	literals, distances := int(in.take(5))+257, int(in.take(5))+1
	if literals > 286 || distances > 30 {
		return ErrCode
	}
	var precodeLengths [19]uint8
	for i := range in.take(4) + 4 {
		if err := in.refill(); err != nil {
			return err
		}
		precodeLengths[order[i]] = uint8(in.take(3))
	}
	var precode [1 << precodeRoot]uint32
	if err := build(precode[:], precodeRoot, precodeLengths[:], precodeSymbols[:]); err != nil {
		return err
	}
	lengths := r.lengths[:literals+distances]
	for i := 0; i < len(lengths); {
		if err := in.refill(); err != nil {
			return err
		}
		e := precode[in.bits&(1<<precodeRoot-1)]
		in.take(uint(e & 63))
		symbol := e >> 16
		length, times := uint8(0), 1
		switch {
		case e&isOther != 0:
			return ErrCode
		case symbol < 16:
			length = uint8(symbol)
		case symbol == 16:
			if times = 3 + int(in.take(2)); i == 0 {
				return ErrCode
			}
			length = lengths[i-1]
		case symbol == 17:
			times = 3 + int(in.take(3))
		default:
			times = 11 + int(in.take(7))
		}
		if times > len(lengths)-i {
			return ErrCode
		}
		for range times {
			lengths[i] = length
			i++
		}
	}
	if lengths[endOfBlock] == 0 {
		return ErrCode
	}
	r.fixed = false
	if err := build(r.literals[:], litRoot, lengths[:literals], litSymbols[:]); err != nil {
		return err
	}
	return build(r.distances[:], distRoot, lengths[literals:], distSymbols[:])
}
