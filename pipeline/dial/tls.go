package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"trafficd/pipeline/settings"
)

// TLS configures the encryption of connections.
type TLS struct {
	Enabled bool   `setting:"enabled"` // encrypt connections
	CA      string `setting:"ca"`      // PEM file of certificate authorities; empty: the system's
	// certificate of this client, a PEM file that is read for every connection; empty: none
	Cert               string `setting:"cert"`
	Key                string `setting:"key"`                  // key of cert, a PEM file
	InsecureSkipVerify bool   `setting:"insecure_skip_verify"` // accept any certificate; for tests only
}

func (t TLS) validate(section string) error {
	return errors.Join(
		settings.Check((t.Cert == "") == (t.Key == ""), "%scert and %skey must be set together", section, section),
		settings.Check(t.Enabled || t == TLS{}, "%senabled must be true: the other TLS settings have no effect without it", section),
	)
}

// Config returns the configuration for crypto/tls, or nil if TLS is disabled. If serverName is
// empty, certificates are verified for the host of the address. An error starts with ca or pair,
// the keys of the settings that name the files.
func (t TLS) Config(serverName, ca, pair string) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot read the certificate authorities: %w", ca, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: cannot read the certificate authorities: no PEM certificate in %s", ca, t.CA)
		}
	}
	if t.Cert != "" {
		// Reading the files for every connection picks up a renewed certificate without a restart.
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("cannot load the client certificate %s with key %s: %w", t.Cert, t.Key, err)
			}
			return &pair, nil
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("%s: %w", pair, err)
		}
		c.GetClientCertificate = load
	}
	return c, nil
}

// dialer returns a function that connects and, unless config is nil, completes a TLS handshake. It
// fails after the timeout or when its context is done.
func dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}
