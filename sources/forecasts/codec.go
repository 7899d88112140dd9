package forecasts

import (
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/compress"
)

// maxBatch bounds a batch of records, decompressed. The client has no bound of
// its own: a few kilobytes of zeros would be gigabytes.
const maxBatch = 256 << 20

// The client looks codecs up in this table, which is open for others.
func init() {
	for i, codec := range compress.Codecs {
		if codec != nil {
			compress.Codecs[i] = boundedCodec{codec}
		}
	}
}

type boundedCodec struct{ compress.Codec }

// NewReader implements compress.Codec.
func (c boundedCodec) NewReader(r io.Reader) io.ReadCloser {
	return &boundedReader{c.Codec.NewReader(r), maxBatch}
}

type boundedReader struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (r *boundedReader) Read(b []byte) (n int, err error) {
	n, err = r.ReadCloser.Read(b)
	if r.left -= int64(n); r.left < 0 {
		return 0, fmt.Errorf("a batch of records has more than %d bytes, decompressed", maxBatch)
	}
	return n, err
}
