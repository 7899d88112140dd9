package clickhouse

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
)

// greeting is the hello of a client named test, for user default of database db.
const greeting = "\x00\x04test\x01\x02\xb2\xa9\x03\x02db\x07default\x00"

// TestRelayDropsOtherProtocols checks that the engine sees no connection that does not begin with a
// hello, and that a line says so.
func TestRelayDropsOtherProtocols(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	log := new(bytes.Buffer)
	r, err := startRelay("127.0.0.1:0", l.Addr().String(), "", log)
	require.NoError(t, err)
	for _, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS
		"\x00\x00\x00\x23\x00\x12\x00\x04",             // Kafka, ApiVersions
		"GET / HTTP/1.1\r\n\r\n",
		greeting[:9], // incomplete
		"",           // a port scan
	} {
		c, err := net.Dial("tcp", r.listener.Addr().String())
		require.NoError(t, err)
		send(t, c, text)
		_ = c.(*net.TCPConn).CloseWrite() // fails if the relay was faster
		_, _ = io.Copy(io.Discard, c)     // it may be reset
		require.NoError(t, c.Close())
	}
	r.stop()
	require.Equal(t, 4, strings.Count(log.String(), "that does not use the native protocol: "), log)
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now()))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// relayed returns both ends of a connection through a relay that stops when the test ends.
func relayed(t *testing.T) (client, engine *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r, err := startRelay("127.0.0.1:0", l.Addr().String(), "", io.Discard)
	require.NoError(t, err)
	t.Cleanup(r.stop)
	c, err := net.Dial("tcp", r.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	send(t, c, greeting)
	e, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	receive(t, e, greeting)
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
	r, err := startRelay(address, l.Addr().String(), "", io.Discard)
	require.NoError(t, err)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	send(t, c, greeting)
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
