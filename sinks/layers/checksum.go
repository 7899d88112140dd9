package layers

import "hash/crc32"

// checksum is the CRC-32 and the length of a text. The checksum of two concatenated texts can be
// computed from their checksums.
type checksum struct {
	crc  uint32
	size int
}

// add returns the checksum of c's text followed by more text.
func (c checksum) add(text []byte) checksum {
	return checksum{crc32.Update(c.crc, crc32.IEEETable, text), c.size + len(text)}
}

// then returns the checksum of c's text followed by next's text. A CRC is the remainder of a
// polynomial with one coefficient for each bit; each bit that follows multiplies it by x.
func (c checksum) then(next checksum) checksum {
	shift := unity
	for i, size := 0, next.size; size > 0; i, size = i+1, size>>1 {
		if size&1 == 1 {
			shift = multiply(shift, squares[i])
		}
	}
	return checksum{multiply(c.crc, shift) ^ next.crc, c.size + next.size}
}

// In the bit order of the CRC, the highest bit is the coefficient of x⁰.
const (
	unity   = uint32(1) << 31
	xToThe8 = unity >> 8
)

// squares holds x to the powers of 8, 16, 32 and so on.
var squares = func() (all [63]uint32) {
	for i, square := 0, xToThe8; i < len(all); i, square = i+1, multiply(square, square) {
		all[i] = square
	}
	return all
}()

// multiply returns the product of two polynomials modulo the polynomial of the CRC.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&unity != 0 {
			product ^= b
		}
		carry := b & 1
		b = b>>1 ^ carry*crc32.IEEE
	}
	return product
}
