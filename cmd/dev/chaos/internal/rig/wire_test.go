package rig

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
)

// TestStuckWire disturbs and heals a wire that has a stuck connection: the server reads nothing, so
// toxiproxy blocks in a write. New connections must work.
func TestStuckWire(t *testing.T) {
	needs.Everything(t, "toxiproxy, which is built from a module of its own")
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	r := Rig{cfg: Config{Dir: t.TempDir()}}
	r.buildProxy(t.Context())
	wire := r.startWire("test", server.Addr().String())
	defer func() { require.NoError(t, r.Close()) }()
	connect := func() (client, accepted net.Conn) {
		client, err := net.Dial("tcp", wire.Address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		accepted, err = server.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = accepted.Close() })
		return client, accepted
	}
	stall := func() {
		client, _ := connect()
		fill(t, client)
	}

	stall()
	require.NoError(t, wire.Disturb("bandwidth", Requests, map[string]any{"rate": 1000}))
	stall()
	require.NoError(t, wire.Heal())
	client, accepted := connect()
	_, err = client.Write([]byte("through"))
	require.NoError(t, err)
	got := make([]byte, 7)
	_, err = io.ReadFull(accepted, got)
	require.NoError(t, err)
	require.Equal(t, "through", string(got))
	require.NoError(t, wire.Cut())
	require.NoError(t, wire.Join())
	require.NoError(t, wire.Disturb("latency", Responses, map[string]any{"latency": 1}), "Cut removes toxics")
}

// fill writes until a write blocks.
func fill(t *testing.T, c net.Conn) {
	t.Helper()
	block := make([]byte, 1<<20)
	for {
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
		if _, err := c.Write(block); err != nil {
			require.True(t, errors.Is(err, os.ErrDeadlineExceeded), err)
			return
		}
	}
}
