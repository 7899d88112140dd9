package layers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// encoding is a content coding.
type encoding int

// The encodings; of two that a client likes as much, the later one is sent.
const (
	identity encoding = iota
	gzipped
	zstandard
	encodings
)

var (
	encodingNames = [encodings][]byte{[]byte("identity"), []byte("gzip"), []byte("zstd")}
	etagSuffix    = [encodings]string{"", "-g", "-z"}
)

// deflateLevel 9 would make the bodies a fifth smaller, in five times the time.
const deflateLevel = 6

// zstdWindow is half of what browsers take (8 MiB), and our repetitions are nearer.
const zstdWindow = 4 << 20

// piece is some bytes of a document and the deflate blocks that stand for them:
// whole bytes, none of them the last block, none looking back before its own start.
type piece struct{ plain, deflated []byte }

// compressor makes the compressed forms. One goroutine at a time.
type compressor struct {
	out     bytes.Buffer
	deflate *flate.Writer
	zstd    *zstd.Encoder
}

func newCompressor() *compressor {
	c := &compressor{}
	var errs [2]error
	c.deflate, errs[0] = flate.NewWriter(nil, deflateLevel)
	c.zstd, errs[1] = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow))
	for _, err := range errs {
		if err != nil {
			panic(fmt.Sprintf("the settings of the compressor are constants: %v", err))
		}
	}
	return c
}

// blocks gives the deflate blocks for plain, ended by a flush. With a new start for
// each piece that is what zlib calls a full flush.
func (c *compressor) blocks(plain []byte) []byte {
	c.out.Reset()
	c.deflate.Reset(&c.out)
	_, _ = c.deflate.Write(plain) // into memory: it cannot fail
	_ = c.deflate.Flush()
	return bytes.Clone(c.out.Bytes())
}

// frame gives plain as one zstd frame.
func (c *compressor) frame(plain []byte) []byte {
	return bytes.Clone(c.zstd.EncodeAll(plain, make([]byte, 0, len(plain)/8+64)))
}

// stored gives a piece that is not worth compressing, such as a comma.
func stored(text string) piece {
	b := []byte{0} // not the last block, stored; the rest of the byte is padding
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	b = binary.LittleEndian.AppendUint16(b, ^uint16(len(text)))
	return piece{[]byte(text), append(b, text...)}
}

var (
	gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255} // deflate, no name, no time, unknown system
	lastBlock  = []byte{1, 0, 0, 0xff, 0xff}                  // stored and empty
)

// join makes the identity body and the gzip body, one member, of the pieces.
// Then the pieces are views into the bodies, so that nothing is kept twice.
func join(pieces []*piece) (plain, member []byte) {
	var sizes [2]int
	for _, p := range pieces {
		sizes[0] += len(p.plain)
		sizes[1] += len(p.deflated)
	}
	plain = make([]byte, 0, sizes[0])
	member = append(make([]byte, 0, len(gzipHeader)+sizes[1]+len(lastBlock)+8), gzipHeader...)
	sum := uint32(0)
	for _, p := range pieces {
		sum = crc32.Update(sum, crc32.IEEETable, p.plain)
		p.plain, plain = moved(plain, p.plain)
		p.deflated, member = moved(member, p.deflated)
	}
	member = append(member, lastBlock...)
	member = binary.LittleEndian.AppendUint32(member, sum)
	return plain, binary.LittleEndian.AppendUint32(member, uint32(len(plain)))
}

// moved appends b to body and gives its place there.
func moved(body, b []byte) (view, longer []byte) {
	longer = append(body, b...)
	return longer[len(body):len(longer):len(longer)], longer
}
