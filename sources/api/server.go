package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Server is the HTTP server for clients. Create it with New, then call Start and Stop once each.
type Server struct {
	Tracer oteltrace.Tracer // creates the spans of requests; nil: no tracing; must be set before Start

	cfg     Config
	keys    *Keyring
	routes  routes
	origins origins
	log     zerolog.Logger
	pending pending

	http        *fasthttp.Server
	listener    *listener
	certificate *keyPair
	draining    atomic.Bool   // close each connection after its response
	rejecting   atomic.Bool   // respond to new requests with 503
	failed      chan error    // receives the result of Serve
	done        chan struct{} // closed when Serve has returned
}

// New returns a server for the given routes. The caller closes the keyring after Stop.
func New(cfg Config, keys *Keyring, list []Route, log zerolog.Logger) (*Server, error) {
	routes, err := newRoutes(cfg.BasePath, list)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, keys: keys, routes: routes, origins: origins{}, log: log, failed: make(chan error, 1), done: make(chan struct{})}
	s.pending.open = map[*fasthttp.RequestHeader]*exchange{}
	for _, o := range cfg.CORSOrigins {
		s.origins[o] = true
	}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		HeaderReceived:               s.headerReceived,
		ExpectHandler:                s.expect,
		ErrorHandler:                 s.malformed,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReadBufferSize:               cfg.MaxHeaderBytes,
		ReadTimeout:                  cfg.HeaderTimeout,
		IdleTimeout:                  cfg.IdleTimeout,        // WriteTimeout: see conn.Write
		Concurrency:                  2 * cfg.MaxConnections, // evicted connections are not closed immediately
		MaxIdleWorkerDuration:        time.Second,            // for this long, idle worker goroutines outlive Stop
		NoDefaultServerHeader:        true,
		SecureErrorLogMessage:        true, // otherwise a malformed header would be logged, including the key
		Logger:                       quiet{&s.log},
	}
	return s, nil
}

// Start starts listening and serves requests in a new goroutine until Stop.
func (s *Server) Start() error {
	var err error
	if s.certificate, err = openCertificate(s.cfg, s.log); err != nil {
		return err
	}
	config := net.ListenConfig{Control: limitUnsent}
	config.SetMultipathTCP(false) // older kernels do not support limitUnsent with it
	l, err := config.Listen(context.Background(), "tcp", s.cfg.Listen)
	if err != nil {
		s.certificate.close()
		return fmt.Errorf("cannot listen for clients (api.listen): %w", err)
	}
	s.listener = newListener(l, s.certificate.config(), s.cfg, s.log)
	connectionsMax.Set(float64(s.cfg.MaxConnections))
	go func() {
		defer close(s.done) // Stop closes the listener and waits for this
		s.failed <- s.http.Serve(s.listener)
	}()
	return nil
}

// Reload triggers a reload of the TLS certificate, if there is one.
func (s *Server) Reload() {
	if s.certificate != nil {
		s.certificate.file.Poke()
	}
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Failed returns a channel that receives one value when the server stops accepting connections: nil
// after Stop, otherwise the error.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop first continues to serve new requests for the drain grace, even on new connections, because
// load balancers notice a shutdown late, but closes each connection after its response. Then it
// stops accepting connections, responds to new requests with 503, and lets the requests in progress
// finish. When ctx is done, it closes the connections that are still busy
// and returns an error with their number.
func (s *Server) Stop(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	defer s.certificate.close()
	s.draining.Store(true)
	s.wait(ctx, s.cfg.DrainGrace)
	s.rejecting.Store(true)
	for n := 0; n < 1000 && backlog(s.listener.Listener) > 0; n++ { // usually no or one round
		time.Sleep(50 * time.Microsecond)
	}
	_ = s.listener.Close()
	<-s.done
	select { // a proxy may have connected, but not sent its request yet, and could not send it elsewhere
	case <-time.After(firstRequest):
	case <-ctx.Done():
	}
	s.listener.closeUnused()

	err := s.http.ShutdownWithContext(ctx)
	s.listener.wait(ctx)
	if n := s.listener.cutOff(); n > 0 {
		return fmt.Errorf("cannot finish %d connections within the deadline: %w; they were cut off, and their clients must repeat their requests",
			n, ctx.Err())
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("cannot shut down the server: %w", err)
	}
	return nil
}

// firstRequest is how long Stop waits for the first requests of the last connections.
const firstRequest = 100 * time.Millisecond

// wait returns after limit, or as soon as ctx is done or the server has failed.
func (s *Server) wait(ctx context.Context, limit time.Duration) {
	select {
	case <-time.After(limit):
	case <-ctx.Done():
	case <-s.done:
	}
}

// quiet logs fasthttp's messages at level debug, because they concern single connections. It omits
// the text of errors that can repeat the client's data, including a key: all but network and TLS
// errors.
type quiet struct{ log *zerolog.Logger }

func (q quiet) Printf(format string, args ...any) {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = withoutBytes(err)
		}
	}
	q.log.Debug().Msgf(format, args...)
}

func withoutBytes(err error) string {
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return network.Error()
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "tls: ") {
			return err.Error()
		}
	}
	return "malformed request"
}
