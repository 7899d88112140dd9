// Package ops implements the operators' listener: metrics, liveness, readiness, additional routes
// and, optionally, profiles. It has its own address, which need not be reachable by clients, and
// responds even if the clients' listener is full or draining.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"

	"trafficd/cmd/internal/version"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/settings"
)

// Config configures the operators' listener.
type Config struct {
	Listen string `setting:"listen"` // address for operators
	Pprof  bool   `setting:"pprof"`  // serve /debug/pprof
	// Names with a dot by which operators, Prometheus or trafficd reach the listener, such as
	// replica-1.example.org. Addresses, localhost and names without a dot always work. Requests for
	// other names get 421, because a web page elsewhere could make a browser send them.
	Hosts []string `setting:"hosts"`
}

// DefaultConfig returns the default settings, with a listener on loopback, because metrics and
// profiles are not public.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8081"} }

// Validate checks the address.
func (c Config) Validate() error {
	return settings.Check(c.Listen == "" || settings.IsHostPort(c.Listen),
		"listen is %q, must be host:port, such as 127.0.0.1:8081, or empty for no listener", c.Listen)
}

// Server is the running listener.
type Server struct {
	http     *http.Server // nil if there is no address
	listener net.Listener
	running  sync.WaitGroup
	cancel   func() // ends streams
}

// Start logs changes of the readiness, and listens and serves if cfg has an address, until Stop. It
// calls check every few seconds, and for each request to /readyz or /metrics. routes are additional
// routes by pattern.
func Start(cfg Config, check func() Readiness, routes map[string]http.Handler, log zerolog.Logger) (*Server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cancel: cancel}
	if cfg.Listen != "" {
		l, err := net.Listen("tcp", cfg.Listen)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("cannot listen for operators (ops.listen): %w", err)
		}
		s.listener = l
		s.http = &http.Server{
			BaseContext:       func(net.Listener) context.Context { return ctx },
			Handler:           cfg.guard(Handler(cfg, check, routes)),
			ReadHeaderTimeout: readTimeout,
			WriteTimeout:      time.Minute,      // longer than a profile or a wait for forecasts; streams renew it
			IdleTimeout:       90 * time.Second, // longer than usual scrape intervals, so that scrapers keep their connections
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          stdlog.New(serverLog{log}, "", 0),
		}
		s.running.Go(func() {
			if err := s.http.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
				log.Error().Err(err).Msg("the operators' listener has failed; restart the daemon to restore it")
			}
		})
		log.Info().Str("address", s.Address()).Msg("listening for operators: /metrics /healthz /readyz")
	}
	s.running.Go(func() { watch(check, log, ctx.Done()) })
	return s, nil
}

const (
	readTimeout    = 5 * time.Second // a header fits into one packet
	maxConnections = 256             // further ones wait; open files must remain for clients
)

// guard rejects requests with a body, which no route reads, and requests for foreign names.
func (c Config) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ContentLength != 0:
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // the server supports it, and discards the body
			w.Header().Set("Connection", "close")
			http.Error(w, "requests to this listener have no body", http.StatusBadRequest)
		case !c.isOwn(r.Host):
			http.Error(w, "unknown host: use an address, or add the name to ops.hosts", http.StatusMisdirectedRequest)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// isOwn reports whether a Host header names this listener. The owner of a public name can make it
// resolve to this listener, and then read responses with a web page; it cannot own the others.
func (c Config) isOwn(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	listen, _, _ := net.SplitHostPort(c.Listen)
	return !strings.Contains(host, ".") || net.ParseIP(host) != nil || host == listen ||
		slices.ContainsFunc(c.Hosts, func(own string) bool { return strings.EqualFold(own, host) })
}

// serverLog logs the server's messages.
type serverLog struct{ log zerolog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	l.log.Warn().Str("error", strings.TrimSpace(string(p))).Msg("the operators' listener has a problem with a connection")
	return len(p), nil
}

// Address returns the address of the listener, or "" if there is none.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Stop lets running requests finish until ctx is done, then closes their connections.
func (s *Server) Stop(ctx context.Context) {
	s.cancel()
	if s.http != nil {
		if err := s.http.Shutdown(ctx); err != nil {
			_ = s.http.Close() // a profile may run for 30 s
		}
	}
	s.running.Wait()
}

// Handler registers the listener's metrics and returns its routes.
func Handler(cfg Config, check func() Readiness, routes map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	metrics.Register(
		metrics.GaugeFunc("trafficd_ops_ready", "1 if /readyz returns 200, else 0.", nil, func() float64 { return check().ready() }),
		metrics.GaugeFunc("trafficd_ops_time_seconds", "The daemon's clock as Unix time, in seconds.", nil,
			func() float64 { return float64(time.Now().UnixMilli()) / 1000 }),
		metrics.GaugeFunc("trafficd_build_info", "1, with the version and revision of the daemon and the Go version as labels.", version.Labels(),
			func() float64 { return 1 }),
	)
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET "+RunbookPath+"{entry}", serveEntry)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { check().write(w, r.URL.Query()) })
	if cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// State is the state of a component or of the daemon.
type State string

// The states, from best to worst.
const (
	OK       State = "ok"
	Degraded State = "degraded" // an operator should act, but at least one key can be served
	NotReady State = "not_ready"
)

// Component is the readiness of one part of the daemon.
type Component struct {
	State   State          `json:"state"`
	Reasons []string       `json:"reasons,omitempty"` // for operators; empty only if OK
	Detail  map[string]any `json:"detail,omitempty"`  // for operators and scripts

	entries []Entry // of the reasons
}

// Add adds a reason, with a reference to the entry of the runbook about it, unless c has it
// already. It changes the state to the given one if that is worse.
func (c *Component) Add(state State, see Entry, reason string) {
	c.State = worse(c.State, state)
	if reason += "; see the runbook, " + string(see); !slices.Contains(c.Reasons, reason) {
		c.Reasons, c.entries = append(c.Reasons, reason), append(c.entries, see)
	}
}

// Readiness is the response body of /readyz. The status code is 503 if State is NotReady, else 200;
// of /readyz?for=PURPOSE, it is 503 if the daemon does not serve the purpose.
type Readiness struct {
	State      State                `json:"state"`
	Serves     map[string]bool      `json:"serves,omitempty"` // by purpose
	Components map[string]Component `json:"components"`
}

// NewReadiness returns the readiness of the components, whose State is that of the worst one.
func NewReadiness(components map[string]Component) Readiness {
	r := Readiness{State: OK, Components: components}
	for _, c := range components {
		r.State = worse(r.State, c.State)
	}
	return r
}

// ready returns the value of the readiness metric.
func (r Readiness) ready() float64 { return metrics.Bool(r.State != NotReady) }

func worse(a, b State) State {
	rank := map[State]int{"": 0, OK: 1, Degraded: 2, NotReady: 3}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

func (r Readiness) write(w http.ResponseWriter, query url.Values) {
	ready := r.State != NotReady
	if query.Has("for") {
		served, known := r.Serves[query.Get("for")]
		if !known && len(r.Serves) > 0 {
			http.Error(w, "unknown purpose: for must be one of "+strings.Join(slices.Sorted(maps.Keys(r.Serves)), ", "), http.StatusBadRequest)
			return
		}
		ready = ready && served
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r) // fails only if the client has disconnected
}
