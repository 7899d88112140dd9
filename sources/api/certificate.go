package api

import (
	"context"
	"crypto/tls"
	"fmt"
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

// keyPair is the server's certificate and key, which are reloaded when their files change.
type keyPair struct {
	cert, key string // paths
	log       zerolog.Logger
	now       atomic.Pointer[tls.Certificate]
	file      *watch.File
	loop      feedloop.Loop[*tls.Certificate]
	expired   bool // the certificate in use was not valid at the last check
	stop      func()
}

// openCertificate reads the files and watches them until close. It returns nil for plain HTTP.
func openCertificate(cfg Config, log zerolog.Logger) (*keyPair, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	c := &keyPair{cert: cfg.TLSCert, key: cfg.TLSKey, log: log}
	pair, err := c.load(context.Background())
	if err != nil {
		return nil, err
	}
	c.now.Store(pair)
	metrics.Register(
		metrics.GaugeFunc("trafficd_api_certificate_expiry_timestamp_seconds",
			"Unix time at which the TLS certificate in use expires, in seconds.", nil,
			func() float64 { return float64(c.now.Load().Leaf.NotAfter.Unix()) }),
		metrics.GaugeFunc("trafficd_api_certificate_stale",
			"1 if the TLS certificate in the file cannot be loaded and the last valid one is in use, else 0.", nil,
			func() float64 { return metrics.Bool(c.loop.Status.Get().Err != nil) }),
	)
	c.file = watch.NewFile(c.cert, settle, maxCertificate, c.key)
	c.loop = feedloop.Loop[*tls.Certificate]{
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
func (c *keyPair) load(context.Context) (*tls.Certificate, error) {
	if c.file != nil {
		_, _, _ = c.file.Read() // only to watch the directories on the path
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("cannot load the certificate %s (api.tls_cert) with the key %s (api.tls_key): %w", c.cert, c.key, err)
	}
	return &pair, nil
}

// use replaces the certificate, and logs a change and the end of its validity.
func (c *keyPair) use(pair *tls.Certificate) error {
	before := c.now.Swap(pair)
	if !slices.EqualFunc(before.Certificate, pair.Certificate, slices.Equal) {
		c.log.Info().Str("file", c.cert).Time("expires", pair.Leaf.NotAfter).Msg("TLS certificate reloaded")
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
	pair := &keyPair{cert: c.TLSCert, key: c.TLSKey}
	loaded, err := pair.load(context.Background())
	if err != nil {
		return fmt.Errorf("tls_cert and api.tls_key: %w", err)
	}
	pair.now.Store(loaded)
	if err := pair.checkValidity(time.Now()); err != nil {
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
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
		NextProtos:     []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}
}
