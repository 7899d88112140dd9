package layers

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// encoding is a content coding.
type encoding int

const (
	identity encoding = iota
	gzipped
	numEncodings
)

// variants yields every combination of format and encoding.
func variants(yield func(format, encoding) bool) {
	for f := range numFormats {
		for e := range numEncodings {
			if !yield(f, e) {
				return
			}
		}
	}
}

var encodingNames = [numEncodings][]byte{[]byte("identity"), []byte("gzip")}

// gzipHeader has no name and no time, and an unknown operating system (RFC 1952, 2.3).
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// gzipTrailer returns the last deflate block, which is stored and empty, and the end of the member.
func gzipTrailer(crc uint32, size int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0xff, 0xff}, crc)
	return binary.LittleEndian.AppendUint32(b, uint32(size)) // modulo 2³²
}

// form is a text in one encoding. As gzip, it consists of deflate blocks that end at a byte
// boundary and refer to nothing before them, so that they can be joined, as pigz does.
type form struct {
	bytes []byte
	crc   uint32 // CRC-32 of the text
	size  int    // size of the text
}

// stored returns a short text in every encoding, without compressing it.
func stored(text string) (forms [numEncodings]form) {
	plain, crc := []byte(text), crc32.ChecksumIEEE([]byte(text))
	block := binary.LittleEndian.AppendUint16([]byte{0}, uint16(len(plain))) // not the last block (RFC 1951, 3.2.4)
	block = append(binary.LittleEndian.AppendUint16(block, ^uint16(len(plain))), plain...)
	return [numEncodings]form{{plain, crc, len(plain)}, {block, crc, len(plain)}}
}

// compressor makes forms. It is not safe for concurrent use.
type compressor struct {
	writers [10]*flate.Writer // by level; created when first needed
	text    []byte            // scratch memory
	packed  bytes.Buffer
}

// compressors is a pool, because a compressor takes megabytes.
var compressors = sync.Pool{New: func() any { return new(compressor) }}

// level returns the compression level for a text of the piece. At 8, the layer is as small as with
// gzip -6. What is made for a single request takes a quarter of the time, and is a tenth larger.
// Changes are a sixth smaller, and take several times as long, but many clients share them.
func (p *piece) level(size int) int {
	switch {
	case p.own:
		return 6
	case p.every && size <= 1<<20:
		return 9
	}
	return 8
}

// form returns the text in an encoding.
func (c *compressor) form(text []byte, e encoding, level int) *form {
	made := &form{crc: crc32.ChecksumIEEE(text), size: len(text)}
	if e == identity {
		made.bytes = slices.Clone(text)
		return made
	}
	if c.writers[level] == nil {
		c.writers[level], _ = flate.NewWriter(nil, level) // fails only with an invalid level
	}
	c.packed.Reset()
	c.writers[level].Reset(&c.packed)
	_, _ = c.writers[level].Write(text) // a bytes.Buffer returns no error
	_ = c.writers[level].Flush()        // ends the blocks at a byte boundary
	made.bytes = slices.Clone(c.packed.Bytes())
	return made
}

// joinCRC returns the CRC-32 of two joined texts. A CRC is the remainder of a polynomial with one
// coefficient for each bit of the text; the highest bit is that of x⁰. Each of the size bytes that
// follow multiplies it by x⁸.
func joinCRC(crc, next uint32, size int) uint32 {
	power := uint32(1) << (31 - 8)
	for ; size > 0; size >>= 1 {
		if size&1 == 1 {
			crc = multiply(crc, power)
		}
		power = multiply(power, power)
	}
	return crc ^ next
}

// multiply returns the product of two polynomials modulo the polynomial of the CRC.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 == 1 {
			product ^= b
		}
		carry := b & 1
		b = b>>1 ^ carry*crc32.IEEE
	}
	return product
}
