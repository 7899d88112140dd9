package api

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"trafficd/schemas/contract"
)

const layerRequest = "GET /map HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAuthorization: apiKey good-key\r\n\r\n"

// layerLike responds as the forecast layer does.
type layerLike struct{ body []byte }

func (l layerLike) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError { return nil }

func (l layerLike) Handle(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
	l.respond(ctx)
	return 0, nil
}

func (l layerLike) respond(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	for _, line := range layerHeaders {
		h.SetCanonical(line[0], line[1])
	}
	h.SetContentTypeBytes([]byte("application/x-protobuf"))
	ctx.Response.SetBodyRaw(l.body)
}

var layerHeaders = [][2][]byte{
	{[]byte("ETag"), []byte(`"0123456789abcdef"`)},
	{[]byte("Last-Modified"), []byte("Sat, 21 Nov 2026 12:32:46 GMT")},
	{[]byte("Cache-Control"), []byte("private")},
	{[]byte("Vary"), []byte("Authorization, Accept, Accept-Encoding")},
	{[]byte("Forecast-Age"), []byte("12")},
	{[]byte("Accept-Ranges"), []byte("bytes")},
}

// BenchmarkGet compares a GET of a small layer, without system calls, with the same response by
// fasthttp alone.
func BenchmarkGet(b *testing.B) {
	endpoint := layerLike{bytes.Repeat([]byte("x"), 1000)}
	cfg := testConfig()
	cfg.BasePath = ""
	keys, err := OpenKeyring(cfg, zerolog.Nop())
	require.NoError(b, err)
	ours, err := New(cfg, keys, []Route{{Path: "/map", Methods: []string{"GET", "HEAD"}, Right: contract.RightForecast, Endpoint: endpoint}}, zerolog.Nop())
	require.NoError(b, err)
	own := newListener(nil, nil, cfg, zerolog.Nop())
	bare := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Response.Header.SetCanonical(traceHeaderName, []byte("0123456789abcdef0123456789abcdef"))
			endpoint.respond(ctx)
		},
		ReadTimeout: cfg.HeaderTimeout, IdleTimeout: cfg.IdleTimeout, WriteTimeout: cfg.WriteTimeout,
		ReadBufferSize: cfg.MaxHeaderBytes, NoDefaultServerHeader: true,
	}
	b.Run("ours", func(b *testing.B) {
		c := newReplay(b)
		b.ReportAllocs()
		b.ResetTimer()
		require.NoError(b, ours.http.ServeConn(own.wrap(c)))
		require.Equal(b, b.N, c.responses)
	})
	b.Run("bare", func(b *testing.B) {
		c := newReplay(b)
		b.ReportAllocs()
		b.ResetTimer()
		require.NoError(b, bare.ServeConn(c))
		require.Equal(b, b.N, c.responses)
	})
}

// BenchmarkKept sends requests on kept TLS connections, in rounds by turns with a key and with a
// client certificate, and reports the ratio of the process's CPU time: certificate to key.
func BenchmarkKept(b *testing.B) {
	const requests = 500 // of a round
	ca := newAuthority(b, "clients")
	dir := b.TempDir()
	cfg := testConfig()
	cfg.BasePath = ""
	cfg.TLSCert, cfg.TLSKey, _ = certificate(b)
	cfg.TLSClientCA = filepath.Join(dir, "ca.pem")
	require.NoError(b, os.WriteFile(cfg.TLSClientCA, []byte(bundle(ca)), 0o600))
	cfg.Keys = append(cfg.Keys, certificateEntry("certified", ca.cert, "forecast"))
	keys, err := OpenKeyring(cfg, zerolog.Nop())
	require.NoError(b, err)
	s, err := New(cfg, keys, []Route{{
		Path: "/map", Methods: []string{"GET"}, Right: contract.RightForecast, Endpoint: layerLike{bytes.Repeat([]byte("x"), 1000)},
	}}, zerolog.Nop())
	require.NoError(b, err)
	require.NoError(b, s.Start())
	b.Cleanup(func() { _ = s.Stop(b.Context()) })
	cert := ca.client("acme")
	connect := func(certificates ...tls.Certificate) func() {
		c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true, Certificates: certificates})
		require.NoError(b, err)
		b.Cleanup(func() { _ = c.Close() })
		request := []byte(layerRequest)
		if len(certificates) > 0 {
			request = []byte(strings.Replace(layerRequest, "Authorization: apiKey good-key\r\n", "", 1))
		}
		in := bufio.NewReader(c)
		var resp fasthttp.Response
		return func() {
			for range requests {
				_, err := c.Write(request)
				require.NoError(b, err)
				require.NoError(b, resp.Read(in))
				require.Equal(b, 200, resp.StatusCode())
			}
		}
	}
	ways := []func(){connect(), connect(cert)}
	var used [2]time.Duration
	for i := range 2 * b.N {
		way := (i + i/2) % 2 // either goes first by turns
		before := cpuTime(b)
		ways[way]()
		used[way] += cpuTime(b) - before
	}
	b.ReportMetric(float64(used[1])/float64(used[0]), "certificate/key")
	b.ReportMetric(float64(used[1].Microseconds())/float64(b.N*requests), "CPU-µs/request")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// replay is a connection that repeats one request for each iteration of the benchmark. Its
// deadlines are set on a real socket.
type replay struct {
	net.Conn
	left, responses int
}

func newReplay(b *testing.B) *replay {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return &replay{Conn: c, left: b.N}
}

func (r *replay) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	return copy(p, layerRequest), nil
}

func (r *replay) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p[:min(len(p), 15)]), "HTTP/1.1 200 OK") {
		r.responses++
	}
	return len(p), nil
}
