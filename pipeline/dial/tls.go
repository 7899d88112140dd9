package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"trafficd/pipeline/metrics"
	"trafficd/pipeline/settings"
)

// TLS holds the TLS settings of a client.
type TLS struct {
	Enabled bool   `setting:"enabled"` // encrypt connections
	CA      string `setting:"ca"`      // PEM file of CA certificates; empty: the system's CA certificates
	// PEM file of the client certificate, reread for every connection; empty: none
	Cert               string `setting:"cert"`
	Key                string `setting:"key"`                  // PEM file of the private key for cert
	ServerName         string `setting:"server_name"`          // name in the servers' certificates; empty: the host of the address
	InsecureSkipVerify bool   `setting:"insecure_skip_verify"` // accept any certificate; for tests only
}

func (t TLS) validate(section string) error {
	return errors.Join(
		settings.Check((t.Cert == "") == (t.Key == ""), "%scert and %skey must be set together", section, section),
		settings.Check(t.Enabled || t == TLS{}, "%senabled must be true if another TLS setting is set, which has no effect otherwise", section),
	)
}

// Config returns the configuration for crypto/tls, or nil if TLS is disabled. Errors start with
// section and the name of a setting. The first call with a client certificate also registers the
// metric of its expiry, because every connection of the process gets its configuration here.
func (t TLS) Config(section string) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%sca: cannot read the CA certificates: %w", section, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca: no CA certificate in %s: the file must contain PEM certificates", section, t.CA)
		}
	}
	if t.Cert != "" && t.Key != "" {
		// Reading the files for every connection picks up a renewed certificate without a restart.
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("cannot load the client certificate %s with key %s: %w", t.Cert, t.Key, err)
			}
			return &pair, nil
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("%scert and %skey: %w", section, section, err)
		}
		c.GetClientCertificate = load
		if _, known := clientCertificates.LoadOrStore(t.Cert, nil); !known {
			metrics.Register(metrics.GaugeFunc("trafficd_dial_client_certificate_expiry_timestamp_seconds",
				"Unix time at which the client certificate in the file expires, in seconds; NaN if it cannot be loaded.",
				map[string]string{"file": t.Cert}, func() float64 {
					if pair, err := load(nil); err == nil {
						return float64(pair.Leaf.NotAfter.Unix())
					}
					return math.NaN()
				}))
		}
	}
	return c, nil
}

// clientCertificates holds the paths of the client certificates that have a metric.
var clientCertificates sync.Map

// dialer returns a function that connects and, unless config is nil, completes a TLS handshake. The
// function fails when the timeout expires or its context is done.
func dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}
