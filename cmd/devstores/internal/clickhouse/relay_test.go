package clickhouse

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// relayed returns both ends of a connection through a relay that stops when the test ends.
func relayed(t *testing.T) (client, engine *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r, err := startRelay("127.0.0.1:0", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(r.stop)
	c, err := net.Dial("tcp", r.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	e, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return c.(*net.TCPConn), e.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestRelayPassesBothWays(t *testing.T) {
	client, engine := relayed(t)
	send(t, client, "hello")
	receive(t, engine, "hello")
	send(t, engine, "welcome")
	receive(t, client, "welcome")
	require.NoError(t, client.CloseWrite())
	_, err := engine.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	send(t, engine, "still here")
	receive(t, client, "still here")
	require.NoError(t, engine.Close())
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestRelayHidesResets checks that when a client resets its connection, the engine reads end of
// file, and its writes do not fail.
func TestRelayHidesResets(t *testing.T) {
	client, engine := relayed(t)
	send(t, client, "hello")
	receive(t, engine, "hello")
	require.NoError(t, client.SetLinger(0))
	require.NoError(t, client.Close())
	_, err := engine.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	for range 100 {
		send(t, engine, string(make([]byte, 100_000)))
	}
}

// TestRelayStops checks that a client that reads nothing does not delay stop.
func TestRelayStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	address, err := launch.FreeAddress() // which no other program uses after stop
	require.NoError(t, err)
	r, err := startRelay(address, l.Addr().String())
	require.NoError(t, err)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	engine, err := l.Accept()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		for err == nil {
			_, err = engine.Write(make([]byte, 1<<20))
		}
		ended <- engine.Close()
	}()
	r.stop()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", address)
	require.Error(t, err)
}
