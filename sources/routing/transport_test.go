package routing

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// simple is a request for a WKT.
var simple = convert(`Point" wkt="POINT (8 48)"`, "", xmlOptions(inDegrees, "WKT"), "")

func zip(text string) string { return string(compress.Gzip(text)) }

// requireError requires an error in the format of the other paths.
func (s *server) requireError(status int, code contract.Code, body string, headers ...string) {
	s.t.Helper()
	resp, text := s.post(body, headers...)
	requireAPIError(s.t, resp, text, status, code)
}

func requireAPIError(t testing.TB, resp *http.Response, text []byte, status int, code contract.Code) {
	t.Helper()
	require.Equal(t, status, resp.StatusCode, "%s", text)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var response struct{ ErrorCode, Description string }
	require.NoError(t, json.Unmarshal(text, &response))
	require.Equal(t, code.String(), response.ErrorCode, response.Description)
}

func TestAccepted(t *testing.T) {
	s := start(t, nil)
	f := func(body string, headers ...string) {
		t.Helper()
		r := ask[*xroute.ConvertGeometryResponse](s, body, headers...)
		require.Equal(t, "POINT (8 48)", *r.Result.Encoded().WKT)
	}
	f(simple)
	f(simple, "Content-Type", "text/xml")
	f(simple, "Content-Type", `Text/XML; charset="UTF-8"`)
	f(simple, "Content-Type", "application/xml")
	f(simple, "Content-Type", "", "SOAPAction", `"urn:whatever"`)
	f(zip(simple), "Content-Encoding", "gzip")
	f(zip(simple), "Content-Encoding", "X-GZIP")
	f(simple, "Content-Encoding", "identity")
	f(zip(simple[:100])+zip(simple[100:]), "Content-Encoding", "gzip")
	f("\ufeff" + simple)
	utf16Body := []byte{0xfe, 0xff}
	for _, unit := range utf16.Encode([]rune(strings.Replace(simple, "UTF-8", "UTF-16", 1))) {
		utf16Body = append(utf16Body, byte(unit>>8), byte(unit))
	}
	f(string(utf16Body), "Content-Type", "text/xml; charset=utf-16")
	basic := func(user, password string) string {
		req, _ := http.NewRequest(http.MethodGet, "/", nil)
		req.SetBasicAuth(user, password)
		return req.Header.Get("Authorization")
	}
	f(simple, "Authorization", basic("anybody", "a"))
}

func TestRejected(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxBodyBytes = 2000 })
	s.requireError(401, contract.Unauthenticated, simple, "Authorization", "apiKey x")
	s.requireError(415, contract.UnsupportedContentType, simple, "Content-Type", "application/json")
	s.requireError(415, contract.UnsupportedContentType, simple, "Content-Type", `multipart/related; type="application/xop+xml"`)
	s.requireError(415, contract.UnsupportedContentType, simple, "Content-Type", "text/xml2; =")
	s.requireError(415, contract.UnsupportedContentType, simple, "Content-Encoding", "br")
	s.requireError(415, contract.UnsupportedContentType, simple, "Content-Encoding", "gzip, gzip")
	_, text := s.post(simple, "Content-Encoding", "gzip, gzip")
	require.Contains(t, string(text), "names gzip 2 times")
	s.requireError(413, contract.BodyTooLarge, simple+strings.Repeat(" ", 2000))
	s.requireError(400, contract.InvalidGzip, simple, "Content-Encoding", "gzip")
	s.requireError(400, contract.InvalidGzip, "", "Content-Encoding", "gzip")
	s.requireError(400, contract.InvalidGzip, zip(simple)[:100], "Content-Encoding", "gzip")
	s.requireError(400, contract.InvalidGzip, zip(simple)+"rest", "Content-Encoding", "gzip")
	broken := []byte(zip(simple))
	broken[len(broken)-5] ^= 1 // in the checksum
	s.requireError(400, contract.InvalidGzip, string(broken), "Content-Encoding", "gzip")

	resp, _ := s.post(simple[:len(simple)/2])
	require.True(t, resp.Close, "the next bytes may be the rest of the envelope")
	resp, _ = s.post("<html/>")
	require.Equal(t, 500, resp.StatusCode)
	require.False(t, resp.Close)

	fault, _ := s.requireFault(&xroute.IllegalParameterException{}, "", zip(simple+strings.Repeat(" ", 1<<20)), "Content-Encoding", "gzip")
	require.Contains(t, fault.Text, "2000 bytes")
	fault, _ = s.requireFault(&xroute.IllegalParameterException{}, "", zip(simple))
	require.Contains(t, fault.Text, "Content-Encoding: gzip")
	fault, _ = s.requireFault(&xroute.IllegalParameterException{}, "", simple, "Content-Type", "text/xml; charset=ISO-8859-1")
	require.Contains(t, fault.Text, "send UTF-8")
}

// TestPooledReaders checks that pooled gzip readers do not retain the body of a request.
func TestPooledReaders(t *testing.T) {
	s := start(t, nil).service
	var h fasthttp.RequestHeader
	h.Set("Content-Encoding", "gzip")
	b := &body{memory: s.memory, bytes: []byte(zip(simple))}
	require.Nil(t, s.memory.Acquire("", int64(cap(b.bytes))))
	kept := weak.Make(&b.bytes[0])
	_, err := s.read(&h, b)
	require.NoError(t, err)
	runtime.GC()
	require.Nil(t, kept.Value())
}

// peer sends raw bytes.
type peer struct {
	t testing.TB
	net.Conn
}

// dial starts a request of client a.
func (s *server) dial(headers string) *peer {
	s.t.Helper()
	c, err := net.Dial("tcp", s.api.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(waitLimit)))
	_, err = fmt.Fprintf(c, "POST /base%s HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey a\r\nContent-Type: text/xml\r\n%s\r\n", Path, headers)
	require.NoError(s.t, err)
	return &peer{s.t, c}
}

func (p *peer) send(text string) *peer {
	p.t.Helper()
	_, err := io.WriteString(p, text)
	require.NoError(p.t, err)
	return p
}

func (p *peer) response() (*http.Response, []byte) {
	p.t.Helper()
	require.NoError(p.t, p.SetDeadline(time.Now().Add(waitLimit))) // the test may have waited for other requests
	resp, err := http.ReadResponse(bufio.NewReader(p), &http.Request{Method: http.MethodPost})
	require.NoError(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp, text
}

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

func TestIncompleteBodies(t *testing.T) {
	slow := start(t, func(c *Config) { c.ReceiveTimeout, c.RateGrace = 300*time.Millisecond, 100*time.Millisecond })
	s := start(t, func(c *Config) { c.MaxBodyBytes = 2000 })
	f := func(p *peer, status int, code contract.Code) {
		t.Helper()
		resp, text := p.response()
		requireAPIError(t, resp, text, status, code)
	}
	const chunked = "Transfer-Encoding: chunked\r\n"
	f(slow.dial("Content-Length: 1000\r\n").send("<"), 408, contract.RequestTimeout)
	f(slow.dial(chunked).send(chunk("<a>")), 408, contract.RequestTimeout)
	f(s.dial(chunked).send(chunk(strings.Repeat(" ", 1500))+chunk(strings.Repeat(" ", 501))), 413, contract.BodyTooLarge)
	f(s.dial(chunked).send(chunk("<a>")+"zz\r\n"), 400, contract.InvalidParameter)

	p := s.dial("Content-Length: 1000\r\n").send("<")
	require.NoError(t, p.Conn.(*net.TCPConn).CloseWrite())
	f(p, 400, contract.InvalidParameter)

	exact := simple + strings.Repeat(" ", 2000-len(simple))
	resp, text := s.dial(chunked).send(chunk(exact[:700]) + chunk(exact[700:]) + "0\r\n\r\n").response()
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
}

// TestSlowSenderOccupiesNoWorker checks that other requests get responses while a client sends
// slowly.
func TestSlowSenderOccupiesNoWorker(t *testing.T) {
	s := start(t, func(c *Config) { c.Concurrency = 1 })
	slow := s.dial(fmt.Sprintf("Content-Length: %d\r\n", len(simple))).send(simple[:100])
	ask[*xroute.ConvertGeometryResponse](s, simple)
	resp, _ := slow.send(simple[100:]).response()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestResponsesAreCompressed(t *testing.T) {
	s := start(t, nil)
	points := strings.Repeat("8 48, ", 200) + "8 48"
	large := convert(`LineString" wkt="LINESTRING (`+points+`)"`, "", xmlOptions(inDegrees, "WKT"), "")
	f := func(body, accept, want string) {
		t.Helper()
		resp, text := s.post(body, "Accept-Encoding", accept)
		require.Equal(t, want, resp.Header.Get("Content-Encoding"), accept)
		require.Equal(t, "Accept-Encoding", resp.Header.Get("Vary"))
		if want == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(text))
			require.NoError(t, err)
			text, err = io.ReadAll(z)
			require.NoError(t, err)
		}
		r, err := xroute.ReadResponse(bytes.NewReader(text), xroute.DefaultLimits())
		require.NoError(t, err)
		require.Contains(t, *r.(*xroute.ConvertGeometryResponse).Result.Encoded().WKT, "8 48")
	}
	f(large, "gzip", "gzip")
	f(large, "br, GZIP;q=0.5", "gzip")
	f(large, "*", "gzip")
	f(large, "gzip;q=0, *", "")
	f(large, "gzip;q=x", "")
	f(large, "identity", "")
	f(simple, "gzip", "") // too short
}

func TestWSDL(t *testing.T) {
	f := func(s *server, method, query string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest(method, s.url+query, nil)
		require.NoError(t, err)
		req.Host = "traffic.example.org"
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(text)
	}
	s := start(t, nil)
	for _, query := range []string{"?WSDL", "?wsdl", "?Wsdl=", "?x=y&wsdl"} {
		resp, text := f(s, http.MethodGet, query)
		require.Equal(t, http.StatusOK, resp.StatusCode, query)
		require.Equal(t, "text/xml; charset=utf-8", resp.Header.Get("Content-Type"))
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"), "the address depends on the request")
		require.Contains(t, text, `<soap:address location="http://traffic.example.org/base/xroute/ws/XRoute"/>`)
		require.Contains(t, text, `schemaLocation="common.xsd"`)
	}
	resp, text := f(s, http.MethodHead, "?WSDL")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Empty(t, text)
	resp, text = f(s, http.MethodGet, "")
	requireAPIError(t, resp, []byte(text), http.StatusNotFound, contract.NotFound)
	require.Contains(t, text, "?WSDL")

	s = start(t, nil, func(s *Service) { s.scheme = "https" })
	_, text = f(s, http.MethodGet, "?wsdl")
	require.Contains(t, text, `location="https://traffic.example.org/base/xroute/ws/XRoute"`)

	s = start(t, func(c *Config) { c.PublicURL = "https://public.example.org/api" })
	resp, text = f(s, http.MethodGet, "?wsdl")
	require.Contains(t, text, `location="https://public.example.org/api/xroute/ws/XRoute"`)
	require.Empty(t, resp.Header.Get("Cache-Control"))
}
