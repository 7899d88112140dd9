package upload_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/sources/internal/upload"
)

// received is what was read of a body, and how it ended.
type received struct {
	body string
	full bool
	err  error
}

// receive reads the body of a request. What the client does next it does when the server is
// about to read.
func receive(t *testing.T, limits upload.Limits, request string, next func(*net.TCPConn)) (r received) {
	t.Helper()
	client, conn := connection(t)
	_, err := client.Write([]byte("POST / HTTP/1.1\r\nHost: here\r\n" + request))
	require.NoError(t, err)
	server := fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetConnectionClose()
		b := upload.New(ctx, limits)
		next(client)
		r = read(&b)
		require.EqualValues(t, len(r.body), b.Received)
	}}
	_ = server.ServeConn(conn) // it may be broken
	return r
}

func connection(t *testing.T) (client *net.TCPConn, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	server, err = l.Accept()
	require.NoError(t, err)
	return c.(*net.TCPConn), server
}

func read(b *upload.Body) (r received) {
	block := make([]byte, 7)
	for r.err == nil {
		var n int
		n, r.err = b.Read(block)
		r.body += string(block[:n])
	}
	r.full = b.Full()
	return r
}

// What a client does next.
func waits(*net.TCPConn) {}

func hangsUp(c *net.TCPConn) { _ = c.CloseWrite() }

func resets(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

const chunked = "Transfer-Encoding: chunked\r\n\r\n"

// twenty bytes are the limit of bodies here.
const twenty = "0123456789abcdefghij"

var patient = upload.Limits{Bytes: int64(len(twenty)), Timeout: time.Minute}

func TestWholeBody(t *testing.T) {
	f := func(request, body string) {
		t.Helper()
		r := receive(t, patient, request, waits)
		require.Equal(t, received{body, body == twenty, io.EOF}, r)
	}
	f("\r\n", "")
	f("Content-Length: 0\r\n\r\n", "")
	f("Content-Length: 1\r\n\r\n0", "0")
	f("Content-Length: 20\r\n\r\n"+twenty, twenty)
	f("Content-Length: 20\r\n\r\n"+twenty+"POST / HTTP/1.1\r\n", twenty) // that is no body any more
	f(chunked+"0\r\n\r\n", "")
	f(chunked+"4\r\n0123\r\n0c\r\n456789abcdef\r\n0\r\n\r\n", "0123456789abcdef")
	f(chunked+"14\r\n"+twenty+"\r\n0\r\n\r\n", twenty)
}

// A body that does not end as it should ends as one of these.
func TestBodyRefused(t *testing.T) {
	f := func(want error, body, request string, next func(*net.TCPConn)) {
		t.Helper()
		r := receive(t, patient, request, next)
		require.Equal(t, received{body, body == twenty, want}, r)
	}
	tooLarge, brokenOff := upload.ErrTooLarge, upload.ErrBrokenOff
	f(tooLarge, twenty, "Content-Length: 21\r\n\r\n"+twenty+"k", waits)
	f(tooLarge, twenty, chunked+"14\r\n"+twenty+"\r\n1\r\nk\r\n", waits)
	f(brokenOff, twenty, "Content-Length: 21\r\n\r\n"+twenty, hangsUp)
	for _, goes := range []func(*net.TCPConn){hangsUp, resets} {
		f(brokenOff, "0123", "Content-Length: 5\r\n\r\n0123", goes)
		f(brokenOff, "0123", chunked+"5\r\n0123", goes)
		f(brokenOff, "0123", chunked+"4\r\n0123\r\n", goes)
	}
	noChunks := &contract.APIError{Code: contract.InvalidParameter, Description: "the body's chunks are malformed or break off", Parameter: "Transfer-Encoding"}
	f(noChunks, "", chunked+"zz\r\n", waits)
	f(noChunks, "0123", chunked+"4\r\n0123\r\n-1\r\n", waits)
	f(noChunks, "0123", chunked+"4\r\n0123\r\n5", hangsUp)
}

func TestSlowBody(t *testing.T) {
	inTime := upload.Limits{Bytes: patient.Bytes, Timeout: 50 * time.Millisecond}
	fast := upload.Limits{Bytes: patient.Bytes, Timeout: time.Minute, MinBytesPerSecond: 1000, RateGrace: 20 * time.Millisecond}
	f := func(body, request string) {
		t.Helper()
		late := contract.NewError(contract.RequestTimeout, "the body did not come within 50ms")
		require.Equal(t, received{body, body == twenty, late}, receive(t, inTime, request, waits))
		slow := contract.NewError(contract.RequestTimeout, "the body came slower than 1000 bytes per second")
		require.Equal(t, received{body, body == twenty, slow}, receive(t, fast, request, waits))
	}
	f("0123", "Content-Length: 5\r\n\r\n0123")
	f(twenty, "Content-Length: 21\r\n\r\n"+twenty) // whether that was all is waited for too
	f("", chunked+"5")
	f("0123", chunked+"5\r\n0123")
	f("0123", chunked+"4\r\n0123\r\n")
	f("0123", chunked+"4\r\n0123\r\n1")
}

// The average counts: what came early gives time to what comes late.
func TestPace(t *testing.T) {
	slow := upload.Limits{Bytes: 100, Timeout: time.Minute, MinBytesPerSecond: 1, RateGrace: time.Millisecond}
	early := strings.Repeat("x", 60)
	r := receive(t, slow, "Content-Length: 61\r\n\r\n"+early, func(c *net.TCPConn) {
		time.AfterFunc(20*slow.RateGrace, func() { _, _ = c.Write([]byte("y")) })
	})
	require.Equal(t, received{early + "y", false, io.EOF}, r)
}
