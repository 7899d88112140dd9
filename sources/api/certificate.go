package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/settings"
	"trafficd/pipeline/lib/watch"
)

const maxCertificate = 1 << 20

// keyPair is the server's certificate and key, and the CA certificates of its clients, which are
// reloaded when their files change.
type keyPair struct {
	cert, key, ca string // paths; ca may be empty
	log           zerolog.Logger
	now           atomic.Pointer[pair]
	file          *watch.File
	loop          feedloop.Loop[*pair]
	expired       bool // the certificate in use was not valid at the last check
	stop          func()
}

// pair is an immutable version of what the files contain.
type pair struct {
	tls.Certificate
	clients *x509.CertPool // nil: clients need no certificate; the same as before if the CAs are
}

// openCertificate reads the files and watches them until close. It returns nil for plain HTTP.
func openCertificate(cfg Config, log zerolog.Logger) (*keyPair, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	c := &keyPair{cert: cfg.TLSCert, key: cfg.TLSKey, ca: cfg.TLSClientCA, log: log}
	first, err := c.load(context.Background())
	if err != nil {
		return nil, err
	}
	c.now.Store(first)
	metrics.Register(
		metrics.GaugeFunc("trafficd_api_certificate_expiry_timestamp_seconds",
			"Unix time at which the TLS certificate in use expires, in seconds.", nil,
			func() float64 { return float64(c.now.Load().Leaf.NotAfter.Unix()) }),
		metrics.GaugeFunc("trafficd_api_certificate_stale",
			"1 if the TLS certificate in the file cannot be loaded and the last valid one is in use, else 0.", nil,
			func() float64 { return metrics.Bool(c.loop.Status.Get().Err != nil) }),
	)
	others := []string{c.key}
	if c.ca != "" {
		others = append(others, c.ca)
	}
	c.file = watch.NewFile(c.cert, settle, maxCertificate, others...)
	c.loop = feedloop.Loop[*pair]{
		Load: c.load, Use: c.use, Status: feedloop.NewStatus("the TLS certificate", certificateChecks, log),
		Changes: c.file.Changes(), Interval: pollEvery, Settle: settle,
		Retry: time.Second, // the certificate and the key do not match until both are replaced
	}
	c.loop.Status.Set(feedloop.State{InUse: true})
	c.stop = c.loop.Start(context.Background())
	return c, nil
}

func (c *keyPair) close() {
	if c != nil {
		c.stop()
		c.file.Close()
	}
}

// load reads the files.
func (c *keyPair) load(context.Context) (*pair, error) {
	if c.file != nil {
		_, _, _ = c.file.Read() // only to watch the directories on the path
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("cannot load the certificate %s (api.tls_cert) with the key %s (api.tls_key): %w", c.cert, c.key, err)
	}
	clients, err := c.loadClients()
	return &pair{loaded, clients}, err
}

// loadClients reads the CA certificates of clients. It returns those in use if they are the same.
func (c *keyPair) loadClients() (*x509.CertPool, error) {
	if c.ca == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.ca)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("no certificate in the file: it must contain PEM certificates")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot load the CA certificates of clients %s (api.tls_client_ca): %w", c.ca, err)
	}
	if before := c.now.Load(); before != nil && before.clients.Equal(pool) {
		return before.clients, nil
	}
	return pool, nil
}

// use replaces the certificate, and logs a change and the end of its validity.
func (c *keyPair) use(next *pair) error {
	before := c.now.Swap(next)
	if !slices.EqualFunc(before.Certificate.Certificate, next.Certificate.Certificate, slices.Equal) {
		c.log.Info().Str("file", c.cert).Time("expires", next.Leaf.NotAfter).Msg("TLS certificate reloaded")
	}
	if before.clients != next.clients {
		c.log.Info().Str("file", c.ca).Msg("CA certificates of clients reloaded")
	}
	err := c.checkValidity(time.Now())
	if err != nil && !c.expired {
		c.log.Error().Err(err).Msg("the TLS certificate needs attention")
	}
	c.expired = err != nil
	return nil
}

// CheckCertificate returns an error that starts with a setting's key if clients could not use the
// TLS certificate.
func (c Config) CheckCertificate() error {
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil
	}
	own := &keyPair{cert: c.TLSCert, key: c.TLSKey}
	loaded, err := own.load(context.Background())
	if err != nil {
		return fmt.Errorf("tls_cert and api.tls_key: %w", err)
	}
	own.ca = c.TLSClientCA
	if _, err := own.loadClients(); err != nil {
		return fmt.Errorf("tls_client_ca: %w", err)
	}
	own.now.Store(loaded)
	if err := own.checkValidity(time.Now()); err != nil {
		return fmt.Errorf("tls_cert: %w", err)
	}
	return nil
}

// Certificate returns the time at which the certificate in use expires, why it is invalid, and why
// those in the files cannot be used. The time is zero for plain HTTP.
func (s *Server) Certificate(now time.Time) (expires time.Time, invalid, stale error) {
	if s.certificate == nil {
		return expires, nil, nil
	}
	if stale = s.certificate.loop.Status.Get().Err; stale != nil {
		stale = fmt.Errorf("%w; the last valid certificate stays in use until a restart, which fails", stale)
	}
	return s.certificate.now.Load().Leaf.NotAfter, s.certificate.checkValidity(now), stale
}

// checkValidity returns an error unless the certificate in use is valid.
func (c *keyPair) checkValidity(now time.Time) error {
	if err := settings.CheckCertificate(c.now.Load().Leaf, now); err != nil {
		return fmt.Errorf("the TLS certificate of the clients' listener %w: clients cannot connect; "+
			"write a renewed certificate with its chain to %s", err, c.cert)
	}
	return nil
}

func (c *keyPair) config() *tls.Config {
	if c == nil {
		return nil
	}
	config := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.now.Load().Certificate, nil },
		NextProtos:     []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}
	if c.ca == "" {
		return config
	}
	withCertificates := config.Clone()
	withCertificates.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		own := config.Clone() // without GetConfigForClient; the session keys remain those of the original
		own.ClientAuth, own.ClientCAs = tls.VerifyClientCertIfGiven, c.now.Load().clients
		return own, nil
	}
	return withCertificates
}
