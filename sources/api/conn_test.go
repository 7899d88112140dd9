package api

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
)

const smuggled = "GET /base/map HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey good-key\r\n\r\n"

// TestRejectedBodyIsNotParsed checks that the contents of an unread body are never parsed as a
// request, and that a client that has sent the whole body reads the response and an orderly close.
func TestRejectedBodyIsNotParsed(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.DiscardTime = patience })
	f := func(headers, body string) {
		t.Helper()
		c := dial(t, s).send(post + "Host: h\r\n" + headers + "\r\n" + body)
		requireError(t, c.response(), 401, contract.Unauthenticated)
		c.ended()
	}
	f("Content-Length: 86\r\n", smuggled)
	f("Content-Length: 10\r\n", smuggled+smuggled)
	f("Transfer-Encoding: chunked\r\n", "56\r\n"+smuggled+"\r\n0\r\n\r\n"+smuggled)
	f("Transfer-Encoding: chunked\r\n", smuggled)
	f("Content-Length: 86\r\nExpect: 100-continue\r\n", smuggled)
	f("Content-Length: 262144\r\n", strings.Repeat(smuggled, 262144/len(smuggled)+1)[:262144])
	require.Zero(t, p.served.Load())
}

// TestBodyNotReadByEndpoint checks that if the endpoint did not read a body to its end, the
// connection is closed after the response or error, and that it stays open otherwise.
func TestBodyNotReadByEndpoint(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.HeaderTimeout, c.DiscardTime = time.Hour, patience })
	f := func(serve func(*contract.Client, *fasthttp.RequestCtx) (int, error), announced, body string, status int, closed bool) {
		t.Helper()
		p.serve = serve
		c := dial(t, s).send(post + good + announced + "\r\n" + body)
		resp := c.response()
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, closed, resp.Close)
		if closed {
			c.ended()
			return
		}
		p.serve = nil
		require.Equal(t, 200, c.send(post+good+"Content-Length: 1\r\n\r\nx").response().StatusCode)
	}
	none := func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		ctx.SetBodyString("read none")
		return 0, nil
	}
	some := func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		_, err := io.ReadFull(ctx.RequestBodyStream(), make([]byte, 3))
		return 0, err
	}
	reject := func(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		_, _ = readAll(c, ctx)
		return 0, contract.NewError(contract.InvalidJSON, "after the whole body was read")
	}
	f(none, "Content-Length: 86\r\n", smuggled, 200, true)
	f(none, "Transfer-Encoding: chunked\r\n", "56\r\n"+smuggled+"\r\n0\r\n\r\n", 200, true)
	f(none, "Content-Length: 0\r\n", "", 200, false)
	f(none, "", "", 200, false)
	f(some, "Content-Length: 86\r\n", smuggled, 200, true)
	f(some, "Content-Length: 86\r\n", "abc", 200, true) // the rest has not arrived, and the server does not wait for it
	f(some, "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", 200, true)
	f(some, "Content-Length: 3\r\n", "abc", 200, false)
	f(some, "Transfer-Encoding: chunked\r\n", "5\r\nabcde\r\n0\r\n\r\n", 200, true)
	f(reject, "Content-Length: 3\r\n", "abc", 400, false)
	f(reject, "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", 400, false)
}

// TestInvalidGzipEndsConnection checks that the connection is closed after an invalid gzip stream:
// if the Content-Length is too small, the next bytes are the rest of the body.
func TestInvalidGzipEndsConnection(t *testing.T) {
	p := &probe{serve: func(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		_, _ = readAll(c, ctx)
		return 0, contract.NewError(contract.InvalidGzip, "unexpected end")
	}}
	s := start(t, p, func(c *Config) { c.DiscardTime = patience })
	c := dial(t, s).send(post + good + "Content-Length: 3\r\n\r\nabc" + "the rest" + strings.Repeat(smuggled, 5000))
	resp := c.response()
	requireError(t, resp, 400, contract.InvalidGzip)
	require.True(t, resp.Close)
	c.ended()
	require.EqualValues(t, 1, p.served.Load())
}

func TestPipelinedRequests(t *testing.T) {
	s := start(t, &probe{}, nil)
	ok := post + good + "Content-Length: 3\r\n\r\nabc"
	chunked := post + good + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-Trailer: y\r\n\r\n"
	noBody := "GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n"
	c := dial(t, s).send(ok + chunked + noBody + ok + post + "Host: h\r\nContent-Length: 3\r\n\r\nabc" + ok)
	for _, want := range []int{200, 200, 404, 200, 401} {
		require.Equal(t, want, c.response().StatusCode)
	}
	c.ended()
}

func TestConnectionClose(t *testing.T) {
	s := start(t, &probe{}, nil)
	f := func(line, headers string, closed bool) {
		t.Helper()
		c := dial(t, s).send(line + good + headers + "Content-Length: 3\r\n\r\nabc")
		resp := c.response()
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, closed, resp.Close)
		if closed {
			c.ended()
		}
	}
	f(post, "", false)
	f(post, "Connection: keep-alive\r\n", false)
	f(post, "Connection: close\r\n", true)
	f(post, "Connection: Close\r\n", true)
	f(post, "Connection: TE, close\r\n", true)
	f("POST /base/in HTTP/1.0\r\n", "", true)
	f("POST /base/in HTTP/1.0\r\n", "Connection: keep-alive\r\n", false)
}

// TestStillSendingClientSeesStatus checks that a rejected client can send the largest body that the
// endpoints accept before it reads the status, as clients without Expect do.
func TestStillSendingClientSeesStatus(t *testing.T) {
	s := start(t, &probe{}, func(c *Config) { c.DiscardTime = patience })
	const size = 16 << 20
	before := testutil.ToFloat64(discardedBytes)
	c := dial(t, s).send(fmt.Sprintf(post+"Host: h\r\nContent-Length: %d\r\n\r\n", size))
	c.send(strings.Repeat("x", size))
	requireError(t, c.response(), 401, contract.Unauthenticated)
	c.ended()
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return testutil.ToFloat64(discardedBytes)-before > size-1<<20 }, patience, time.Millisecond)
}

// TestDiscardingIsBounded checks that a client that never stops sending is disconnected.
func TestDiscardingIsBounded(t *testing.T) {
	f := func(limit time.Duration) {
		t.Helper()
		s := start(t, &probe{}, func(c *Config) { c.DiscardTime = limit })
		c := dial(t, s).send(post + "Host: h\r\nContent-Length: 1099511627776\r\n\r\n")
		var err error
		for junk := make([]byte, 1<<16); err == nil; {
			_, err = c.Write(junk)
			time.Sleep(time.Millisecond)
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server must close the connection")
	}
	f(50 * time.Millisecond)
	f(0)
}

func TestExpect(t *testing.T) {
	_ = new(fasthttp.Response).String() // as in TestTimeLimits
	cfg := testConfig()
	cfg.WriteTimeout = 400 * time.Millisecond
	f := func(announced string) {
		t.Helper()
		inBubble(t, cfg, readAll, func(conn net.Conn, in *bufio.Reader) {
			c := &peer{t, conn, in}
			for range 2 {
				c.send(post + good + announced + "\r\n")
				require.Equal(t, 100, c.response().StatusCode)
				c.send("abc")
				resp := c.response()
				require.Equal(t, 200, resp.StatusCode)
				time.Sleep(500 * time.Millisecond) // the first response's write deadline has passed
			}
		})
	}
	f("Content-Length: 3\r\nExpect: 100-continue\r\n")
	f("Content-Length: 3\r\nexpect: 100-Continue\r\n")

	s := start(t, &probe{}, nil)
	c := dial(t, s).send("POST /base/in HTTP/1.0\r\n" + good + "Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
	resp := c.response()
	require.Equal(t, 200, resp.StatusCode, "HTTP/1.0 has no 100 Continue")
	require.True(t, resp.Close)
	c.ended()
	require.Equal(t, 200, dial(t, s).send(post+good+"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n").response().StatusCode, "an empty body needs no 100 Continue")
}

// TestClientLeaves checks that Handle is not called if a client disconnects after its header, and
// that nothing of the request is kept, which start checks.
func TestClientLeaves(t *testing.T) {
	p := &probe{}
	s := start(t, p, nil)
	f := func(announced string, served bool) {
		t.Helper()
		asked, servedBefore := p.asked.Load(), p.served.Load()
		c := dial(t, s).send(post + good + announced + "\r\n")
		require.NoError(t, c.Conn.(*net.TCPConn).SetLinger(0))
		require.Eventually(t, func() bool { return p.asked.Load() == asked+1 }, patience, time.Millisecond)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return s.listener.len() == 0 }, patience, time.Millisecond)
		require.Equal(t, served, p.served.Load() > servedBefore)
	}
	f("Content-Length: 10\r\n", false)
	f("Content-Length: 10\r\nExpect: 100-continue\r\n", false)
	f("Transfer-Encoding: chunked\r\n", true) // fasthttp calls the handler of a chunked body before its first byte
}

// TestFraming checks that requests whose end is ambiguous are rejected.
func TestFraming(t *testing.T) {
	p := &probe{}
	s := start(t, p, nil)
	f := func(line, headers string) {
		t.Helper()
		c := dial(t, s).send(line + good + headers + "\r\n0\r\n\r\n" + smuggled)
		resp := c.response()
		requireError(t, resp, 400, contract.InvalidParameter)
		require.True(t, resp.Close)
		c.ended()
	}
	f(post, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")
	f(post, "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")
	f(post, "transfer-encoding: chunked\r\ncontent-length: 5\r\n")
	f(post, "Content-Length: 5\r\nContent-Length: 5\r\n")
	f(post, "Content-Length: 5\r\nContent-Length: 6\r\n")
	f(post, "Content-Length: 5, 5\r\n")
	f(post, "Content-Length: -5\r\n")
	f(post, "Content-Length: +5\r\n")
	f(post, "Content-Length: 0x5\r\n")
	f(post, "Content-Length: 99999999999999999999\r\n")
	f(post, "Transfer-Encoding: identity\r\n")
	f(post, "Transfer-Encoding: identity\r\nContent-Length: 5\r\n")
	f(post, "Transfer-Encoding: gzip, chunked\r\n")
	f(post, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")
	f(post, "Transfer-Encoding:\r\n chunked\r\n")
	f(post, "Transfer-Encoding : chunked\r\n")
	f(post, "Transfer-Encoding: xchunked\r\n")
	f("POST /base/in HTTP/1.0\r\n", "Transfer-Encoding: chunked\r\n")
	f("GET /base/map HTTP/1.1\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")
	require.Zero(t, p.asked.Load())
}

func TestMalformed(t *testing.T) {
	p := &probe{}
	patient := start(t, p, func(c *Config) { c.MaxHeaderBytes = 1024 })
	hasty := start(t, p, func(c *Config) { c.HeaderTimeout = 100 * time.Millisecond })
	f := func(s *Server, sent string, status int, code contract.Code) {
		t.Helper()
		c := dial(t, s).send(sent)
		resp := c.response()
		body := requireError(t, resp, status, code)
		require.NotContains(t, body.Description, "good-key", "the header is not repeated")
		c.ended()
	}
	f(patient, "nonsense\r\n\r\n", 400, contract.InvalidParameter)
	f(patient, "POST /base/in HTTP/1.1\r\nAuthorization: apiKey good-key\r\n\r\n", 400, contract.InvalidParameter) // no Host
	f(patient, "POST /base/in HTTP/9.1x\r\n"+good+"\r\n", 505, contract.InvalidParameter)
	f(patient, post+good+"X: "+strings.Repeat("x", 2000)+"\r\n\r\n", 431, contract.InvalidParameter)
	f(hasty, "", 408, contract.RequestTimeout)
	f(hasty, post+good, 408, contract.RequestTimeout)
	f(hasty, post+good+"Content-Length: 5\r\n\r\n", 408, contract.RequestTimeout) // the body's first byte
}

func TestMultipartIsNotParsedAhead(t *testing.T) {
	p := &probe{serve: func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		body, err := io.ReadAll(ctx.RequestBodyStream())
		ctx.SetBody(body)
		return 0, err
	}}
	s := start(t, p, nil)
	body := "no multipart at all"
	resp := dial(t, s).send(post + good + "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 19\r\n\r\n" + body).response()
	got, _ := io.ReadAll(resp.Body)
	require.Equal(t, body, string(got))
}

// TestBodyArrivesWhole checks that a large body arrives unchanged, however its length is
// announced.
func TestBodyArrivesWhole(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 30_000)
	p := &probe{serve: func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		got, err := io.ReadAll(ctx.RequestBodyStream())
		if !bytes.Equal(got, want) {
			return 0, errors.New("another body")
		}
		return 0, err
	}}
	s := start(t, p, nil)
	f := func(body io.Reader, length int64) {
		t.Helper()
		req, err := http.NewRequest("POST", "http://"+s.Addr().String()+"/base/in", body)
		require.NoError(t, err)
		req.ContentLength = length
		req.Header.Set("Authorization", "apiKey good-key")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode)
	}
	f(bytes.NewReader(want), int64(len(want)))
	f(io.MultiReader(bytes.NewReader(want)), -1)
}

// TestTLS checks that a rejected client that keeps sending also sees the status over TLS.
func TestTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	s := start(t, &probe{}, func(c *Config) { c.TLSCert, c.TLSKey, c.DiscardTime = cert, key, patience })
	c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	require.NoError(t, err)
	defer c.Close()
	p := peer{t: t, Conn: c, in: bufio.NewReader(c)}
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	require.Equal(t, 200, p.send(post+good+"Content-Length: 3\r\n\r\nabc").response().StatusCode)
	p.send(post + "Host: h\r\nContent-Length: 500000\r\n\r\n")
	for range 5 {
		p.send(strings.Repeat("x", 100_000))
	}
	requireError(t, p.response(), 401, contract.Unauthenticated)
	p.ended()
}

// TestInvalidRecord checks that a client that uses TLS and then sends no TLS record gets no plain
// text.
func TestInvalidRecord(t *testing.T) {
	cert, key, pool := certificate(t)
	s := start(t, &probe{}, func(c *Config) { c.TLSCert, c.TLSKey = cert, key })
	raw := dial(t, s)
	c := tls.Client(raw.Conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	require.NoError(t, c.Handshake())
	raw.send(post + good + "\r\n")
	received, _ := io.ReadAll(raw.in)
	require.NotContains(t, string(received), "HTTP/1.1")
}

// TestPlainRequestToTLS checks that a request without TLS to a port with TLS gets a response that
// says so.
func TestPlainRequestToTLS(t *testing.T) {
	cert, key, _ := certificate(t)
	s := start(t, &probe{}, func(c *Config) { c.TLSCert, c.TLSKey = cert, key })
	p := dial(t, s).send(post + good + "Content-Length: 500000\r\n\r\n" + strings.Repeat("x", 500_000))
	requireError(t, p.response(), 400, contract.InvalidParameter)
	p.ended()
}

// TestResponsesOfAllSizes checks that responses of all sizes arrive complete and in order, to
// single and to pipelined requests, and also if their body is not sent.
func TestResponsesOfAllSizes(t *testing.T) {
	sizes := []int{0, 1, 100, 4095, 4096, 4097, 80_000, writePiece, writePiece + 1, 3 << 20, 5, 8192}
	p := &probe{serve: func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		size, err := ctx.QueryArgs().GetUint("size")
		body := []byte(strings.Repeat("x", size))
		switch string(ctx.QueryArgs().Peek("as")) {
		case "stream":
			ctx.Response.SetBodyStream(bytes.NewReader(body), size)
		case "unchanged":
			ctx.Response.SetBodyRaw(body)
			ctx.SetStatusCode(fasthttp.StatusNotModified)
		default:
			ctx.Response.SetBodyRaw(body)
		}
		return 0, err
	}}
	s := start(t, p, nil)
	c := dial(t, s)
	type request struct{ method, as, text string }
	var list []request
	var all strings.Builder
	for _, size := range sizes {
		for _, r := range []request{{"GET", "raw", ""}, {"GET", "stream", ""}, {"HEAD", "raw", ""}, {"GET", "unchanged", ""}, {"HEAD", "stream", ""}} {
			r.text = r.method + " /base/map?size=" + strconv.Itoa(size) + "&as=" + r.as + " HTTP/1.1\r\n" + good + "\r\n"
			list = append(list, r)
			all.WriteString(r.text)
		}
	}
	expect := func(i int) {
		t.Helper()
		resp := c.responseTo(list[i].method)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		want := sizes[i/5]
		if list[i].method == "HEAD" || list[i].as == "unchanged" {
			want = 0
		}
		require.Equal(t, want, len(body), list[i].text)
	}
	for i, r := range list {
		c.send(r.text)
		expect(i)
	}
	go func() { _, _ = io.WriteString(c, all.String()) }()
	for i := range list {
		expect(i)
	}
}
