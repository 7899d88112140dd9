package rig

import (
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHeal takes a toxic from a link that is stuck: the server stands still, so
// toxiproxy waits in a write. New connections have to get through.
func TestHeal(t *testing.T) {
	wires := startToxiproxy(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	port, err := freePort()
	require.NoError(t, err)
	wire, err := wires.lay(t.Context(), "stuck", port, server.Addr().String())
	require.NoError(t, err)
	require.NoError(t, wire.Spoil(t.Context(), "latency", Requests, map[string]any{"latency": 1}))
	client, err := net.Dial("tcp", wire.Address)
	require.NoError(t, err)
	defer client.Close()
	standing, err := server.Accept() // reads nothing
	require.NoError(t, err)
	defer standing.Close()
	fill(t, client)

	require.NoError(t, wire.Heal(t.Context(), "latency", Requests))
	require.NoError(t, wires.call(t.Context(), http.MethodPost, "/proxies/stuck/toxics", map[string]any{
		"name": "latency-" + Requests, "type": "latency", "stream": Requests,
	}), "its name is free again")
	require.NoError(t, wire.Heal(t.Context(), "latency", Requests))
	client, err = net.Dial("tcp", wire.Address)
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Write([]byte("through"))
	require.NoError(t, err)
	through, err := server.Accept()
	require.NoError(t, err)
	defer through.Close()
	got := make([]byte, 7)
	_, err = through.Read(got)
	require.NoError(t, err)
	require.Equal(t, "through", string(got))
}

func startToxiproxy(t *testing.T) *Wires {
	t.Helper()
	root, err := Root()
	require.NoError(t, err)
	binary, err := buildToxiproxy(t.Context(), root)
	require.NoError(t, err)
	wires, err := startWires(t.Context(), binary, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(wires.close)
	return wires
}

// fill writes until nobody takes any more.
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
