package dial

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/segmentio/kafka-go/compress"
)

const (
	maxBatch    = 256 << 20            // maximum size of a record batch, decompressed
	maxResponse = maxBatch + (8 << 20) // maximum size of a response; what other protocols send looks larger
)

// brokerConn is a connection that fails if a response is implausibly large, because its peer speaks
// another protocol: kafka-go would wait for gigabytes.
type brokerConn struct {
	net.Conn
	prefix []byte // the part of a response's length that was received
	left   int    // bytes of the response after it that have yet to be received
}

func (c *brokerConn) Read(b []byte) (int, error) {
	if c.left > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.left)])
		c.left -= n
		return n, err
	}
	n, err := c.Conn.Read(b[:min(len(b), 4-len(c.prefix))])
	if c.prefix = append(c.prefix, b[:n]...); len(c.prefix) < 4 {
		return n, err
	}
	size := binary.BigEndian.Uint32(c.prefix)
	if size > maxResponse {
		return 0, fmt.Errorf("%s is not a Kafka broker, or it requires TLS: its response begins with %q", c.RemoteAddr(), c.prefix)
	}
	c.prefix, c.left = c.prefix[:0], int(size)
	return n, err
}

// boundCodecs limits the decompressed size of record batches in this process: kafka-go has no such
// limit, so a few kilobytes could become gigabytes. It replaces the codecs in kafka-go's global
// table, because they cannot be set for a single client.
var boundCodecs = sync.OnceFunc(func() {
	for i, codec := range compress.Codecs {
		if codec != nil {
			compress.Codecs[i] = boundedCodec{codec}
		}
	}
})

type boundedCodec struct{ compress.Codec }

func (c boundedCodec) NewReader(r io.Reader) io.ReadCloser {
	return &boundedReader{c.Codec.NewReader(r), maxBatch}
}

type boundedReader struct {
	io.ReadCloser
	left int64
}

func (r *boundedReader) Read(b []byte) (n int, err error) {
	n, err = r.ReadCloser.Read(b)
	if r.left -= int64(n); r.left < 0 {
		return 0, fmt.Errorf("record batch exceeds %d bytes after decompression", maxBatch)
	}
	return n, err
}
