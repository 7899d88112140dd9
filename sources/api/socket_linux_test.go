package api

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"trafficd/schemas/contract"
)

// TestUnreadResponseUsesLittleKernelMemory checks that the kernel holds little of a response that
// the client does not read, and that the client still receives all of it later.
func TestUnreadResponseUsesLittleKernelMemory(t *testing.T) {
	body := bytes.Repeat([]byte("forecast"), 2_000_000)
	s := start(t, &probe{serve: func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		ctx.Response.SetBodyRaw(body)
		return 0, nil
	}}, nil)
	p := dial(t, s).send(post + good + "Content-Length: 0\r\n\r\n")
	unsent := func() (n uint32) {
		s.listener.mu.Lock()
		defer s.listener.mu.Unlock()
		for c := range s.listener.open {
			raw, err := c.raw.(*net.TCPConn).SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
				require.NoError(t, err)
				n = info.Notsent_bytes
			}))
		}
		return n
	}
	last := unsent()
	for earlier := uint32(0); last == 0 || last != earlier; earlier, last = last, unsent() {
		time.Sleep(100 * time.Millisecond)
	}
	require.Less(t, last, uint32(maxUnsent+128<<10), "bytes that wait in the kernel; one packet may exceed the limit")
	got, err := io.ReadAll(p.response().Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
}

// TestIgnoreNew checks that a process without capabilities, as in all deployments, can ignore new
// connections, and that a connection whose handshake was in progress then works.
func TestIgnoreNew(t *testing.T) {
	runtime.LockOSThread() // until the goroutine ends, and the thread with it
	var none [2]unix.CapUserData
	require.NoError(t, unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]))
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // as in Start
	f := func(listen, host string) {
		t.Helper()
		tcp, err := plain.Listen(t.Context(), "tcp", listen)
		require.NoError(t, err)
		defer tcp.Close()
		raw, err := tcp.(*net.TCPListener).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) { // the handshake is in progress until the first byte of data
			require.NoError(t, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 60))
		}))
		_, port, err := net.SplitHostPort(tcp.Addr().String())
		require.NoError(t, err)
		address := net.JoinHostPort(host, port)
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()

		l := newListener(tcp, nil, testConfig(), zerolog.Nop())
		l.ignoring.Store(true)
		require.NoError(t, ignoreNew(tcp))
		_, err = net.DialTimeout("tcp", address, 100*time.Millisecond)
		require.ErrorContains(t, err, "timeout")

		_, err = io.WriteString(c, "handshake")
		require.NoError(t, err)
		accepted, err := l.Accept()
		require.NoError(t, err)
		defer accepted.Close()
		require.NoError(t, accepted.(*conn).raw.SetReadDeadline(time.Now().Add(patience)))
		got := make([]byte, len("handshake"))
		_, err = io.ReadFull(accepted.(*conn).raw, got)
		require.NoError(t, err)
		_, err = io.WriteString(c, "data")
		require.NoError(t, err)
		_, err = io.ReadFull(accepted.(*conn).raw, got[:len("data")])
		require.NoError(t, err)
	}
	f("127.0.0.1:0", "127.0.0.1")
	f("[::1]:0", "::1")
	f(":0", "127.0.0.1")
	f(":0", "::1")
}
