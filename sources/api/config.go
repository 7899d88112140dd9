package api

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"trafficd/pipeline/lib/settings"
)

// Config configures the server for clients. Fields without a key are constants that tests vary.
type Config struct {
	Listen string `setting:"listen"` // address for clients, host:port; :8080 is every interface
	// prefix of all paths, empty or like /traffic, for proxies that do not strip it
	BasePath string `setting:"base_path"`
	TLSCert  string `setting:"tls_cert"` // certificate with its chain, a PEM file that is watched; empty: plain HTTP
	TLSKey   string `setting:"tls_key"`  // private key of tls_cert, a PEM file
	// CA certificates, a PEM file that is watched: a client may present a certificate of one of them
	// that is in keys_file instead of a key; empty: keys only. Has no effect behind a proxy with TLS.
	TLSClientCA string `setting:"tls_client_ca"`
	// Maximum number of open connections. Further ones get a 503; a client may use at most half of
	// what other clients leave. Raise it with the number of clients.
	MaxConnections int `setting:"max_connections"`
	// maximum size of a request's header, and size of the read buffer of each connection
	MaxHeaderBytes int `setting:"-"`
	// Maximum number of connections from one address (IPv6: /64) that have not sent a valid key; 0: no
	// limit. Raise it if many clients share an address, such as a proxy's.
	MaxSilent int `setting:"max_silent_connections"`
	// time from the first byte of a request to the first byte of its body; reduced under load
	HeaderTimeout time.Duration `setting:"-"`
	// maximum time between two requests on a connection; longer than proxies keep idle connections
	IdleTimeout  time.Duration `setting:"-"`
	WriteTimeout time.Duration `setting:"-"` // time for a client to read 1 MiB of a response
	// minimum average rate at which a client reads a response after WriteTimeout; 0: none
	WriteMinBytesPerSecond int64 `setting:"-"`
	// time to read and discard the rest of a body whose request got an error, so that the client, or
	// the proxy that sends it, sees the error instead of a reset connection
	DiscardTime time.Duration `setting:"-"`
	// time for which requests are still served after SIGTERM, while /readyz returns 503; longer than
	// the interval at which load balancers poll it
	DrainGrace time.Duration `setting:"drain_grace"`
	// origins of web pages that may read responses, such as https://map.example.org; *: all
	CORSOrigins []string `setting:"cors_origins"`
	KeysFile    string   `setting:"keys_file"` // YAML file of API keys, which is watched; empty: only those in keys
	// entries as in the keys file, with digests of the keys, never the keys themselves
	Keys []KeyEntry `setting:"keys"`
}

// DefaultConfig returns the defaults, without keys.
//
// A client at 14 Mbit/s sends the largest body, 16 MiB, within DiscardTime. It is not longer than
// HeaderTimeout, for which a client can hold a connection anyway.
func DefaultConfig() Config {
	return Config{
		Listen:                 ":8080",
		MaxConnections:         4096,
		MaxSilent:              1024, // enough for the clients behind one proxy, each of which needs about a second to present its key
		MaxHeaderBytes:         16 << 10,
		HeaderTimeout:          10 * time.Second,
		IdleTimeout:            75 * time.Second, // longer than the 60 s of load balancers, so that they close connections first
		WriteTimeout:           30 * time.Second,
		WriteMinBytesPerSecond: 64 << 10, // the largest responses, 60 MB, then take at most a quarter of an hour
		DiscardTime:            10 * time.Second,
		DrainGrace:             5 * time.Second,
	}
}

// Validate returns an error for each invalid setting, joined. A configuration without keys is
// valid, because they may be added later.
func (c Config) Validate() error {
	plainPath := strings.HasPrefix(c.BasePath, "/") && !strings.HasSuffix(c.BasePath, "/") && !strings.ContainsAny(c.BasePath, "?#% ")
	errs := []error{
		settings.Check(settings.IsHostPort(c.Listen), "listen is %q, must be host:port, such as :8080", c.Listen),
		settings.Check(c.BasePath == "" || plainPath,
			"base_path is %q, must be empty or like /traffic, without a trailing slash or escapes: paths are compared byte by byte", c.BasePath),
		settings.Check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key must be set together"),
		settings.Check(c.TLSClientCA == "" || c.TLSCert != "", "tls_client_ca requires tls_cert: clients present certificates only over TLS"),
		settings.Positive("max_connections", c.MaxConnections, "otherwise no client is served"),
		settings.AtLeast("max_silent_connections", c.MaxSilent, 0, "0 means no limit"),
		settings.Within("drain_grace", c.DrainGrace, 0, time.Minute, "every shutdown waits for it"),
	}
	for _, origin := range c.CORSOrigins {
		errs = append(errs, checkOrigin(origin))
	}
	if _, err := newRing(c.Keys, nil); err != nil {
		errs = append(errs, fmt.Errorf("keys: %w", err))
	}
	return errors.Join(errs...)
}
