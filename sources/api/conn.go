package api

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's connection. It ends so that a client whose body was not
// read sees the answer: see Close.
type conn struct {
	net.Conn          // TLS, or raw itself
	raw      net.Conn // TCP
	owner    *listener
	used     atomic.Bool // something of a request has come
	unread   atomic.Bool // the client may still be sending what nobody will read
	closing  sync.Once

	// expecting is the exchange of a request that is about to get its 100 Continue.
	// Only the connection's own goroutine touches it.
	expecting *exchange

	joined      joined // likewise
	read, write deadline
}

// Read notes that the connection is in use.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.read.apply(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.used.Load() {
		c.used.Store(true)
	}
	return n, err
}

// Write ends the exchange of a request whose 100 Continue cannot be written:
// fasthttp then closes the connection and calls no handler.
func (c *conn) Write(p []byte) (n int, err error) {
	if err = c.write.apply(c.Conn.SetWriteDeadline); err == nil {
		n, err = c.joined.write(c.Conn, p)
	}
	if x := c.expecting; x != nil && err != nil {
		c.expecting = nil
		x.abandon()
	}
	return n, err
}

// SetReadDeadline notes t for the reads that follow.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.wanted = t
	return nil
}

// SetWriteDeadline notes t for the writes that follow.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

// SetDeadline notes t for both.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// Close ends the connection. Where something may be unread, it first says that
// no more will be sent, and discards what comes for a bounded time and size: the
// system resets a socket that is closed with bytes in it, and a reset takes the
// answer away from a client that has not read it yet.
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

// discard works below TLS: what is thrown away need not be deciphered.
func (c *conn) discard() {
	if t, ok := c.Conn.(*tls.Conn); ok {
		_ = t.CloseWrite()
	}
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.owner.cfg.DiscardTime))
	n, _ := io.CopyN(io.Discard, c.raw, c.owner.cfg.DiscardBytes)
	discardedBytes.Add(int(n))
}
