package clickhouse

import (
	"io"
	"net"
	"testing"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/stretchr/testify/require"
)

// TestUnreadRows checks that rows do not count as stored if the server, or a proxy, ends an INSERT
// without reading them.
func TestUnreadRows(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			var response proto.Buffer
			(&proto.ServerHello{Revision: proto.Version}).EncodeAware(&response, proto.Version)
			proto.ServerCodeEndOfStream.Encode(&response)
			_, _ = c.Write(response.Buf)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	a := newArchive(t, nil, func(c *Config) { c.Addresses, c.Migrate = []string{l.Addr().String()}, false })
	_, err = a.insert(t.Context(), a.hosts.all[0], smallBlock(1), "token", 1)
	require.ErrorContains(t, err, "did not read the rows")
	require.NoError(t, a.Close())
	require.NoError(t, l.Close())
	<-done
}
