// Package ops is the operator's listener: metrics, liveness, readiness, the
// OpenAPI document and, where it is switched on, profiles. It has an address
// of its own, so that it answers also while the interface for clients is full
// or draining, and need not be reachable for them.
package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/rs/zerolog"
)

// Config of the operator's listener.
type Config struct {
	Listen string `koanf:"listen"` // host:port; empty: no listener
	Pprof  bool   `koanf:"pprof"`  // serve /debug/pprof
}

// DefaultConfig listens on loopback only: metrics and profiles are nothing for strangers.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8081"} }

// Validate checks the address.
func (c Config) Validate() error {
	if c.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen is %q: it has to be host:port, such as 127.0.0.1:8081, or empty for no listener", c.Listen)
	}
	return nil
}

// Server is the running listener.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{}
	log      zerolog.Logger
}

// Start listens and serves until Stop. check is asked for each /readyz; openapi
// is the document of the interfaces.
func Start(cfg Config, check func() Readiness, openapi []byte, log zerolog.Logger) (*Server, error) {
	if cfg.Listen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for operators (ops.listen): %w", err)
	}
	s := &Server{
		http: &http.Server{
			Handler:           Handler(cfg, check, openapi),
			ReadHeaderTimeout: 5 * time.Second,  // a header takes one packet; whoever is slower holds a connection on purpose
			IdleTimeout:       90 * time.Second, // above the usual 15–60 s between two scrapes, so that they keep their connection
			MaxHeaderBytes:    16 << 10,
		},
		listener: l,
		done:     make(chan struct{}),
		log:      log,
	}
	go s.serve()
	log.Info().Str("address", s.Address()).Msg("operators' listener: /metrics /healthz /readyz /schemas/openapi.yaml")
	return s, nil
}

func (s *Server) serve() {
	defer close(s.done)
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error().Err(err).Msg("the operators' listener has stopped; restart the daemon to get it back")
	}
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Stop lets running answers finish until ctx ends, then cuts them off. It may
// be called on nil, which is what Start gives without an address.
func (s *Server) Stop(ctx context.Context) {
	if s == nil {
		return
	}
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // a profile may run for 30 s: nobody waits for it
	}
	<-s.done
}

// Handler is the listener's routes, without the listener.
func Handler(cfg Config, check func() Readiness, openapi []byte) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		metrics.WritePrometheus(w, true)
		metrics.WriteGaugeUint64(w, "trafficd_ops_ready", check().ready())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { check().write(w) })
	mux.HandleFunc("GET /schemas/openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openapi)
	})
	if cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
