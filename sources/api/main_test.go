package api

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"trafficd/schemas/contract"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // runs until the process ends
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// patience is how long a test waits for an expected event.
const patience = time.Minute

// probe is an endpoint whose behaviour a test sets, and which counts its calls.
type probe struct {
	before func(*contract.Client, *fasthttp.RequestHeader) *contract.APIError
	serve  func(*contract.Client, *fasthttp.RequestCtx) (int, error)
	asked  atomic.Int32
	served atomic.Int32
}

func (p *probe) Admit(c *contract.Client, h *fasthttp.RequestHeader) *contract.APIError {
	p.asked.Add(1)
	if p.before != nil {
		return p.before(c, h)
	}
	return nil
}

func (p *probe) Handle(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
	p.served.Add(1)
	if p.serve != nil {
		return p.serve(c, ctx)
	}
	return readAll(c, ctx)
}

// readAll reads the body and responds with its length.
func readAll(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
	n := int64(0)
	if body := ctx.RequestBodyStream(); body != nil {
		n, _ = io.Copy(io.Discard, body)
	}
	fmt.Fprintf(ctx, "%d bytes", n)
	return int(n), nil
}

func entry(name, key string, rights ...string) KeyEntry {
	digest := sha256.Sum256([]byte(key))
	return KeyEntry{Name: name, SHA256: hex.EncodeToString(digest[:]), ProductInstance: "city", Rights: rights}
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.BasePath = "/base"
	cfg.DrainGrace = 20 * time.Millisecond
	slow := entry("slow", "slow-key", "ingest")
	slow.RequestsPerSecond = 0.01
	items := entry("items", "items-key", "ingest")
	items.ItemsPerSecond = 10
	cfg.Keys = []KeyEntry{entry("good", "good-key", "ingest", "forecast"), entry("viewer", "view-key", "forecast"), slow, items}
	return cfg
}

// start serves p at /base/in (POST, right ingest), and at /base/map (GET, HEAD, right
// forecast, Basic and ?apiKey= too), and at /base/open (POST, right ingest; GET for
// everyone).
func start(t *testing.T, p *probe, change func(*Config)) *Server {
	t.Helper()
	return startLogging(t, p, change, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel))
}

func startLogging(t *testing.T, p *probe, change func(*Config), log zerolog.Logger) *Server {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	keys, err := OpenKeyring(cfg, zerolog.Nop())
	require.NoError(t, err)
	s, err := New(cfg, keys, []Route{
		{Path: "/in", Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: p},
		{Path: "/map", Methods: []string{"GET", "HEAD"}, Right: contract.RightForecast, Endpoint: p, Basic: true, QueryKey: true},
		{Path: "/open", Methods: []string{"GET", "POST"}, Open: []string{"GET"}, Right: contract.RightIngest, Endpoint: p},
	}, log)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() {
		stop(t, s)
		keys.Close()
		require.Empty(t, s.pending.open)
	})
	return s
}

// stop may be called again after the test has called it.
func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := contextWithin(patience)
	defer cancel()
	_ = s.Stop(ctx)
}

// peer is a client that sends raw bytes.
type peer struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, s *Server) *peer {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{t, c, bufio.NewReader(c)}
}

func (p *peer) send(text string) *peer {
	p.t.Helper()
	_, err := io.WriteString(p, text)
	require.NoError(p.t, err)
	return p
}

// response reads one whole response.
func (p *peer) response() *http.Response { return p.responseTo("POST") }

func (p *peer) responseTo(method string) *http.Response {
	p.t.Helper()
	resp, err := http.ReadResponse(p.in, &http.Request{Method: method})
	require.NoError(p.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// ended requires that the connection is closed without further data.
func (p *peer) ended() {
	p.t.Helper()
	rest, err := io.ReadAll(p.in)
	require.NoError(p.t, err, "an orderly end, no reset")
	require.Empty(p.t, string(rest))
}

// requireError requires the error body of contract 1.1.
func requireError(t *testing.T, resp *http.Response, status int, code contract.Code) errorBody {
	t.Helper()
	text, _ := io.ReadAll(resp.Body)
	require.Equal(t, status, resp.StatusCode, string(text))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var body errorBody
	require.NoError(t, json.Unmarshal(text, &body), string(text))
	require.Equal(t, code.String(), body.ErrorCode)
	require.NotEmpty(t, body.Description)
	require.NotNil(t, body.Causes)
	require.Len(t, body.TraceID, 32)
	require.Equal(t, body.TraceID, resp.Header.Get("Trace-Id"))
	return body
}

const (
	good = "Host: h\r\nAuthorization: apiKey good-key\r\n"
	post = "POST /base/in HTTP/1.1\r\n"
)

// asHTTP parses a rendered response as a client would.
func asHTTP(t *testing.T, resp *fasthttp.Response) *http.Response {
	t.Helper()
	c := &peer{t: t, in: bufio.NewReader(strings.NewReader(resp.String()))}
	return c.response()
}
