package api

import (
	"container/list"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// conn is a client's connection. Its Close lets a client whose body was not read see the answer.
type conn struct {
	net.Conn          // TLS, or raw itself
	raw      net.Conn // TCP
	owner    *listener
	address  netip.Prefix  // of the client; see addressOf
	silent   *list.Element // in owner.silent until a request with a valid key; belongs to owner.mu
	used     atomic.Bool   // a byte of a request has arrived
	unread   atomic.Bool   // the client may still be sending what will not be read
	idle     atomic.Int64  // when the last answer began, while the next request is awaited; 0: busy; evicted
	client   string        // whose key a request had; empty: none had a valid one; belongs to owner.mu and c's goroutine
	closing  sync.Once

	// The rest belongs to the connection's own goroutine.

	expecting   *exchange // of a request that is about to get its 100 Continue
	joined      joined
	read, write deadline
	began       time.Time // when the current answer did; zero: the write deadline was set from outside
	written     int64     // of the answer
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.read.apply(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	if c.written > 0 && c.expecting == nil { // the answer was written
		c.written = 0
		c.idle.Store(c.began.UnixNano())
	}
	n, err := c.Conn.Read(p)
	if c.idle.Swap(0) == evicted {
		return 0, net.ErrClosed
	}
	if n > 0 && !c.used.Load() {
		c.used.Store(true)
	}
	return n, err
}

// evicted is the value of conn.idle after its client has used up its share of the connections.
const evicted = -1

// Write implements net.Conn. It ends the exchange of a request whose 100 Continue cannot be
// written: fasthttp then closes the connection and calls no handler.
//
// An answer is written in pieces, each of which renews the deadline: a client that reads steadily
// keeps its answer however long that takes, one that stalls or falls below the minimum rate does
// not.
func (c *conn) Write(p []byte) (n int, err error) {
	for more := true; more && err == nil; more = n < len(p) {
		if !c.began.IsZero() {
			c.write.wanted = c.writeDeadline()
		}
		if err = c.write.apply(c.Conn.SetWriteDeadline); err == nil {
			var piece int
			piece, err = c.joined.write(c.Conn, p[n:min(len(p), n+writePiece)])
			n, c.written = n+piece, c.written+int64(piece)
		}
	}
	if x := c.expecting; x != nil && err != nil {
		c.expecting = nil
		x.free()
	}
	return n, err
}

// writePiece is small enough that a client at the minimum rate reads several within the write
// timeout.
const writePiece = 256 << 10

// present is listener.present for the key of a request; a request without one changes nothing.
func (c *conn) present(x *exchange) *contract.APIError {
	if x.key == nil {
		return nil
	}
	return c.owner.present(c, x.key.client.Owner)
}

// beginAnswer makes the write deadlines follow the client's progress from now on.
func (c *conn) beginAnswer(now time.Time) { c.began, c.written = now, 0 }

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

// SetReadDeadline implements net.Conn, for the reads that follow. Until the client has presented a
// key, its time shrinks while many connections are open.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.client == "" {
		if limit, few := c.owner.headerTimeout(); few && time.Until(t) > limit {
			t = time.Now().Add(limit)
		}
	}
	c.read.wanted = t
	return nil
}

// SetWriteDeadline implements net.Conn, for the writes that follow.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// Close implements net.Conn. If something may be unread, it first closes the sending side and
// discards what arrives, for a bounded time and size: the system resets a socket that is closed
// with unread bytes, and a reset can overtake the answer.
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

// discard works below TLS: discarded bytes need no decryption.
func (c *conn) discard() {
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.owner.cfg.DiscardTime))
	n, _ := io.CopyN(io.Discard, c.raw, c.owner.cfg.DiscardBytes)
	discardedBytes.Add(float64(n))
}

// deadline is when the reads or the writes of a connection time out. fasthttp sets three for each
// request, most of which never expire, and each has a cost in the runtime's timers. So a deadline
// is only recorded, and passed to the socket before a read or write, unless the socket's own is
// close enough: it may be late by slack, never early.
type deadline struct {
	wanted, socket time.Time
}

// slack is short compared to any time limit, and long compared to a request.
const slack = 50 * time.Millisecond

func (d *deadline) apply(set func(time.Time) error) error {
	if late := d.socket.Sub(d.wanted); late >= 0 && late <= slack && d.wanted.IsZero() == d.socket.IsZero() {
		return nil
	}
	d.socket = d.wanted
	if !d.wanted.IsZero() { // zero: none
		d.socket = d.wanted.Add(slack)
	}
	return set(d.socket)
}

// joined saves large answers their first system call. fasthttp fills a buffer with the header and
// the beginning of the body and writes it, then writes the rest directly from the body. Held back,
// the buffer is written together with the rest.
type joined struct {
	wanted bool   // another write follows the next one immediately
	held   []byte // what that write was about to write

	parts [2][]byte // the write of both
	both  net.Buffers
}

// writeBuffer is fasthttp's, for each connection. A body of twice the size always exceeds the space
// that any header leaves in the buffer by more than a buffer.
const (
	writeBuffer = 4 << 10
	largeBody   = 2 * writeBuffer
)

// want is called before fasthttp writes an answer.
func (j *joined) want(ctx *fasthttp.RequestCtx) {
	status := ctx.Response.StatusCode()
	if ctx.IsHead() || status == fasthttp.StatusNotModified || status == fasthttp.StatusNoContent {
		j.wanted = false
		return
	}
	size := ctx.Response.Header.ContentLength()
	if !ctx.Response.IsBodyStream() {
		size = len(ctx.Response.Body())
	}
	j.wanted = size >= largeBody
}

func (j *joined) write(to net.Conn, p []byte) (int, error) {
	switch {
	case j.wanted:
		j.wanted = false
		j.held = append(j.held[:0], p...)
		return len(p), nil
	case len(j.held) == 0:
		return to.Write(p)
	}
	j.parts = [2][]byte{j.held, p}
	j.both = j.parts[:]
	total, err := j.both.WriteTo(to)
	n := int(total) - len(j.held)
	j.held, j.parts = j.held[:0], [2][]byte{} // an idle connection keeps no answer in memory
	return max(0, n), err
}
