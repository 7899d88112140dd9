package layers

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// piece is some bytes of a document in each encoding: as they are, as deflate blocks, and
// as zstd blocks. Blocks are whole bytes, none of them is the last one, and none
// looks back before the piece's start.
type piece struct {
	forms [encodings][]byte
	sums  [encodings]uint64 // hashes of the forms
}

func newPiece(plain, deflated, zstd []byte) *piece {
	p := &piece{forms: [encodings][]byte{identity: plain, gzipped: deflated, zstandard: zstd}}
	for e, form := range p.forms {
		p.sums[e] = xxhash.Sum64(form)
	}
	return p
}

// deflateLevel 9 would make the bodies a fifth smaller, in five times the time.
const deflateLevel = 6

// zstdLevel: the next better one would make the bodies 6 % smaller, and a build that changes
// everything a quarter longer.
const zstdLevel = zstd.SpeedDefault

// zstdWindow is how far a zstd block looks back, at most; browsers take up to 8 MiB. It is
// more than a piece usually has.
const zstdWindow = 1 << 20

// compressor makes pieces. One goroutine at a time.
type compressor struct {
	out     bytes.Buffer
	deflate *flate.Writer
	frame   []byte
	zstd    *zstd.Encoder
}

func newCompressor() *compressor {
	c := &compressor{}
	var errs [2]error
	c.deflate, errs[0] = flate.NewWriter(nil, deflateLevel)
	c.zstd, errs[1] = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstdLevel),
		zstd.WithWindowSize(zstdWindow), zstd.WithEncoderCRC(false))
	for _, err := range errs {
		if err != nil {
			panic(fmt.Sprintf("the settings of the compressor are constants: %v", err))
		}
	}
	return c
}

// piece compresses plain, and keeps it.
func (c *compressor) piece(plain []byte) *piece {
	return newPiece(plain, c.deflated(plain), c.zstdBlocks(plain))
}

// deflated gives the deflate blocks for plain, ended by a flush. With a new start for
// each piece that is what zlib calls a full flush.
func (c *compressor) deflated(plain []byte) []byte {
	c.out.Reset()
	c.deflate.Reset(&c.out)
	_, _ = c.deflate.Write(plain) // into memory: it cannot fail
	_ = c.deflate.Flush()
	return bytes.Clone(c.out.Bytes())
}

// zstdBlocks gives the zstd blocks for plain. They come out of a frame of their own, so they
// use no table and no byte from before. What else a block may inherit are the three
// offsets used last: in the middle of a frame they are not what they are at
// its beginning (RFC 8878, 3.1.1.5). The encoder names none of them before a block
// has set all three by itself.
func (c *compressor) zstdBlocks(plain []byte) []byte {
	if len(plain) == 0 {
		return nil
	}
	c.frame = c.zstd.EncodeAll(plain, c.frame[:0])
	var h zstd.Header
	if err := h.Decode(c.frame); err != nil {
		panic(fmt.Sprintf("the zstd encoder made a frame without a header: %v", err))
	}
	blocks := bytes.Clone(c.frame[h.HeaderSize:])
	unmarkLast(blocks)
	return blocks
}

// unmarkLast takes the mark off the last block (RFC 8878, 3.1.1.2).
func unmarkLast(blocks []byte) {
	const rle = 1
	for {
		header := uint32(blocks[0]) | uint32(blocks[1])<<8 | uint32(blocks[2])<<16
		if header&1 == 1 {
			blocks[0] &^= 1
			return
		}
		size := header >> 3
		if header>>1&3 == rle {
			size = 1 // one byte, size times
		}
		blocks = blocks[3+size:]
	}
}

// stored gives a piece that is not worth compressing, such as a comma.
func stored(text string) *piece {
	n := uint16(len(text))
	deflated := binary.LittleEndian.AppendUint16([]byte{0}, n) // not the last block, stored; the rest of the byte is padding
	deflated = binary.LittleEndian.AppendUint16(deflated, ^n)
	raw := binary.LittleEndian.AppendUint16(nil, n<<3) // not the last block, raw
	return newPiece([]byte(text), append(deflated, text...), append(append(raw, 0), text...))
}
