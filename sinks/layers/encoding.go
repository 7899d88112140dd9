package layers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// encoding is a content coding.
type encoding int

// The encodings.
const (
	identity encoding = iota
	gzipped
	zstandard
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

var encodingNames = [numEncodings][]byte{[]byte("identity"), []byte("gzip"), []byte("zstd")}

// headers precede the blocks of a body: a gzip header with no name or time, and an unknown
// operating system; a zstd frame header with no checksum, and a window size of zstdWindow.
var headers = [numEncodings][]byte{
	gzipped:   {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255},
	zstandard: {0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3}, // 2^(10+10)
}

var (
	deflateEnd = []byte{1, 0, 0, 0xff, 0xff} // the last block: stored, empty
	zstdEnd    = []byte{1, 0, 0}             // the last block: raw, empty
)

// trailersOf returns the trailers that follow the blocks of a body, by encoding.
func trailersOf(content checksum) [numEncodings][]byte {
	member := binary.LittleEndian.AppendUint32(bytes.Clone(deflateEnd), content.crc)
	return [numEncodings][]byte{
		gzipped:   binary.LittleEndian.AppendUint32(member, uint32(content.size)), // modulo 2³²
		zstandard: zstdEnd,
	}
}

// form is a text in one encoding: plain, deflate blocks or zstd blocks. The blocks end at a byte
// boundary, none is marked as the last one, and they decode to the same text whichever form
// precedes them.
type form struct {
	bytes []byte
	plain checksum // of the decoded text
}

// stored returns a text in every encoding, without compressing it.
func stored(text string) (forms [numEncodings]form) {
	plain := []byte(text)
	content := checksum{}.add(plain)
	return [numEncodings]form{{plain, content}, {storeDeflate(plain), content}, {storeZstd(plain), content}}
}

// storeDeflate returns stored deflate blocks (RFC 1951, 3.2.4).
func storeDeflate(plain []byte) (blocks []byte) {
	for chunk := range slices.Chunk(plain, 0xffff) {
		n := uint16(len(chunk))
		blocks = binary.LittleEndian.AppendUint16(append(blocks, 0), n) // not the last block
		blocks = append(binary.LittleEndian.AppendUint16(blocks, ^n), chunk...)
	}
	return blocks
}

// storeZstd returns raw zstd blocks (RFC 8878, 3.1.1.2).
func storeZstd(plain []byte) (blocks []byte) {
	for chunk := range slices.Chunk(plain, maxZstdBlock) {
		blocks = append(appendZstdHeader(blocks, zstdRaw, len(chunk)), chunk...)
	}
	return blocks
}

// Types of zstd blocks.
const (
	zstdRaw        = 0
	zstdRLE        = 1
	zstdCompressed = 2

	maxZstdBlock = 128 << 10
)

// appendZstdHeader appends the header of a block that is not the last one.
func appendZstdHeader(dst []byte, kind, size int) []byte {
	h := size<<3 | kind<<1
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}

const (
	// zstdLevel makes bodies a tenth smaller than gzip does, at many times the cost. The next lower
	// level would make them larger than gzip does.
	zstdLevel = zstd.SpeedBestCompression
	// zstdWindow bounds how far blocks refer back; browsers accept up to 8 MiB.
	zstdWindow = 1 << 20
	// zstdChunk is the size of the text that is compressed at a time. It leaves room in the window
	// for the blocks that independent puts before it.
	zstdChunk = zstdWindow / 4
)

// compressor makes forms. It is not safe for concurrent use.
type compressor struct {
	writer
	deflater deflater
	smaller  *flate.Writer // created when first needed; takes a megabyte
	blocks   bytes.Buffer  // that smaller writes
	piece    *piece        // the piece that text belongs to
	format   format        // of text
	text     []byte        // scratch memory, like all fields below
	content  []byte
	frame    []byte
	zstd     *zstd.Encoder // created with unzstd when first needed; takes 40 MB
	unzstd   *zstd.Decoder
	inflate  io.ReadCloser
	packed   bytes.Reader
	encoded  []byte
	decoded  []byte
}

// compressors is a pool of compressors, each of which takes megabytes. Requests use borrow, which
// limits how many they use at the same time. The builder uses Get, so that it does not wait for
// requests.
type compressors struct {
	sync.Pool
	borrowed chan struct{} // has an element for each compressor that a request uses
}

func newCompressors() *compressors {
	return &compressors{sync.Pool{New: func() any { return new(compressor) }}, make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// put returns a compressor to the pool. It clears c.piece, which would keep an old layer in memory.
func (p *compressors) put(c *compressor) {
	c.piece = nil
	p.Put(c)
}

// borrow waits for a compressor for a request, which must release it before borrowing another one.
func (p *compressors) borrow() *compressor {
	p.borrowed <- struct{}{}
	return p.Get().(*compressor)
}

func (p *compressors) release(c *compressor) {
	p.put(c)
	<-p.borrowed
}

// newZstd returns the encoder of zstd blocks and the decoder that verifies them. Tests replace it.
var newZstd = func() (encoder *zstd.Encoder, decoder *zstd.Decoder) {
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstdLevel),
		zstd.WithWindowSize(zstdWindow), zstd.WithEncoderCRC(false)) // fails only with invalid options, like NewReader
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	return encoder, decoder
}

// form returns a text in an encoding. If small is true, gzip takes longer for a smaller result.
func (c *compressor) form(text []byte, values []value, e encoding, small bool) *form {
	encoded := &form{plain: checksum{}.add(text)}
	switch e {
	case gzipped:
		encoded.bytes = c.deflated(text, values, small)
	case zstandard:
		encoded.bytes = c.zstandard(text)
	default:
		encoded.bytes = bytes.Clone(text)
	}
	return encoded
}

// deflated returns deflate blocks of the text. If the compressed blocks do not decode to the text,
// it returns uncompressed ones.
func (c *compressor) deflated(text []byte, values []value, small bool) []byte {
	var blocks []byte
	if small && len(text) <= maxSmaller {
		blocks = c.deflateSmaller(text)
	} else {
		blocks = c.deflater.deflate(text, values)
	}
	if !c.inflates(blocks, text) {
		blocks = storeDeflate(text)
		piecesStored.Inc()
	}
	return bytes.Clone(blocks)
}

// maxSmaller is the maximum size of a text that deflateSmaller compresses, because it takes about a
// tenth of a second.
const maxSmaller = 1 << 20

// deflateSmaller is like deflater.deflate. The result is 2 to 25% smaller, but it takes up to 30
// times as long. It is valid until the next call.
func (c *compressor) deflateSmaller(text []byte) []byte {
	if c.smaller == nil {
		c.smaller, _ = flate.NewWriter(nil, flate.BestCompression) // fails only with an invalid level
	}
	c.blocks.Reset()
	c.smaller.Reset(&c.blocks)
	_, _ = c.smaller.Write(text)
	_ = c.smaller.Flush() // ends the blocks at a byte boundary
	return c.blocks.Bytes()
}

// inflates reports whether the blocks decode to plain if nothing precedes them.
func (c *compressor) inflates(blocks, plain []byte) bool {
	c.encoded = append(append(c.encoded[:0], blocks...), deflateEnd...)
	c.packed.Reset(c.encoded)
	if c.inflate == nil {
		c.inflate = flate.NewReader(&c.packed)
	}
	_ = c.inflate.(flate.Resetter).Reset(&c.packed, nil) // cannot fail
	c.decoded = slices.Grow(c.decoded[:0], len(plain)+1)[:len(plain)+1]
	n, err := io.ReadFull(c.inflate, c.decoded)
	return (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && bytes.Equal(c.decoded[:n], plain)
}

// zstandard returns zstd blocks of the text. A chunk of text is stored uncompressed unless its
// compressed blocks are verified to decode to it anywhere in a body.
func (c *compressor) zstandard(plain []byte) (blocks []byte) {
	if c.zstd == nil {
		c.zstd, c.unzstd = newZstd()
	}
	for chunk := range slices.Chunk(plain, zstdChunk) {
		compressed := c.zstdBlocks(chunk)
		if !c.independent(compressed, chunk) {
			compressed = storeZstd(chunk)
			piecesStored.Inc()
		}
		blocks = append(blocks, compressed...)
	}
	return slices.Clip(blocks)
}

// zstdBlocks returns the blocks of a zstd frame of plain, none of them marked as the last one. It
// returns nil if it cannot parse the frame.
func (c *compressor) zstdBlocks(plain []byte) []byte {
	c.frame = c.zstd.EncodeAll(plain, c.frame[:0])
	var h zstd.Header
	if err := h.Decode(c.frame); err != nil {
		return nil
	}
	blocks := c.frame[h.HeaderSize:]
	for rest := blocks; len(rest) >= 3; { // RFC 8878, 3.1.1.2
		header := int(rest[0]) | int(rest[1])<<8 | int(rest[2])<<16
		if header&1 == 1 {
			rest[0] &^= 1
			return blocks
		}
		size := header >> 3
		if header>>1&3 == zstdRLE {
			size = 1
		}
		rest = rest[min(3+size, len(rest)):]
	}
	return nil
}

// independent reports whether the blocks decode to plain after any other blocks. They come from a
// separate frame, so they cannot refer to the entropy tables of other blocks. They could still
// inherit the window and the last three match offsets (RFC 8878, 3.1.1.5), which are 1, 4 and 8 at
// the start of a frame. The blocks are therefore decoded after blocks that repeat one byte, the
// filler, and leave three offsets so large that every inherited match copies fillers. Because plain
// does not contain three fillers in a row, and no match is shorter, such a match would be detected.
func (c *compressor) independent(blocks, plain []byte) bool {
	filler := byte(0xff)
	for bytes.Contains(plain, []byte{filler, filler, filler}) {
		if filler--; filler == 0 {
			return false
		}
	}
	prefix, size := appendPoison(append(c.encoded[:0], headers[zstandard]...), filler, len(plain))
	c.encoded = append(append(prefix, blocks...), zstdEnd...)
	var err error
	c.decoded, err = c.unzstd.DecodeAll(c.encoded, c.decoded[:0])
	return err == nil && len(c.decoded) == size+len(plain) && bytes.Equal(c.decoded[size:], plain)
}

// appendPoison appends zstd blocks that repeat filler and leave three match offsets greater than
// reach. It returns the size of their decoded text.
func appendPoison(dst []byte, filler byte, reach int) (blocks []byte, size int) {
	code := bits.Len(uint(reach + 8)) // code of the offsets: 2^code > reach + 8
	size = 1<<code + 8
	for left := size; left > 0; left -= maxZstdBlock {
		dst = append(appendZstdHeader(dst, zstdRLE, min(left, maxZstdBlock)), filler)
	}
	// Three sequences, each of a literal and a match of three bytes. All codes are in RLE mode, so
	// the bit stream consists of the low bits of the offset values, the first one in the highest
	// bits below the stream's end marker. An offset is its value minus 3.
	stream := uint64(1)<<(3*code) | 3<<(2*code) | 4<<code | 5
	block := []byte{3<<3 | 1, filler, 3, 0x54, 1, byte(code), 0}
	block = append(block, binary.LittleEndian.AppendUint64(nil, stream)[:(3*code+8)/8]...)
	return append(appendZstdHeader(dst, zstdCompressed, len(block)), block...), size + 3*(1+3)
}
