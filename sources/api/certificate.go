package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/sources/internal/watch"
)

// keyPair is the server's certificate and key, which are read again when their files change.
type keyPair struct {
	cert, key string // paths
	log       zerolog.Logger
	now       atomic.Pointer[tls.Certificate]
	file      *watch.File
	problem   string // logged last
	stop      context.CancelFunc
	done      chan struct{}
}

// openCertificate reads the files and watches them until close. It returns nil for plain HTTP.
func openCertificate(cfg Config, log zerolog.Logger) (*keyPair, error) {
	if cfg.TLSCert == "" {
		return nil, nil
	}
	c := &keyPair{cert: cfg.TLSCert, key: cfg.TLSKey, log: log, done: make(chan struct{})}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.file = watch.NewFile(c.cert, settle, maxCertificate)
	go func() { // until close
		defer close(c.done)
		defer c.file.Close()
		watch.Rounds(ctx, c.file.Changes(), settle, c.check)
	}()
	return c, nil
}

const maxCertificate = 1 << 20

func (c *keyPair) close() {
	if c != nil {
		c.stop()
		<-c.done
	}
}

// load reads the files and reports whether the certificate is another one.
func (c *keyPair) load() (changed bool, err error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return false, fmt.Errorf("cannot load the certificate %s (api.tls_cert) with the key %s (api.tls_key): %w", c.cert, c.key, err)
	}
	before := c.now.Swap(&pair)
	if changed = before == nil || !slices.EqualFunc(before.Certificate, pair.Certificate, slices.Equal); changed {
		showExpiry(pair.Leaf.NotAfter)
	}
	return changed, nil
}

// check reads the files and returns when to do so again. Certificate and key are replaced one after
// the other, so it tries again soon if they do not match.
func (c *keyPair) check(context.Context) time.Duration {
	_, _, _ = c.file.Read() // follows the folders on the way to it
	changed, err := c.load()
	if err != nil {
		if c.problem != err.Error() {
			c.problem = err.Error()
			c.log.Error().Err(err).Msg("the last valid certificate stays in use")
		}
		return time.Second
	}
	if c.problem = ""; changed {
		c.log.Info().Str("file", c.cert).Time("expires", c.now.Load().Leaf.NotAfter).Msg("TLS certificate reloaded")
	}
	return pollEvery
}

// config returns the TLS settings, nil for plain HTTP.
func (c *keyPair) config() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
		NextProtos:     []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	}
}
