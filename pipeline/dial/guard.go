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
	maxFirstAnswer = 1 << 20   // far more than a broker needs to list the requests it supports
	maxBatch       = 256 << 20 // of a record batch, decompressed
)

// brokerConn is a connection whose first answer must be one of a Kafka broker: a length, then the
// correlation id of the request. kafka-go trusts any length: it would allocate gigabytes for the
// greeting of another kind of server, such as one for HTTP.
type brokerConn struct {
	net.Conn
	request []byte // the start of the first request, up to and including the correlation id
	answer  []byte // the start of the first answer: length and correlation id
}

const (
	requestPrefix = 12 // length 4, API key 2, version 2, correlation id 4
	answerPrefix  = 8  // length 4, correlation id 4
)

// Write implements net.Conn.
func (c *brokerConn) Write(b []byte) (int, error) {
	c.request = append(c.request, b[:min(requestPrefix-len(c.request), len(b))]...)
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *brokerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	missing := answerPrefix - len(c.answer)
	if missing == 0 || n <= 0 {
		return n, err
	}
	c.answer = append(c.answer, b[:min(missing, n)]...)
	plausible := len(c.answer) < 4 || binary.BigEndian.Uint32(c.answer) <= maxFirstAnswer
	if len(c.answer) == answerPrefix && len(c.request) == requestPrefix {
		plausible = plausible && string(c.answer[4:]) == string(c.request[8:])
	}
	if !plausible {
		return 0, fmt.Errorf("%s is not a Kafka broker, or it requires TLS: its answer begins with %q", c.RemoteAddr(), c.answer)
	}
	return n, err
}

// boundCodecs limits the decompressed size of record batches, which kafka-go does not: a few
// kilobytes could become gigabytes. kafka-go looks up codecs in an exported table for the whole
// process; it has no setting for a single client.
var boundCodecs = sync.OnceFunc(func() {
	for i, codec := range compress.Codecs {
		if codec != nil {
			compress.Codecs[i] = boundedCodec{codec}
		}
	}
})

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
		return 0, fmt.Errorf("record batch exceeds %d bytes decompressed", maxBatch)
	}
	return n, err
}
