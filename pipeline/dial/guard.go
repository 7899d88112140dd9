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
	maxFirstResponse = 1 << 20   // far above the size of a list of supported requests
	maxBatch         = 256 << 20 // maximum size of a record batch, decompressed
)

// brokerConn is a connection that fails unless the first response begins like that of a Kafka
// broker: with a plausible length and the correlation ID of the request. kafka-go trusts any
// length, and would allocate gigabytes for the response of an HTTP server.
type brokerConn struct {
	net.Conn
	request  []byte // the start of the first request, up to and including the correlation ID
	response []byte // the start of the first response: length and correlation ID
}

const (
	requestPrefix  = 12 // length 4, API key 2, version 2, correlation ID 4
	responsePrefix = 8  // length 4, correlation ID 4
)

func (c *brokerConn) Write(b []byte) (int, error) {
	c.request = append(c.request, b[:min(requestPrefix-len(c.request), len(b))]...)
	return c.Conn.Write(b)
}

func (c *brokerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	missing := responsePrefix - len(c.response)
	if missing == 0 || n <= 0 {
		return n, err
	}
	c.response = append(c.response, b[:min(missing, n)]...)
	plausible := len(c.response) < 4 || binary.BigEndian.Uint32(c.response) <= maxFirstResponse
	if len(c.response) == responsePrefix && len(c.request) == requestPrefix {
		plausible = plausible && string(c.response[4:]) == string(c.request[8:])
	}
	if !plausible {
		return 0, fmt.Errorf("%s is not a Kafka broker, or it requires TLS: its response begins with %q", c.RemoteAddr(), c.response)
	}
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
