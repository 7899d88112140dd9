package clickhouse

import (
	"io"
	"net"
	"testing"

	native "github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
)

// testDeduplicationDisabled checks that the server recognises a token even if the settings profile
// of the daemon's user disables the deduplication.
func testDeduplicationDisabled(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	require.NoError(t, a.Probe(t.Context()))
	h := a.hosts.all[0]
	for _, setting := range []string{"insert_deduplicate = 0", "deduplicate_insert = 'disable'"} {
		conn, err := h.connect(t.Context())
		require.NoError(t, err)
		unknown := []native.Setting{{Key: "setting_of_a_newer_server", Value: "enable"}} // is ignored
		require.NoError(t, conn.Do(t.Context(), native.Query{Body: "SET " + setting, Settings: unknown}))
		h.inserts <- conn
	}
	for range 2 * len(h.inserts) {
		_, err := a.insert(t.Context(), h, smallBlock(1), "token", 1)
		require.NoError(t, err)
	}
	a.requireRows(smallBlock(1))
}

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
