package api

import (
	"bytes"
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection. Its Close ensures that the client receives the response even if
// the request's body was not read.
type conn struct {
	net.Conn          // the TLS connection, or raw itself without TLS
	raw      net.Conn // the TCP connection
	owner    *listener
	address  netip.Prefix  // of the client; see addressOf
	silent   *list.Element // element of owner.silent; nil after a valid key or an eviction; guarded by owner.mu
	used     atomic.Bool   // a byte of a request has arrived
	unread   atomic.Bool   // the client may still be sending data that will not be read
	idle     atomic.Int64  // start of the last response, 0 while a request is in progress, or evicted
	client   string        // owner of the presented key, or empty; written by c's goroutine under owner.mu
	closing  sync.Once

	// Only the goroutine of the connection uses the following fields.

	expecting   *exchange // exchange of a request that waits for its 100 Continue
	certified   certified // the key of the client's certificate
	handshake   *bounded  // below TLS; nil without client certificates
	http2       bool      // the first bytes were http2Preface
	read, write deadline
	began       time.Time // start of the last response; zero if the listener rejected the connection
	written     int64     // bytes of the last response that were written
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.read.apply(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	if c.written > 0 && c.expecting == nil { // the response was written
		c.written = 0
		c.idle.Store(c.began.UnixNano())
	}
	n, err := c.Conn.Read(p)
	switch {
	case c.idle.Swap(0) == evicted:
		return 0, errClosed
	case errors.Is(err, net.ErrClosed):
		err = errClosed
	}
	if n > 0 && !c.used.Load() {
		c.used.Store(true)
		if c.handshake != nil {
			c.handshake.left = math.MaxInt
		}
		c.http2 = bytes.HasPrefix(p[:n], http2Preface)
	}
	return n, err
}

// bounded ends a connection that sends more bytes before its first request than a handshake needs.
// crypto/tls would keep 256 KiB of client certificates in memory for each connection.
type bounded struct {
	net.Conn
	left int
}

// maxHandshake is what crypto/tls accepts of a ClientHello, which is sent without certificates too.
const maxHandshake = 64 << 10

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errHandshake
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

var errHandshake = fmt.Errorf("the TLS handshake has more than %d bytes: send fewer certificates", maxHandshake)

// http2Preface is how a client begins HTTP/2 without negotiating it. To fasthttp, it is a request
// with an invalid target.
var http2Preface = []byte("PRI * HTTP/2.0\r\n")

// Gone implements batch.Peer.
func (c *conn) Gone() bool { return gone(c.raw) }

// errClosed replaces net.ErrClosed, after which fasthttp would not call its ErrorHandler, and the
// exchange of a request whose body has not arrived would never end.
var errClosed = errors.New("the server has closed the connection")

// evicted is the value of conn.idle after the listener has evicted the connection.
const evicted = -1

// Write implements net.Conn. It writes in pieces, each of which renews the deadline, so that a
// client that reads steadily receives the whole response, however long that takes. A client that
// stalls or falls below the minimum rate is disconnected.
func (c *conn) Write(p []byte) (n int, err error) {
	for more := true; more && err == nil; more = n < len(p) {
		if !c.began.IsZero() {
			c.write.wanted = c.writeDeadline()
		}
		if err = c.write.apply(c.Conn.SetWriteDeadline); err == nil {
			var piece int
			piece, err = c.Conn.Write(p[n:min(len(p), n+writePiece)])
			n, c.written = n+piece, c.written+int64(piece)
		}
	}
	return n, err
}

// writePiece is small enough that a client at the minimum rate reads several within the write
// timeout.
const writePiece = 256 << 10

// beginResponse starts a response, whose write deadlines depend on the client's progress.
func (c *conn) beginResponse(now time.Time) { c.began, c.written = now, 0 }

func (c *conn) writeDeadline() time.Time {
	cfg, progress := &c.owner.cfg, c.began
	if c.written > 0 {
		progress = time.Now()
	}
	if rate := cfg.WriteMinBytesPerSecond; rate > 0 {
		earned := time.Duration(float64(c.written) / float64(rate) * float64(time.Second))
		if latest := c.began.Add(earned); latest.Before(progress) {
			progress = latest
		}
	}
	return progress.Add(cfg.WriteTimeout)
}

// SetReadDeadline implements net.Conn for subsequent reads. Until the client has presented a valid
// key, the deadline is earlier than t while most connections are in use.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.client == "" {
		if limit, few := c.owner.headerTimeout(); few && time.Until(t) > limit {
			t = time.Now().Add(limit)
		}
	}
	c.read.wanted = t
	return nil
}

// SetWriteDeadline implements net.Conn for subsequent writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// Close implements net.Conn. If data may be unread, it first closes the sending side and discards
// received data for a limited time (see the package comment).
func (c *conn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		if c.unread.Load() {
			c.discard()
		}
		err = c.Conn.Close()
		c.owner.leave(c)
	})
	return err
}

// discard reads below TLS, because discarded data need not be decrypted. Its size is not limited: a
// proxy in front of the daemon considers a replica failed that resets a connection, and would no
// longer send the requests of other clients to it.
func (c *conn) discard() {
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.owner.cfg.DiscardTime))
	n, _ := io.Copy(io.Discard, c.raw)
	discardedBytes.Add(float64(n))
}

// deadline is the read or write deadline of a connection. fasthttp sets three deadlines for each
// request, each of which would cost a timer operation. So a deadline is only recorded, and passed
// to the socket before a read or write unless the socket's deadline is close enough: up to slack
// later, but never earlier.
type deadline struct {
	wanted, socket time.Time
}

// slack is short compared to any time limit, and long compared to the duration of a request.
const slack = 50 * time.Millisecond

func (d *deadline) apply(set func(time.Time) error) error {
	if late := d.socket.Sub(d.wanted); late >= 0 && late <= slack && d.wanted.IsZero() == d.socket.IsZero() {
		return nil
	}
	d.socket = d.wanted
	if !d.wanted.IsZero() { // zero: no deadline
		d.socket = d.wanted.Add(slack)
	}
	return set(d.socket)
}
