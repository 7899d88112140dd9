package dial

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"regexp"
	"sync"
	"time"

	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/settings"
)

// TLS holds the TLS settings of a client.
type TLS struct {
	Enabled bool `setting:"enabled"` // encrypt connections
	// PEM file of CA certificates, reread for every connection; empty: the system's CA certificates
	CA string `setting:"ca"`
	// PEM file of the client certificate, reread for every connection; empty: none
	Cert               string `setting:"cert"`
	Key                string `setting:"key"`         // PEM file of the private key for cert
	ServerName         string `setting:"server_name"` // name in the servers' certificates; empty: the host of the address
	InsecureSkipVerify bool   `setting:"-"`           // accept any certificate; tests set it
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
		pem, err := readPEM(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%sca: cannot read the CA certificates: %w", section, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca: no CA certificate in %s: the file must contain PEM certificates", section, t.CA)
		}
	}
	if t.Cert != "" && t.Key != "" {
		load := func() (pair tls.Certificate, err error) {
			cert, err := readPEM(t.Cert)
			if err != nil {
				return pair, err
			}
			key, err := readPEM(t.Key)
			if err != nil {
				return pair, err
			}
			return tls.X509KeyPair(cert, key)
		}
		pair, err := load()
		if err != nil {
			return nil, fmt.Errorf("%scert and %skey: cannot load the client certificate %s with key %s: %w", section, section, t.Cert, t.Key, err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		if _, known := clientCertificates.LoadOrStore(t.Cert, nil); !known {
			metrics.Register(metrics.GaugeFunc("trafficd_dial_client_certificate_expiry_timestamp_seconds",
				"Unix time at which the client certificate in the file expires, in seconds; NaN if it cannot be loaded.",
				map[string]string{"file": t.Cert}, func() float64 {
					if pair, err := load(); err == nil {
						return float64(pair.Leaf.NotAfter.Unix())
					}
					return math.NaN()
				}))
		}
	}
	return c, nil
}

// boundary matches the first and the last line of a PEM block.
var boundary = regexp.MustCompile(`\s*(-----(?:BEGIN|END) [A-Z0-9 ]+-----)\s*`)

// readPEM reads a PEM file, also one whose line breaks were replaced by spaces or by \n, as happens
// to secrets in environment variables.
func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	return boundary.ReplaceAll(bytes.ReplaceAll(text, []byte(`\n`), []byte("\n")), []byte("\n$1\n")), err
}

// CheckFiles returns an error if the files cannot be used, or if the client certificate is not
// valid now. Config accepts such a certificate, because the servers decide whether to accept it.
func (t TLS) CheckFiles(section string) error {
	c, err := t.Config(section)
	if err != nil || c == nil || c.GetClientCertificate == nil {
		return err
	}
	pair, err := c.GetClientCertificate(nil)
	if err == nil {
		err = settings.CheckCertificate(pair.Leaf, time.Now())
	}
	if err != nil {
		return fmt.Errorf("%scert: the client certificate %s %w; write a renewed one to the file", section, t.Cert, err)
	}
	return nil
}

// clientCertificates holds the paths of the client certificates that have a metric.
var clientCertificates sync.Map

// filesError is an error about the files of the TLS settings.
type filesError struct{ error }

func (e filesError) Unwrap() error { return e.error }

// dialer returns a function that connects and, unless TLS is disabled, completes a TLS handshake.
// It reads the TLS files for every connection. The function fails when the timeout expires or its
// context is done. If simulated is not nil, dialer returns it.
func (t TLS) dialer(timeout time.Duration, simulated Func) Func {
	if simulated != nil {
		return simulated
	}
	plain := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := t.Config("tls.")
		switch {
		case err != nil:
			return nil, filesError{err}
		case config == nil:
			return plain.DialContext(ctx, network, address)
		}
		return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, address)
	}
}
