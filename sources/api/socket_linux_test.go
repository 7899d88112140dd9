package api

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

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
