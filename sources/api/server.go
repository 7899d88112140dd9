package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
)

// Server is the HTTP server for clients. Make it with New, then Start, then Stop.
type Server struct {
	cfg     Config
	keys    *Keyring
	routes  routes
	origins origins
	log     zerolog.Logger
	pending pending

	http     *fasthttp.Server
	listener *listener
	draining atomic.Bool
	failed   chan error    // what ended the accepting
	done     chan struct{} // closed when it has ended
}

// New makes a server for these routes. The keyring stays the caller's, who closes
// it after Stop.
func New(cfg Config, keys *Keyring, list []Route, log zerolog.Logger) (*Server, error) {
	routes, err := newRoutes(cfg.BasePath, list)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, keys: keys, routes: routes, origins: newOrigins(cfg.CORSOrigins), log: log, failed: make(chan error, 1), done: make(chan struct{})}
	s.pending.open = map[*fasthttp.RequestHeader]*exchange{}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		HeaderReceived:               s.headerReceived,
		ExpectHandler:                s.expect,
		ErrorHandler:                 s.malformed,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReadBufferSize:               cfg.MaxHeaderBytes,
		WriteBufferSize:              writeBuffer,
		ReadTimeout:                  cfg.HeaderTimeout,
		IdleTimeout:                  cfg.IdleTimeout,                  // WriteTimeout: see handle, which knows the time already
		Concurrency:                  cfg.MaxConnections + turningAway, // the listener keeps to MaxConnections
		MaxIdleWorkerDuration:        time.Second,                      // an idle worker goroutine outlives Stop for as long
		NoDefaultServerHeader:        true,
		SecureErrorLogMessage:        true, // or a bad header would be logged with its key
		Logger:                       quiet{&s.log},
	}
	return s, nil
}

// Start listens, and serves on a goroutine of its own until Stop.
func (s *Server) Start() error {
	tls, err := s.cfg.tls()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen for clients: %w", err)
	}
	s.listener = newListener(l, tls, s.cfg, s.log)
	connectionsMax.Set(float64(s.cfg.MaxConnections))
	go func() {
		defer close(s.done) // Stop closes the listener and waits
		s.failed <- s.http.Serve(s.listener)
	}()
	return nil
}

// Addr is where the server listens, for when the port was left to the system.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Failed yields once when the accepting ends, with nil where Stop ended it.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop answers 503 to new requests for the drain grace, on new connections too: load
// balancers hear of a stop later than we do, and a connection that waits to be accepted
// when the listening ends is reset. Then it takes no new connection, lets the
// requests under way finish, and closes everything. What is not finished when ctx
// ends is cut off, and the error says how much that was.
func (s *Server) Stop(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	s.draining.Store(true)
	select {
	case <-time.After(s.cfg.DrainGrace):
	case <-ctx.Done():
	case <-s.done: // nobody is accepted any more
	}
	_ = s.listener.Close()
	<-s.done
	s.listener.closeUnused()

	err := s.http.ShutdownWithContext(ctx)
	s.listener.wait(ctx)
	if n := s.listener.cutOff(); n > 0 {
		return fmt.Errorf("cannot finish %d connections within the deadline: they were cut off, and their clients have to send again: %w", n, ctx.Err())
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("cannot shut the server down: %w", err)
	}
	return nil
}

// quiet gives fasthttp's few own messages to the log. They are about single
// connections, so they are of use only when one looks for something.
type quiet struct{ log *zerolog.Logger }

func (q quiet) Printf(format string, args ...any) { q.log.Debug().Msgf(format, args...) }
