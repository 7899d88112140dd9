package layers

import (
	"bytes"
	"encoding/binary"
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

// heads is what stands before all blocks of a body: the gzip member says deflate, no
// name, no time, unknown system; the zstd frame that there is no checksum, and what zstdWindow is.
var heads = [encodings][]byte{
	gzipped:   {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255},
	zstandard: {0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3}, // 10 + 10 bits
}

var (
	gzipLast = []byte{1, 0, 0, 0xff, 0xff} // a block that is stored and empty
	zstdLast = []byte{1, 0, 0}             // a block that is raw and empty
)

// tails is what stands behind all blocks.
func tails(content checksum) [encodings][]byte {
	member := binary.LittleEndian.AppendUint32(bytes.Clone(gzipLast), content.crc)
	return [encodings][]byte{
		gzipped:   binary.LittleEndian.AppendUint32(member, uint32(content.size)), // modulo 2³²
		zstandard: zstdLast,
	}
}
