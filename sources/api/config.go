package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Config of the server for clients.
type Config struct {
	Listen         string        `koanf:"listen"`           // host:port
	BasePath       string        `koanf:"base_path"`        // stands before every route's path; empty or like /traffic
	TLSCert        string        `koanf:"tls_cert"`         // PEM file; empty: plain HTTP
	TLSKey         string        `koanf:"tls_key"`          // PEM file
	MaxConnections int           `koanf:"max_connections"`  // those over it are told 503
	MaxHeaderBytes int           `koanf:"max_header_bytes"` // also the read buffer of each connection
	HeaderTimeout  time.Duration `koanf:"header_timeout"`   // from a request's first byte to its body's first byte
	IdleTimeout    time.Duration `koanf:"idle_timeout"`     // between two requests of a connection
	WriteTimeout   time.Duration `koanf:"write_timeout"`    // for the whole answer
	DiscardTime    time.Duration `koanf:"discard_time"`     // for how long the body of a refused request is discarded
	DiscardBytes   int64         `koanf:"discard_bytes"`    // and how much of it
	DrainGrace     time.Duration `koanf:"drain_grace"`      // for how long requests still get a 503 at shutdown; longer than a load balancer takes to see /readyz change
	CORSOrigins    []string      `koanf:"cors_origins"`     // of the web pages that may call the interface, such as https://map.example.org; * is all
	KeysFile       string        `koanf:"keys_file"`        // YAML, watched; empty: only those below
	Keys           []KeyEntry    `koanf:"keys"`
}

// DefaultConfig lacks only the keys.
//
// A full batch of 14,000 items is about 250 KiB of gzip: 1 MiB of discarding lets a
// refused client finish four of them, 2 s are enough for one at 1 Mbit/s.
func DefaultConfig() Config {
	return Config{
		Listen:         ":8080",
		MaxConnections: 4096,
		MaxHeaderBytes: 16 << 10,
		HeaderTimeout:  10 * time.Second,
		IdleTimeout:    75 * time.Second, // load balancers keep theirs for 60 s; whoever closes first should not be the server
		WriteTimeout:   30 * time.Second,
		DiscardTime:    2 * time.Second,
		DiscardBytes:   1 << 20,
		DrainGrace:     time.Second,
	}
}

// Validate joins all that is wrong; each error names its key. That there are no
// keys at all is nothing wrong: readiness says it, and they may come later.
func (c Config) Validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	_, _, err := net.SplitHostPort(c.Listen)
	check(err == nil, "listen is %q: it has to be host:port, such as :8080", c.Listen)
	check(c.BasePath == "" || strings.HasPrefix(c.BasePath, "/") && !strings.HasSuffix(c.BasePath, "/") && !strings.ContainsAny(c.BasePath, "?#% "),
		"base_path is %q: it has to be empty or like /traffic, without a slash at its end and without escapes, because paths are compared byte by byte", c.BasePath)
	check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key: either both or none, because a certificate is of no use without its key")
	check(c.MaxConnections >= 1, "max_connections is %d: it has to be at least 1, or nobody is served", c.MaxConnections)
	check(c.MaxHeaderBytes >= 1<<10 && c.MaxHeaderBytes <= 1<<20,
		"max_header_bytes is %d: it has to lie between 1KiB, because a plain request needs a few hundred bytes, and 1MiB, because every connection holds as much", c.MaxHeaderBytes)
	for _, d := range []struct {
		key    string
		is     time.Duration
		reason string
	}{
		{"header_timeout", c.HeaderTimeout, "a client that sends nothing would hold its connection for ever"},
		{"idle_timeout", c.IdleTimeout, "kept connections would stay for ever"},
		{"write_timeout", c.WriteTimeout, "a client that reads nothing would hold its answer for ever"},
	} {
		check(d.is > 0, "%s is %v: it has to be more than 0, or %s", d.key, d.is, d.reason)
	}
	check(c.DiscardTime >= 0 && c.DiscardTime <= time.Minute, "discard_time is %v: it has to lie between 0 and 1m, because a refused client holds its connection for as long", c.DiscardTime)
	check(c.DiscardBytes >= 0, "discard_bytes is %d: it cannot be negative", c.DiscardBytes)
	check(c.DrainGrace >= 0 && c.DrainGrace <= time.Minute, "drain_grace is %v: it has to lie between 0 and 1m, because every stop waits for it", c.DrainGrace)
	for _, origin := range c.CORSOrigins {
		if err := checkOrigin(origin); err != nil {
			wrong = append(wrong, err)
		}
	}
	if _, err := newRing(c.Keys, nil); err != nil {
		wrong = append(wrong, fmt.Errorf("keys: %w", err))
	}
	return errors.Join(wrong...)
}

// tls gives the TLS settings, nil for plain HTTP.
func (c Config) tls() (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load the certificate %s with the key %s: %w", c.TLSCert, c.TLSKey, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}, nil
}
