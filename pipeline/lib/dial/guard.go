package dial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxResponse = 8 << 20   // maximum size of a response without records; enough for the cursors of 1000 partitions
	maxBatch    = 256 << 20 // maximum size of a record batch, decompressed
)

// brokerConn is a connection that fails unless each response answers the oldest request without a
// response, has a plausible length, and is valid. kafka-go trusts every length and count in a
// response: it would allocate gigabytes for the response of an HTTP server, and panic in one of its
// goroutines if a count is too large. It checks the records of a fetch response with a checksum, so
// only the length and the correlation ID of that response are checked here.
type brokerConn struct {
	net.Conn

	mu      sync.Mutex      // guards the next fields: consumer groups write while they read
	header  []byte          // header of the request that is being written, until it is complete
	unsent  int             // bytes of that request that follow its header and have yet to be written
	waiting []requestHeader // requests without a response, oldest first
	raw     bool            // messages without headers follow

	response bytes.Buffer // the rest of a valid response, or a part of one that is being received
	valid    bool         // whether response is valid
	records  int          // bytes of a fetch response that follow response and have yet to be received
	isBroker bool         // whether there was a valid response
}

// requestHeader is the part of a request that determines the format of its response.
type requestHeader struct {
	key, version int16
	correlation  uint32
}

const (
	requestPrefix  = 12 // length 4, API key 2, version 2, correlation ID 4
	responsePrefix = 8  // length 4, correlation ID 4
)

func (c *brokerConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	for rest := b; len(rest) > 0 && !c.raw; {
		n := min(c.unsent, len(rest))
		c.unsent, rest = c.unsent-n, rest[n:]
		n = min(requestPrefix-len(c.header), len(rest))
		if c.header, rest = append(c.header, rest[:n]...), rest[n:]; len(c.header) == requestPrefix {
			c.expect()
		}
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// expect adds the request that is being written to those without a response.
func (c *brokerConn) expect() {
	h := requestHeader{
		key: int16(binary.BigEndian.Uint16(c.header[4:])), version: int16(binary.BigEndian.Uint16(c.header[6:])),
		correlation: binary.BigEndian.Uint32(c.header[8:]),
	}
	c.waiting = append(c.waiting, h)
	c.unsent, c.header = int(binary.BigEndian.Uint32(c.header))-(requestPrefix-4), c.header[:0]
	c.raw = h.key == int16(kmsg.SASLHandshake) && h.version == 0 // before Kafka 1.0: tokens without headers follow
}

func (c *brokerConn) Read(b []byte) (int, error) {
	if c.response.Len() == 0 && c.records > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.records)])
		c.records -= n
		return n, err
	}
	if !c.valid {
		c.mu.Lock()
		unchecked := c.raw && len(c.waiting) == 0
		c.mu.Unlock()
		if unchecked {
			return c.Conn.Read(b)
		}
		if err := c.receive(); err != nil {
			return 0, err
		}
	}
	n, err := c.response.Read(b)
	c.valid = c.response.Len() > 0
	return n, err
}

// receive receives and checks the next response. After an error, such as a timeout, the next call
// continues with the same response.
func (c *brokerConn) receive() error {
	err := c.fill(responsePrefix)
	start := c.response.Bytes()
	c.mu.Lock()
	var request requestHeader
	requested := len(c.waiting) > 0
	if requested {
		request = c.waiting[0]
	}
	c.mu.Unlock()
	limit := maxResponse
	if request.key == int16(kmsg.Fetch) {
		limit += maxBatch
	}
	size := 0
	if len(start) >= 4 {
		size = int(binary.BigEndian.Uint32(start))
	}
	implausible := size > limit || len(start) == responsePrefix &&
		(size < 4 || !requested || binary.BigEndian.Uint32(start[4:]) != request.correlation)
	switch {
	case implausible && !c.isBroker:
		return fmt.Errorf("%s is not a Kafka broker, or it requires TLS: its response begins with %q", c.RemoteAddr(), start)
	case implausible:
		return c.invalid(request, fmt.Errorf("it begins with %q", start))
	case err != nil:
		return err
	case request.key == int16(kmsg.Fetch):
		c.records = 4 + size - responsePrefix
	default:
		if err := c.fill(4 + size); err != nil {
			return err
		}
		if err := request.check(c.response.Bytes()[responsePrefix:]); err != nil {
			return c.invalid(request, err)
		}
	}
	c.mu.Lock()
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	c.valid, c.isBroker = true, true
	return nil
}

// fill receives until response has n bytes.
func (c *brokerConn) fill(n int) error {
	_, err := io.CopyN(&c.response, c.Conn, int64(n-c.response.Len()))
	if err == io.EOF && c.response.Len() > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// check returns an error if a response, without its length and correlation ID, is invalid.
func (h requestHeader) check(body []byte) error {
	response := kmsg.ResponseForKey(h.key)
	response.SetVersion(h.version)
	if response.IsFlexible() && h.key != int16(kmsg.ApiVersions) { // the header has a list of tagged fields
		if len(body) == 0 || body[0] != 0 {
			return errors.New("it has an invalid header")
		}
		body = body[1:]
	}
	return response.ReadFrom(body)
}

func (c *brokerConn) invalid(request requestHeader, reason error) error {
	return fmt.Errorf("invalid response of broker %s to a %s request: %w", c.RemoteAddr(), kmsg.NameForKey(request.key), reason)
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
