package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

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
	problem   atomic.Pointer[error] // error of the files; nil if there is none
	file      *watch.File
	logged    string // text of the last error logged; empty after a success
	stop      func()
}

// openCertificate reads the files and watches them until close. It returns nil for plain HTTP.
func openCertificate(cfg Config, log zerolog.Logger) (*keyPair, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	c := &keyPair{cert: cfg.TLSCert, key: cfg.TLSKey, log: log}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	metrics.Register(
		metrics.GaugeFunc("trafficd_api_certificate_expiry_timestamp_seconds",
			"Unix time at which the TLS certificate in use expires, in seconds.", nil,
			func() float64 { return float64(c.now.Load().Leaf.NotAfter.Unix()) }),
		metrics.GaugeFunc("trafficd_api_certificate_stale",
			"1 if the TLS certificate in the file cannot be loaded and the last valid one is in use, else 0.", nil,
			func() float64 { return metrics.Bool(c.problem.Load() != nil) }),
	)
	c.file = watch.NewFile(c.cert, settle, maxCertificate, c.key)
	c.stop = c.file.Watch(settle, c.check)
	return c, nil
}

func (c *keyPair) close() {
	if c != nil {
		c.stop()
	}
}

// load reads the files and reports whether the certificate has changed.
func (c *keyPair) load() (changed bool, err error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return false, fmt.Errorf("cannot load the certificate %s (api.tls_cert) with the key %s (api.tls_key): %w", c.cert, c.key, err)
	}
	before := c.now.Swap(&pair)
	return before == nil || !slices.EqualFunc(before.Certificate, pair.Certificate, slices.Equal), nil
}

// CheckCertificate returns an error that starts with a setting's key if clients could not use the
// TLS certificate.
func (c Config) CheckCertificate() error {
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil
	}
	pair := &keyPair{cert: c.TLSCert, key: c.TLSKey}
	if _, err := pair.load(); err != nil {
		return fmt.Errorf("tls_cert and api.tls_key: %w", err)
	}
	if err := pair.checkValidity(time.Now()); err != nil {
		return fmt.Errorf("tls_cert: %w", err)
	}
	return nil
}

// Certificate returns the time at which the certificate in use expires, and what is wrong with it
// or with the files. The time is zero for plain HTTP.
func (s *Server) Certificate(now time.Time) (expires time.Time, problems []error) {
	if s.certificate == nil {
		return expires, nil
	}
	return s.certificate.now.Load().Leaf.NotAfter, s.certificate.problems(now)
}

func (c *keyPair) problems(now time.Time) (errs []error) {
	if err := c.checkValidity(now); err != nil {
		errs = append(errs, err)
	}
	if err := c.problem.Load(); err != nil {
		errs = append(errs, fmt.Errorf("%w; the last valid certificate stays in use until a restart, which fails", *err))
	}
	return errs
}

// checkValidity returns an error unless the certificate in use is valid.
func (c *keyPair) checkValidity(now time.Time) error {
	if err := settings.CheckCertificate(c.now.Load().Leaf, now); err != nil {
		return fmt.Errorf("the TLS certificate of the clients' listener %w: clients cannot connect; "+
			"write a renewed certificate with its chain to %s", err, c.cert)
	}
	return nil
}

// check reads the files and returns the time until the next check, which is short after an error,
// because the certificate and the key do not match until both are replaced.
func (c *keyPair) check(context.Context) time.Duration {
	_, _, _ = c.file.Read() // only to watch the directories on the path
	next := pollEvery
	switch changed, err := c.load(); {
	case err != nil:
		c.problem.Store(&err)
		next = time.Second
	default:
		c.problem.Store(nil)
		if changed {
			c.log.Info().Str("file", c.cert).Time("expires", c.now.Load().Leaf.NotAfter).Msg("TLS certificate reloaded")
		}
	}
	text := ""
	if err := errors.Join(c.problems(time.Now())...); err != nil {
		if text = err.Error(); text != c.logged {
			c.log.Error().Err(err).Msg("the TLS certificate needs attention")
		}
	}
	c.logged = text
	return next
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
