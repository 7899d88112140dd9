package upload_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
	"trafficd/sources/internal/upload"
)

// received is the part of a body that was received, and the error for its end.
type received struct {
	body string
	err  error
}

// buffer is the upload.Buffer of the tests.
type buffer struct {
	received
	block [7]byte
}

func (b *buffer) Space() ([]byte, error) { return b.block[:], nil }

func (b *buffer) Wrote(n int) error {
	b.body += string(b.block[:n])
	return nil
}

func (b *buffer) End(err error) error {
	b.err = err
	if err == io.EOF {
		return nil
	}
	return err
}

var (
	used    = metrics.NewGauge("upload_test_used", "")
	limit   = metrics.NewGauge("upload_test_limit", "")
	bytes   = metrics.NewCounter("upload_test_bytes", "")
	seconds = metrics.NewSeconds("upload_test_seconds", "")
	aborted = metrics.NewCounter("upload_test_aborted", "")
)

// receive reads the body of a request. It calls next, which acts as the client, before it reads. It
// checks that a slot is held after a complete body, and none after an error.
func receive(t *testing.T, r upload.Receiver, request string, next func(*net.TCPConn)) received {
	t.Helper()
	r.TooLarge, r.Truncated = tooLarge, contract.InvalidGzip
	r.Slots = admission.New(1, admission.Resource{Used: used, Limit: limit})
	r.Bytes, r.Seconds, r.Aborted = bytes, seconds, aborted
	client, conn := connection(t)
	_, err := client.Write([]byte("POST / HTTP/1.1\r\nHost: here\r\n" + request))
	require.NoError(t, err)
	b, before := &buffer{}, testutil.ToFloat64(bytes)
	server := fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetConnectionClose()
		next(client)
		if err := r.Receive(ctx, "client", b); err == nil {
			require.EqualValues(t, 1, r.Slots.Total())
		} else {
			require.Zero(t, r.Slots.Total())
		}
		require.EqualValues(t, len(b.body), testutil.ToFloat64(bytes)-before)
	}}
	_ = server.ServeConn(conn) // it fails if the client has disconnected
	return b.received
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

// Actions of a client.
func waits(*net.TCPConn) {}

func hangsUp(c *net.TCPConn) { _ = c.CloseWrite() }

func resets(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

const chunked = "Transfer-Encoding: chunked\r\n\r\n"

// whole is a body of the maximum size.
const whole = "0123456789abcdefghij"

var tooLarge = contract.NewError(contract.BodyTooLarge, "larger than 20 bytes")

var defaults = upload.Receiver{MaxBytes: int64(len(whole)), Limits: upload.Limits{ReceiveTimeout: time.Minute}}

func TestCompleteBody(t *testing.T) {
	f := func(request, body string) {
		t.Helper()
		r := receive(t, defaults, request, waits)
		require.Equal(t, received{body, io.EOF}, r)
	}
	f("\r\n", "")
	f("Content-Length: 0\r\n\r\n", "")
	f("Content-Length: 1\r\n\r\n0", "0")
	f("Content-Length: 20\r\n\r\n"+whole, whole)
	f("Content-Length: 20\r\n\r\n"+whole+"POST / HTTP/1.1\r\n", whole) // the start of the next request
	f(chunked+"0\r\n\r\n", "")
	f(chunked+"4\r\n0123\r\n0c\r\n456789abcdef\r\n0\r\n\r\n", "0123456789abcdef")
	f(chunked+"14\r\n"+whole+"\r\n0\r\n\r\n", whole)
	f(chunked+"4;a=b;c\r\n0123\r\n0;d\r\n\r\n", "0123")
	f(chunked+"4;a=\x01\x7f\t\r\n0123\r\n0\r\n\r\n", "0123") // fasthttp ignores extensions
}

// TestIncompleteBody checks the errors for bodies that are too large, truncated or malformed.
func TestIncompleteBody(t *testing.T) {
	f := func(want error, body, request string, next func(*net.TCPConn)) {
		t.Helper()
		r := receive(t, defaults, request, next)
		require.Equal(t, received{body, want}, r)
	}
	truncated := func(after int) error {
		return contract.NewError(contract.InvalidGzip, fmt.Sprintf("unexpected end of body after %d bytes", after))
	}
	f(tooLarge, whole, "Content-Length: 21\r\n\r\n"+whole+"k", waits)
	f(tooLarge, whole, chunked+"14\r\n"+whole+"\r\n1\r\nk\r\n", waits)
	f(truncated(20), whole, "Content-Length: 21\r\n\r\n"+whole, hangsUp)
	for _, disconnect := range []func(*net.TCPConn){hangsUp, resets} {
		f(truncated(4), "0123", "Content-Length: 5\r\n\r\n0123", disconnect)
		f(truncated(4), "0123", chunked+"5\r\n0123", disconnect)
		f(truncated(4), "0123", chunked+"4\r\n0123\r\n", disconnect)
	}
	malformed := &contract.APIError{Code: contract.InvalidParameter, Description: "malformed or incomplete chunks", Parameter: "Transfer-Encoding"}
	f(malformed, "", chunked+"zz\r\n", waits)
	f(malformed, "0123", chunked+"4\r\n0123\r\n-1\r\n", waits)
	for _, extension := range []string{"a\n", "a\nb", "a\rb", "a\r\r\n"} { // a proxy could end the line elsewhere
		f(malformed, "", chunked+"4;"+extension+"\r\n0123\r\n0\r\n\r\n", waits)
	}
	f(malformed, "0123", chunked+"4\r\n0123\r\n5", hangsUp)
}

func TestSlowBody(t *testing.T) {
	inTime := upload.Receiver{MaxBytes: defaults.MaxBytes, Limits: upload.Limits{ReceiveTimeout: 50 * time.Millisecond}}
	fast := upload.Receiver{MaxBytes: defaults.MaxBytes, Limits: upload.Limits{ReceiveTimeout: time.Minute, MinBytesPerSecond: 1000, RateGrace: 20 * time.Millisecond}}
	f := func(body, request string) {
		t.Helper()
		late := contract.NewError(contract.RequestTimeout, "the body did not arrive within 50ms")
		require.Equal(t, received{body, late}, receive(t, inTime, request, waits))
		slow := contract.NewError(contract.RequestTimeout, "the body arrived slower than 1000 bytes per second")
		require.Equal(t, received{body, slow}, receive(t, fast, request, waits))
	}
	f("0123", "Content-Length: 5\r\n\r\n0123")
	f(whole, "Content-Length: 21\r\n\r\n"+whole) // the receiver waits for the last byte
	f("", chunked+"5")
	f("0123", chunked+"5\r\n0123")
	f("0123", chunked+"4\r\n0123\r\n")
	f("0123", chunked+"4\r\n0123\r\n1")
}

// TestAverageRate checks that a client that has been fast may pause.
func TestAverageRate(t *testing.T) {
	slow := upload.Receiver{MaxBytes: 100, Limits: upload.Limits{ReceiveTimeout: time.Minute, MinBytesPerSecond: 1, RateGrace: time.Millisecond}}
	early := strings.Repeat("x", 60)
	r := receive(t, slow, "Content-Length: 61\r\n\r\n"+early, func(c *net.TCPConn) {
		time.AfterFunc(20*slow.RateGrace, func() { _, _ = c.Write([]byte("y")) })
	})
	require.Equal(t, received{early + "y", io.EOF}, r)
}

// TestSlotWithFirstByte checks that a request acquires its slot with the first byte of the body,
// not with the header.
func TestSlotWithFirstByte(t *testing.T) {
	slots := admission.New(1, admission.Resource{Full: "full", Used: used, Limit: limit})
	r := upload.Receiver{
		MaxBytes: 20, Limits: upload.Limits{ReceiveTimeout: time.Minute}, TooLarge: tooLarge, Slots: slots,
		Bytes: bytes, Seconds: seconds, Aborted: aborted,
	}
	client, conn := connection(t)
	_, err := client.Write([]byte("POST / HTTP/1.1\r\nHost: here\r\n" + chunked))
	require.NoError(t, err)
	server := fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetConnectionClose()
		time.AfterFunc(20*time.Millisecond, func() {
			if slots.Acquire("other", 1) != nil {
				t.Error("the header alone took a slot, want none taken")
			}
			_, _ = client.Write([]byte("1\r\nx\r\n"))
		})
		require.ErrorContains(t, r.Receive(ctx, "client", &buffer{}), "full")
		require.EqualValues(t, 1, slots.Total())
	}}
	_ = server.ServeConn(conn)
}
