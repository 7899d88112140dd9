package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

// TestSocketDeadline checks that the socket's deadline is never before the wanted one, at most
// slack after it, and set no more often than necessary.
func TestSocketDeadline(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	f := func(sets int, wanted ...time.Time) {
		t.Helper()
		var d deadline
		var socket time.Time
		n := 0
		for _, d.wanted = range wanted {
			require.NoError(t, d.apply(func(to time.Time) error { socket, n = to, n+1; return nil }))
			if d.wanted.IsZero() {
				require.True(t, socket.IsZero())
				continue
			}
			require.False(t, socket.Before(d.wanted), "%v for %v", socket, d.wanted)
			require.False(t, socket.After(d.wanted.Add(slack)), "%v for %v", socket, d.wanted)
		}
		require.Equal(t, sets, n)
	}
	never, past := time.Time{}, time.Unix(1, 0)
	f(0, never)
	f(0, never, never)
	f(1, at(0))
	f(1, at(0), at(0), at(slack/2), at(slack))
	f(2, at(0), at(slack+1))
	f(2, at(0), at(-1))
	f(3, at(0), at(slack+1), at(0))
	f(3, at(time.Hour), at(time.Minute), at(time.Hour))
	f(3, at(0), never, at(0))
	f(3, at(time.Hour), past, at(time.Hour))
	f(2, never, past, never)

	broken := errors.New("broken")
	d := deadline{wanted: at(0)}
	require.ErrorIs(t, d.apply(func(time.Time) error { return broken }), broken)
}

// TestTimeLimits checks that a slow client has the configured time, and no more than the
// slack beyond it.
func TestTimeLimits(t *testing.T) {
	_ = new(fasthttp.Response).String() // starts fasthttp's clock, a goroutine that never ends, outside of the bubbles
	serve := func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		ctx.SetBodyString(strings.Repeat("x", 100_000))
		return 0, nil
	}
	cfg := testConfig()
	f := func(limit time.Duration, until func(c net.Conn, in *bufio.Reader)) {
		t.Helper()
		took := inBubble(t, cfg, serve, until)
		require.GreaterOrEqual(t, took, limit)
		require.LessOrEqual(t, took, limit+slack)
	}
	write := func(c net.Conn, text string) {
		_, err := io.WriteString(c, text)
		require.NoError(t, err)
	}
	expect := func(in *bufio.Reader, status int) {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode)
	}
	ended := func(in *bufio.Reader) {
		_, err := in.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	whole := post + good + "Content-Length: 0\r\n\r\n"

	f(cfg.HeaderTimeout, func(_ net.Conn, in *bufio.Reader) { expect(in, 408) })
	f(cfg.HeaderTimeout, func(c net.Conn, in *bufio.Reader) {
		write(c, post)
		time.Sleep(cfg.HeaderTimeout - 1)
		write(c, good)
		expect(in, 408)
	})
	f(cfg.HeaderTimeout, func(c net.Conn, in *bufio.Reader) { // the body's first byte
		write(c, post+good+"Content-Length: 1\r\n\r\n")
		expect(in, 408)
	})
	f(cfg.IdleTimeout, func(c net.Conn, in *bufio.Reader) {
		write(c, whole)
		expect(in, 200)
		ended(in)
	})
	f(2*cfg.IdleTimeout-2+cfg.HeaderTimeout, func(c net.Conn, in *bufio.Reader) { // each limit starts over
		for range 2 {
			write(c, whole)
			expect(in, 200)
			time.Sleep(cfg.IdleTimeout - 1)
		}
		write(c, post[:1])
		expect(in, 408)
	})
	f(cfg.WriteTimeout, func(c net.Conn, in *bufio.Reader) {
		write(c, whole)
		_, err := in.ReadByte() // the client reads no further
		require.NoError(t, err)
		time.Sleep(cfg.WriteTimeout - 1)
		synctest.Wait()
		_, err = c.Write([]byte{'x'}) // blocks while the response is being written
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
	f(cfg.HeaderTimeout+cfg.DiscardTime, func(_ net.Conn, in *bufio.Reader) {
		expect(in, 408)
		ended(in)
	})
}

// inBubble serves one connection in a synctest bubble, and returns how long the client took.
func inBubble(t *testing.T, cfg Config, serve func(*contract.Client, *fasthttp.RequestCtx) (int, error), client func(c net.Conn, in *bufio.Reader)) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keys, err := OpenKeyring(cfg, zerolog.Nop())
		require.NoError(t, err)
		s, err := New(cfg, keys, []Route{{Path: "/in", Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: &probe{serve: serve}}}, zerolog.Nop())
		require.NoError(t, err)
		ours, theirs := net.Pipe()
		go func() {
			l := newListener(nil, nil, cfg, zerolog.Nop())
			c := l.wrap(ours)
			l.enter(c)
			_ = s.http.ServeConn(c)
			_ = c.Close()
		}()
		start := time.Now()
		client(theirs, bufio.NewReader(theirs))
		took = time.Since(start)
		require.NoError(t, theirs.Close())
	})
	return took
}

// TestSteadyReaderGetsWholeResponse checks that a response may take much longer than the write
// timeout if the client reads at the minimum rate, and that a client that is slower or stalls is
// disconnected.
func TestSteadyReaderGetsWholeResponse(t *testing.T) {
	_ = new(fasthttp.Response).String() // as above
	cfg := testConfig()
	const tick = 100 * time.Millisecond
	f := func(size, bytesPerSecond, stallAfter int, whole bool) {
		t.Helper()
		body := bytes.Repeat([]byte{'x'}, size)
		for _, stream := range []bool{false, true} {
			serve := func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
				if stream {
					ctx.SetBodyStream(bytes.NewReader(body), size)
				} else {
					ctx.Response.SetBodyRaw(body)
				}
				return 0, nil
			}
			took := inBubble(t, cfg, serve, func(c net.Conn, in *bufio.Reader) {
				_, err := io.WriteString(c, post+good+"Content-Length: 0\r\n\r\n")
				require.NoError(t, err)
				resp, err := http.ReadResponse(in, nil)
				require.NoError(t, err)
				n, buf := 0, make([]byte, bytesPerSecond/int(time.Second/tick))
				for err == nil {
					if stallAfter > 0 && n >= stallAfter {
						time.Sleep(cfg.WriteTimeout + time.Second)
					}
					time.Sleep(tick)
					var k int
					k, err = io.ReadFull(resp.Body, buf)
					n += k
				}
				require.Equal(t, whole, n == size, "%d of %d bytes", n, size)
			})
			if whole {
				require.Greater(t, took, cfg.WriteTimeout)
			}
		}
	}
	f(28_700_000, 600_000, 0, true)
	f(59_000_000, 1_000_000, 0, true)
	f(5_000_000, 70_000, 0, true)
	f(5_000_000, 40_000, 0, false)
	f(28_700_000, 1_000_000, 10_000_000, false)
	cfg.WriteMinBytesPerSecond = 0
	f(5_000_000, 40_000, 0, true)
}

// TestDeadlineInThePast checks that a deadline in the past ends the next read and the next write;
// a deadline set after that applies.
func TestDeadlineInThePast(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newListener(nil, nil, testConfig(), zerolog.Nop()).wrap(ours)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Unix(1, 0)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = c.Write([]byte{'x'})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetDeadline(time.Time{}))
	go func() { _, _ = theirs.Write([]byte{'y'}) }()
	n, err := c.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
