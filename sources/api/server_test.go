package api

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

func TestPanicsCostOneRequest(t *testing.T) {
	p := &probe{}
	s := start(t, p, nil)
	s.log = s.log.Level(6) // keeps the stack traces out of the test's output
	p.serve = func(_ *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		ctx.SetBodyString("half a response")
		panic("in Handle")
	}
	c := dial(t, s).send(post + good + "Content-Length: 1\r\n\r\nx")
	requireError(t, c.response(), 500, contract.InternalError)

	p.serve = func(*contract.Client, *fasthttp.RequestCtx) (int, error) { return 0, errors.New("secret detail") }
	body := requireError(t, dial(t, s).send(post+good+"\r\n").response(), 500, contract.InternalError)
	require.NotContains(t, body.Description, "secret")

	p.serve = nil
	p.before = func(*contract.Client, *fasthttp.RequestHeader) *contract.APIError { panic("in Admit") }
	requireError(t, dial(t, s).send(post+good+"Content-Length: 1\r\n\r\nx").response(), 500, contract.InternalError)
	p.before = nil
	require.Equal(t, 200, dial(t, s).send(post+good+"\r\n").response().StatusCode)
}

// TestNoResponse checks that the connection is closed without a byte, but that earlier responses
// are not lost.
func TestNoResponse(t *testing.T) {
	p := &probe{}
	s := start(t, p, nil)
	p.serve = func(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		if p.served.Load() == 1 {
			return readAll(c, ctx)
		}
		ctx.SetBodyString("never sent")
		return 0, batch.ErrNoResponse
	}
	ok := post + good + "Content-Length: 3\r\n\r\nabc"
	c := dial(t, s).send(ok + ok + ok)
	require.Equal(t, 200, c.response().StatusCode)
	c.ended()
	require.EqualValues(t, 2, p.served.Load())
}

func TestItemsAreChargedAfterwards(t *testing.T) {
	p := &probe{serve: func(*contract.Client, *fasthttp.RequestCtx) (int, error) { return 1000, nil }}
	s := start(t, p, nil)
	request := post + "Host: h\r\nAuthorization: apiKey items-key\r\n\r\n"
	c := dial(t, s)
	require.Equal(t, 200, c.send(request).response().StatusCode)
	resp := c.send(request).response()
	requireError(t, resp, 429, contract.RateLimited)
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 100, wait, patience.Seconds(), "(1000 - 10 + 1) items at 10 per second, less the time since the first request")
	require.LessOrEqual(t, wait, 100)
}

// TestStop checks that requests in progress finish. During the drain grace, new ones are served,
// on existing and on new connections, which are closed after the response. Later ones get 503, and
// then no connection is accepted.
func TestStop(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := &probe{serve: func(c *contract.Client, ctx *fasthttp.RequestCtx) (int, error) {
		if ctx.QueryArgs().Has("slow") {
			close(entered)
			<-leave
		}
		return readAll(c, ctx)
	}}
	s := start(t, p, nil)
	slow := dial(t, s).send("POST /base/in?slow HTTP/1.1\r\n" + good + "Content-Length: 3\r\n\r\nabc")
	<-entered
	kept := dial(t, s)
	require.Equal(t, 200, kept.send(post+good+"\r\n").response().StatusCode)

	s.draining.Store(true) // as Stop does for the drain grace
	for _, c := range []*peer{kept, dial(t, s)} {
		resp := c.send(post + good + "Content-Length: 5\r\n\r\nabcde").response()
		require.Equal(t, 200, resp.StatusCode)
		require.True(t, resp.Close)
		c.ended()
	}
	s.rejecting.Store(true) // as Stop does after it
	late := dial(t, s).send(post + good + "Content-Length: 5\r\n\r\n")
	resp := late.response()
	requireError(t, resp, 503, contract.ServiceUnavailable)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.True(t, resp.Close)
	late.ended()
	require.NoError(t, late.Close()) // Stop waits for the unread body of a client that does not
	stopped := make(chan error)
	go func() {
		ctx, cancel := contextWithin(patience)
		defer cancel()
		stopped <- s.Stop(ctx)
	}()
	require.Eventually(t, func() bool {
		_, err := net.Dial("tcp", s.Addr().String())
		return err != nil
	}, patience, time.Millisecond)

	close(leave)
	resp = slow.response()
	require.Equal(t, 200, resp.StatusCode)
	require.True(t, resp.Close)
	require.NoError(t, <-stopped)
	require.NoError(t, <-s.Failed())
}

// TestStopWhileClientsConnect checks that clients which open connections all the time get a
// response to each request that was served. A connection that was accepted too late is closed or
// reset.
func TestStopWhileClientsConnect(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.DrainGrace = 50 * time.Millisecond })
	const clients = 32
	var responses atomic.Int64
	ends := make(chan error, clients)
	for range clients {
		go func() {
			for {
				c, err := net.Dial("tcp", s.Addr().String())
				if err == nil {
					var resp *http.Response
					_, err = io.WriteString(c, post+good+"Connection: close\r\n\r\n")
					if err == nil {
						resp, err = http.ReadResponse(bufio.NewReader(c), nil)
					}
					_ = c.Close()
					if err == nil {
						if resp.StatusCode == http.StatusOK { // otherwise it came after the drain grace
							responses.Add(1)
						}
						continue
					}
				}
				for _, stopped := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.ErrUnexpectedEOF} {
					if errors.Is(err, stopped) {
						err = nil
					}
				}
				ends <- err
				return
			}
		}()
	}
	require.Eventually(t, func() bool { return responses.Load() > clients }, patience, time.Millisecond)
	ctx, cancel := contextWithin(patience)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
	for range clients {
		require.NoError(t, <-ends)
	}
	require.EqualValues(t, p.served.Load(), responses.Load())
}

// TestStopAwaitsFirstRequests checks that a connection that was opened just before the listener
// closed gets a response to its request: a proxy that has connected cannot send the request
// elsewhere if the connection is closed without one.
func TestStopAwaitsFirstRequests(t *testing.T) {
	s := start(t, &probe{}, nil)
	c := dial(t, s)
	require.Eventually(t, func() bool { return s.listener.len() == 1 }, patience, time.Millisecond)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	<-s.done // no connection is accepted any more
	c.send(post + good + abc)
	requireError(t, c.response(), 503, contract.ServiceUnavailable)
	require.NoError(t, c.Close())
	require.NoError(t, <-stopped)
}

// TestStopClosesUnusedConnections checks that Stop itself closes a connection that was opened in
// advance and never used: fasthttp, which would wait 5 s for it, does not know of it here.
func TestStopClosesUnusedConnections(t *testing.T) {
	cert, key, _ := certificate(t)
	f := func(change func(*Config)) {
		t.Helper()
		s := start(t, &probe{}, func(c *Config) { change(c); c.HeaderTimeout = 2 * patience })
		c := dial(t, s)
		require.Eventually(t, func() bool { return s.listener.len() == 1 }, patience, time.Millisecond)
		s.http = new(fasthttp.Server)
		ctx, cancel := contextWithin(patience)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
		require.True(t, s.draining.Load() && s.rejecting.Load())
		c.ended()
	}
	f(func(*Config) {})
	f(func(c *Config) { c.TLSCert, c.TLSKey = cert, key })
}

// TestStopWaitsForDiscarding checks that a rejected connection whose input is still being
// discarded does not count as cut off.
func TestStopWaitsForDiscarding(t *testing.T) {
	s := start(t, &probe{}, func(c *Config) { c.DiscardTime = 300 * time.Millisecond })
	c := dial(t, s).send(post + "Host: h\r\nContent-Length: 5\r\n\r\n")
	requireError(t, c.response(), 401, contract.Unauthenticated)
	ctx, cancel := contextWithin(patience)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
	require.Zero(t, s.listener.len())
}

func TestStopCutsOffAtTheDeadline(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	p := &probe{serve: func(*contract.Client, *fasthttp.RequestCtx) (int, error) {
		close(entered)
		<-leave
		return 0, nil
	}}
	s := start(t, p, nil)
	c := dial(t, s).send(post + good + "\r\n")
	idle := dial(t, s)
	<-entered
	require.Eventually(t, func() bool { return s.listener.len() == 2 }, patience, time.Millisecond)
	ctx, cancel := contextWithin(patience)
	defer cancel()
	go func() {
		for s.listener.len() == 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel() // as if the deadline had passed
	}()
	err := s.Stop(ctx)
	require.ErrorContains(t, err, "1 connections")
	require.ErrorContains(t, err, "cut off")
	require.ErrorIs(t, err, context.Canceled)
	_, err = io.ReadAll(c.in)
	require.NoError(t, err)
	_, _ = io.ReadAll(idle.in)
	close(leave)
	require.Eventually(t, func() bool { return s.listener.len() == 0 }, patience, time.Millisecond)
}

func TestSurplusConnectionsGet503(t *testing.T) {
	s := start(t, &probe{}, func(c *Config) { c.MaxConnections = 2 })
	first, second := dial(t, s), dial(t, s)
	require.Equal(t, 200, first.send(post+good+"\r\n").response().StatusCode)
	require.Equal(t, 200, second.send("GET /base/map HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey view-key\r\n\r\n").response().StatusCode)
	third := dial(t, s).send(post + good + "Content-Length: 100000\r\n\r\n")
	resp := third.response()
	requireError(t, resp, 503, contract.ServiceUnavailable)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	third.ended()
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return s.listener.len() == 1 }, patience, time.Millisecond)
	require.Equal(t, 200, dial(t, s).send(post+good+"\r\n").response().StatusCode)
}

// TestSilentSurplusConnectionsAreClosed checks that a surplus connection that never begins its TLS
// handshake is closed, instead of taking the place of others and delaying the shutdown.
func TestSilentSurplusConnectionsAreClosed(t *testing.T) {
	cert, key, pool := certificate(t)
	s := start(t, &probe{}, func(c *Config) { c.TLSCert, c.TLSKey, c.MaxConnections = cert, key, 1 })
	c, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	require.NoError(t, err)
	defer c.Close()
	first := peer{t: t, Conn: c, in: bufio.NewReader(c)}
	require.Equal(t, 200, first.send(post+good+"\r\n").response().StatusCode)
	dial(t, s).ended()
}

// TestSilentConnectionsAreEvicted checks that a client that opens all connections without
// presenting a key does not lock out others: its oldest connections are closed, and those with a
// key are kept.
func TestSilentConnectionsAreEvicted(t *testing.T) {
	f := func(limit, perAddress, silent, left int) {
		t.Helper()
		p := &probe{}
		s := start(t, p, func(c *Config) { c.MaxConnections, c.MaxSilent, c.HeaderTimeout = limit, perAddress, time.Hour })
		known := dial(t, s)
		require.Equal(t, 200, known.send(post+good+"\r\n").response().StatusCode)
		before := testutil.ToFloat64(connectionsEvicted)
		var quiet []*peer
		for i := range silent {
			c := dial(t, s)
			if i%2 == 1 { // a header whose body has not begun does not count
				c.send(post + good + "Content-Length: 1\r\n\r\n")
			}
			quiet = append(quiet, c)
			require.Eventually(t, func() bool {
				return int(testutil.ToFloat64(connectionsEvicted)-before) == max(0, i+1-left)
			}, patience, time.Millisecond)
		}
		for _, c := range quiet[:silent-left] {
			_, err := c.in.ReadByte()
			require.Error(t, err)
		}
		for range 3 {
			require.Equal(t, 200, dial(t, s).send(post+good+"Connection: close\r\n\r\n").response().StatusCode, "a new client is served")
			require.Equal(t, 200, known.send(post+good+"\r\n").response().StatusCode, "a client with a key keeps its connection")
		}
		require.LessOrEqual(t, s.listener.len(), limit)
	}
	f(8, 0, 20, 7)
	f(8, 3, 20, 3)
	f(8, 100, 8, 7)
	f(8, 3, 3, 3)
}

// TestEvictedConnectionHasNoEffect checks that a request whose connection has been evicted is not
// handled.
func TestEvictedConnectionHasNoEffect(t *testing.T) {
	l := newListener(nil, nil, testConfig(), zerolog.Nop())
	good := &exchange{key: &key{client: &contract.Client{Owner: "good"}}}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := l.wrap(ours)
	require.True(t, l.enter(c))
	l.evict(c)
	require.NotNil(t, l.present(c, good))
	require.Zero(t, l.len())
	require.Empty(t, l.perAddress)
	require.Zero(t, l.clients.Total())
	require.NoError(t, c.Close())

	c = l.wrap(ours)
	require.True(t, l.enter(c))
	require.Nil(t, l.present(c, good))
	require.Nil(t, l.present(c, good))
	require.Zero(t, l.silent.Len())
	l.leave(c)
	l.leave(c)
	require.Zero(t, l.len())
	require.Zero(t, l.clients.Total())
}

// TestIdleConnectionsPerClientAreBounded checks that a client keeps at most half of the connections
// that other clients leave. For one more, its oldest idle one is closed; requests in progress and
// other clients keep theirs.
func TestIdleConnectionsPerClientAreBounded(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.MaxConnections, c.HeaderTimeout = 8, time.Hour })
	const getMap = "GET /base/map HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey "
	other := dial(t, s)
	require.Equal(t, 200, other.send(getMap+"view-key\r\n\r\n").response().StatusCode)
	busy := dial(t, s).send(post + good + "Content-Length: 2\r\n\r\na")
	require.Eventually(t, func() bool { return p.served.Load() == 2 }, patience, time.Millisecond)
	before := testutil.ToFloat64(connectionsEvicted)
	var kept []*peer
	for i := range 20 {
		c := dial(t, s)
		require.Equal(t, 200, c.send(getMap+"good-key\r\n\r\n").response().StatusCode)
		kept = append(kept, c)
		require.Eventually(t, func() bool { return idle(s) == min(i+1, 2)+1 }, patience, time.Millisecond, "the connection must become idle")
	}
	const closed = 18 // 2 idle connections and the busy one remain; with the one of view-key, they leave 4 of 8 free
	for _, c := range kept[:closed] {
		c.ended()
	}
	require.EqualValues(t, closed, testutil.ToFloat64(connectionsEvicted)-before)
	for _, c := range kept[closed:] {
		require.Equal(t, 200, c.send(getMap+"good-key\r\n\r\n").response().StatusCode)
	}
	require.Equal(t, 200, other.send(getMap+"view-key\r\n\r\n").response().StatusCode)
	require.Equal(t, 200, busy.send("b").response().StatusCode)
}

func idle(s *Server) (n int) {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	for c := range s.listener.open {
		if c.idle.Load() > 0 {
			n++
		}
	}
	return n
}

// TestBusyConnectionsPerClientAreBounded checks that if a client has as many connections as it
// may, all of them busy, one more gets a 503 and has no effect.
func TestBusyConnectionsPerClientAreBounded(t *testing.T) {
	p := &probe{}
	s := start(t, p, func(c *Config) { c.MaxConnections = 4 })
	first := dial(t, s).send(post + good + "Content-Length: 2\r\n\r\na")
	second := dial(t, s).send(post + good + "Content-Length: 2\r\n\r\na")
	require.Eventually(t, func() bool { return p.served.Load() == 2 }, patience, time.Millisecond)
	third := dial(t, s).send(post + good + "Content-Length: 1\r\n\r\na")
	resp := third.response()
	requireError(t, resp, 503, contract.ServiceUnavailable)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	third.ended()
	require.EqualValues(t, 2, p.served.Load())
	require.Equal(t, 200, first.send("b").response().StatusCode)
	require.Equal(t, 200, second.send("b").response().StatusCode)
}

func TestAddress(t *testing.T) {
	f := func(remote, want string) {
		t.Helper()
		addr, err := net.ResolveTCPAddr("tcp", remote)
		require.NoError(t, err)
		require.Equal(t, want, addressOf(remoteConn{addr: addr}).String())
	}
	f("192.0.2.1:5", "192.0.2.1/32")
	f("[::ffff:192.0.2.1]:5", "192.0.2.1/32")
	f("[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::/64")
	f("[fe80::1%lo]:5", "fe80::/64")
}

type remoteConn struct {
	net.Conn
	addr net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.addr }

// TestHeaderTimeoutShrinks checks that there is less time to present a key when fewer connections
// are free.
func TestHeaderTimeoutShrinks(t *testing.T) {
	cfg := testConfig()
	cfg.MaxConnections, cfg.HeaderTimeout = 100, 10*time.Second
	l := newListener(nil, nil, cfg, zerolog.Nop())
	f := func(open int, few bool, want time.Duration) {
		t.Helper()
		for len(l.open) < open {
			l.open[&conn{}] = struct{}{}
		}
		limit, shrunk := l.headerTimeout()
		require.Equal(t, few, shrunk)
		if few {
			require.Equal(t, want, limit)
		}
		c := l.wrap(remoteConn{})
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
		require.Equal(t, few, time.Until(c.read.wanted) <= want)
		c.client = "good"
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
		require.Greater(t, time.Until(c.read.wanted), time.Minute)
	}
	f(0, false, 0)
	f(50, false, 0)
	f(51, true, 9800*time.Millisecond)
	f(75, true, 5*time.Second)
	f(99, true, time.Second)
	f(100, true, time.Second)
}

func TestStartErrors(t *testing.T) {
	s := start(t, &probe{}, nil)
	cfg := testConfig()
	cfg.Listen = s.Addr().String()
	other, err := New(cfg, s.keys, nil, s.log)
	require.NoError(t, err)
	require.ErrorContains(t, other.Start(), "cannot listen")
	stop(t, other) // does nothing
	cfg.TLSCert, cfg.TLSKey = "none.pem", "none.key"
	other.cfg = cfg
	require.ErrorContains(t, other.Start(), "none.pem")
}

// TestAcceptContinues checks that a failed accept does not stop the server.
func TestAcceptContinues(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	failing := &failingListener{Listener: l, failures: 2}
	ours := newListener(failing, nil, testConfig(), start(t, &probe{}, nil).log.Level(7))
	go func() { c, _ := net.Dial("tcp", l.Addr().String()); _ = c.Close() }()
	c, err := ours.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, ours.Close())
	_, err = ours.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

type failingListener struct {
	net.Listener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestConfig(t *testing.T) {
	require.NoError(t, testConfig().Validate())
	f := func(want string, change func(*Config)) {
		t.Helper()
		cfg := testConfig()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
	f("listen", func(c *Config) { c.Listen = "8080" })
	f("base_path", func(c *Config) { c.BasePath = "base" })
	f("base_path", func(c *Config) { c.BasePath = "/base/" })
	f("base_path", func(c *Config) { c.BasePath = "/b%20" })
	f("tls_cert", func(c *Config) { c.TLSCert = "x" })
	f("max_connections", func(c *Config) { c.MaxConnections = 0 })
	f("max_silent_connections", func(c *Config) { c.MaxSilent = -1 })
	f("drain_grace", func(c *Config) { c.DrainGrace = time.Hour })
	f("keys: entry 1", func(c *Config) { c.Keys[0].Name = "" })
}

// TestCertificateExpiry checks that with TLS, a metric shows when the certificate expires.
func TestCertificateExpiry(t *testing.T) {
	cert, key, _ := certificate(t)
	start(t, &probe{}, func(c *Config) { c.TLSCert, c.TLSKey = cert, key })
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	families, err := prometheus.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "trafficd_api_certificate_expiry_timestamp_seconds" {
			require.Equal(t, float64(pair.Leaf.NotAfter.Unix()), f.Metric[0].GetGauge().GetValue())
			return
		}
	}
	t.Error("got no metric trafficd_api_certificate_expiry_timestamp_seconds, want one")
}

// certificate returns a self-signed certificate for 127.0.0.1.
func certificate(t testing.TB) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return certFile, keyFile, pool
}
