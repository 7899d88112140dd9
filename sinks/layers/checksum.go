package layers

import "hash/crc32"

// checksum is the CRC-32 of some bytes, and how many they are. The checksum of two texts
// one after the other follows from theirs, without going over the texts again.
type checksum struct {
	crc  uint32
	size int
}

func (c checksum) add(text []byte) checksum {
	return checksum{crc32.Update(c.crc, crc32.IEEETable, text), c.size + len(text)}
}

// then is the checksum of what c stands for followed by what next stands for. A CRC is the
// remainder of a polynomial, one bit a coefficient; text that follows shifts it
// by that many bits.
func (c checksum) then(next checksum) checksum {
	return checksum{times(c.crc, shift(next.size)) ^ next.crc, c.size + next.size}
}

// In the CRC's order of bits the highest one is the coefficient of x⁰.
const (
	unity      = uint32(1) << 31
	xToThe8    = unity >> 8
	ieeeModulo = crc32.IEEE
)

// shift is x to the power of 8·size.
func shift(size int) uint32 {
	product := unity
	for square := xToThe8; size > 0; size >>= 1 {
		if size&1 == 1 {
			product = times(product, square)
		}
		square = times(square, square)
	}
	return product
}

// times multiplies two polynomials modulo the CRC's own.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&unity != 0 {
			product ^= b
		}
		carry := b & 1
		b = b>>1 ^ carry*ieeeModulo
	}
	return product
}
