package layers

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// blockWriter writes deflate blocks with dynamic Huffman codes (RFC 1951, 3.2.7).
type blockWriter struct {
	bytes   []byte
	pending uint64 // bits that are not in bytes yet, the first one in the lowest position
	count   int    // number of pending bits, less than 32
}

// values is the range of lengths or distances that share a symbol. It begins with base; extra is
// the number of bits after the symbol that select a value.
type values struct{ base, extra int }

const (
	endOfBlock = 256
	maxBits    = 15 // the longest code
)

// The symbols of matches (RFC 1951, 3.2.5).
var (
	lengthSymbols [maxMatch + 1]int // indexed by length
	lengths       [endOfBlock + 30]values
	distances     [30]values
)

func init() {
	base := minMatch
	for s := endOfBlock + 1; s < len(lengths); s++ {
		lengths[s] = values{base, max(0, (s-endOfBlock-1)/4-1)}
		for ; base < lengths[s].base+1<<lengths[s].extra && base <= maxMatch; base++ {
			lengthSymbols[base] = s
		}
	}
	last := len(lengths) - 1 // the last symbol encodes only the maximum length
	lengths[last], lengthSymbols[maxMatch] = values{maxMatch, 0}, last
	base = 1
	for s := range distances {
		distances[s] = values{base, max(0, s/2-1)}
		base += 1 << distances[s].extra
	}
}

func distanceSymbol(distance int) int {
	if distance <= 2 {
		return distance - 1
	}
	n := bits.Len(uint(distance-1)) - 2 // number of bits after the highest two
	return 2*n + (distance-1)>>n
}

// codesOf returns the Huffman codes for the literals and lengths in tokens, and for the distances.
func codesOf(tokens []token) (codes [len(lengths)]code, distanceCodes [len(distances)]code) {
	var literal [len(lengths)]int // frequencies of the symbols
	var distance [len(distances)]int
	literal[endOfBlock] = 1
	for _, t := range tokens {
		if t < 256 {
			literal[t]++
			continue
		}
		literal[lengthSymbols[t>>16]]++
		distance[distanceSymbol(int(t&0xffff))]++
	}
	prefixCodes(codes[:], literal[:], maxBits)
	prefixCodes(distanceCodes[:], distance[:], maxBits)
	return codes, distanceCodes
}

// write returns a block of the tokens, followed by an empty one that ends at a byte boundary. The
// result is valid until the next call.
func (w *blockWriter) write(tokens []token) []byte {
	w.bytes = w.bytes[:0]
	codes, distanceCodes := codesOf(tokens)
	w.header(codes[:], distanceCodes[:])
	for _, t := range tokens {
		if t < 256 {
			w.code(codes[t])
			continue
		}
		length, distance := int(t>>16), int(t&0xffff)
		s := lengthSymbols[length]
		w.code(codes[s])
		w.bits(length-lengths[s].base, lengths[s].extra)
		s = distanceSymbol(distance)
		w.code(distanceCodes[s])
		w.bits(distance-distances[s].base, distances[s].extra)
	}
	w.code(codes[endOfBlock])
	w.bits(0, 3) // an uncompressed block, whose length follows at a byte boundary
	for ; w.count > 0; w.count -= min(8, w.count) {
		w.bytes = append(w.bytes, byte(w.pending))
		w.pending >>= 8
	}
	w.bytes = append(w.bytes, 0, 0, 0xff, 0xff)
	return w.bytes
}

// bits appends a value of count bits.
func (w *blockWriter) bits(value, count int) {
	w.pending |= uint64(value) << w.count
	if w.count += count; w.count >= 32 {
		w.bytes = binary.LittleEndian.AppendUint32(w.bytes, uint32(w.pending))
		w.pending >>= 32
		w.count -= 32
	}
}

func (w *blockWriter) code(c code) { w.bits(int(c.bits), int(c.count)) }

// Symbols of the header for repeated code lengths. Lower symbols are the code lengths themselves.
const (
	repeatLast  = 16 // the previous length, 3 to 6 times
	repeatZero  = 17 // 0, 3 to 10 times
	repeatZeros = 18 // 0, 11 to 138 times
)

// headerOrder is the order in which the header lists the lengths of its own codes.
var headerOrder = [19]int{repeatLast, repeatZero, repeatZeros, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// header writes the header of a block, which contains the lengths of these codes.
func (w *blockWriter) header(codes, distanceCodes []code) {
	unused := func(c code) bool { return c.count == 0 }
	for unused(distanceCodes[len(distanceCodes)-1]) {
		distanceCodes = distanceCodes[:len(distanceCodes)-1]
	}
	for unused(codes[len(codes)-1]) {
		codes = codes[:len(codes)-1]
	}
	type item struct{ symbol, value, extra int }
	items := make([]item, 0, maxSymbols)
	var frequencies [len(headerOrder)]int
	add := func(symbol, value, extra int) {
		items = append(items, item{symbol, value, extra})
		frequencies[symbol]++
	}
	for all := append(append(make([]code, 0, maxSymbols), codes...), distanceCodes...); len(all) > 0; {
		count, n := int(all[0].count), 1
		for n < len(all) && all[n].count == all[0].count && n < 138 {
			n++
		}
		switch {
		case count == 0 && n >= 11:
			add(repeatZeros, n-11, 7)
		case count == 0 && n >= 3:
			add(repeatZero, n-3, 3)
		case n >= 4:
			n = min(n, 7)
			add(count, 0, 0)
			add(repeatLast, n-4, 2)
		default:
			n = 1
			add(count, 0, 0)
		}
		all = all[n:]
	}
	var headerCodes [len(headerOrder)]code
	prefixCodes(headerCodes[:], frequencies[:], 7)
	order := headerOrder[:]
	for unused(headerCodes[order[len(order)-1]]) {
		order = order[:len(order)-1]
	}
	w.bits(0b10<<1, 3) // not the last block; dynamic Huffman codes
	w.bits(len(codes)-257, 5)
	w.bits(len(distanceCodes)-1, 5)
	w.bits(len(order)-4, 4)
	for _, s := range order {
		w.bits(int(headerCodes[s].count), 3)
	}
	for _, i := range items {
		w.code(headerCodes[i.symbol])
		w.bits(i.value, i.extra)
	}
}

// code is the Huffman code of a symbol: count bits, the first one in the lowest position. An unused
// symbol has no bits.
type code struct {
	bits  uint16
	count uint8
}

// maxSymbols is the total number of symbols. It is a constant, so that scratch memory of this size
// can be on the stack.
const maxSymbols = len(lengths) + len(distances)

// prefixCodes sets canonical Huffman codes (RFC 1951, 3.2.2) of at most limit bits for symbols with
// the given frequencies. codes must be zero. At least two symbols get a code.
func prefixCodes(codes []code, frequencies []int, limit int) {
	leaves := make([]int, 0, maxSymbols) // frequency<<16 | symbol
	for s, n := range frequencies {
		if n > 0 {
			leaves = append(leaves, n<<16|s)
		}
	}
	for s := 0; len(leaves) < 2; s++ {
		if frequencies[s] == 0 {
			leaves = append(leaves, s)
		}
	}
	slices.Sort(leaves)
	for setLengths(codes, leaves) > limit {
		for i, leaf := range leaves {
			leaves[i] = (leaf>>17+1)<<16 | leaf&0xffff // closer frequencies shorten the longest code
		}
	}
	var next [maxBits + 1]int // indexed by length: the number of codes, then the next code
	for _, c := range codes {
		next[c.count]++
	}
	for count, first := 1, 0; count <= limit; count++ {
		next[count], first = first, (first+next[count])<<1
	}
	for s, c := range codes {
		if c.count > 0 {
			codes[s].bits = bits.Reverse16(uint16(next[c.count])) >> (16 - c.count)
			next[c.count]++
		}
	}
}

// setLengths sets the lengths of the codes with Huffman's algorithm, and returns the greatest
// length.
func setLengths(codes []code, leaves []int) (longest int) {
	nodes := make([]int, 0, 2*maxSymbols) // frequencies; inner nodes follow the leaves; both are in ascending order
	for _, leaf := range leaves {
		nodes = append(nodes, leaf>>16)
	}
	var parents, depths [2 * maxSymbols]int // index of each node's parent, number of its ancestors
	leaf, inner := 0, len(leaves)
	for len(nodes) < 2*len(leaves)-1 {
		sum := 0
		for range 2 { // the two least frequent nodes without a parent
			least := &inner
			if leaf < len(leaves) && (inner == len(nodes) || nodes[leaf] <= nodes[inner]) {
				least = &leaf
			}
			sum += nodes[*least]
			parents[*least] = len(nodes)
			*least++
		}
		nodes = append(nodes, sum)
	}
	for i := len(nodes) - 2; i >= 0; i-- {
		if depths[i] = depths[parents[i]] + 1; i < len(leaves) {
			codes[leaves[i]&0xffff].count = uint8(depths[i])
			longest = max(longest, depths[i])
		}
	}
	return longest
}
