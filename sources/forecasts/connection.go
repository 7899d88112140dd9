package forecasts

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
)

// dial gives what connects to brokers, encrypted if encryption is not nil. The
// deadline is that of the context.
func dial(encryption *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || encryption == nil {
			return &brokerConn{Conn: c}, err
		}
		own := encryption.Clone()
		own.ServerName, _, _ = net.SplitHostPort(address)
		encrypted := tls.Client(c, own)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("cannot agree on TLS with %s: %w", address, err)
		}
		return &brokerConn{Conn: encrypted}, nil
	}
}

// maxFirstAnswer is far more than a broker's list of what it understands takes.
const maxFirstAnswer = 1 << 20

// brokerConn looks at how the first answer begins: with its length. Another
// server's words in its place, such as HTTP, would have the client take gigabytes.
type brokerConn struct {
	net.Conn
	start []byte // of the first answer, until it is 4 bytes long
}

// Read implements net.Conn.
func (c *brokerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if missing := 4 - len(c.start); missing > 0 && n > 0 {
		c.start = append(c.start, b[:min(missing, n)]...)
		if len(c.start) == 4 && binary.BigEndian.Uint32(c.start) > maxFirstAnswer {
			return 0, fmt.Errorf("%s is no broker, or wants TLS: its answer begins with %q", c.RemoteAddr(), c.start)
		}
	}
	return n, err
}
