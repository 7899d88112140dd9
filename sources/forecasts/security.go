package forecasts

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Transport gives what requests to the brokers go through. It reads the files
// of TLS. The caller ends its connections with CloseIdleConnections.
func (c KafkaConfig) Transport() (*kafka.Transport, error) {
	encryption, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	identity, err := c.SASL.config()
	if err != nil {
		return nil, err
	}
	return &kafka.Transport{
		Dial:           dial(encryption),
		DialTimeout:    c.DialTimeout,
		MetadataTTL:    c.MetadataMaxAge,
		MetadataTopics: []string{c.Topic}, // of all other topics nothing is needed
		ClientID:       c.ClientID,
		SASL:           identity,
	}, nil
}

// config reads the files; it gives nil where TLS is off.
func (t TLS) config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("cannot read forecasts.kafka.tls.ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cannot use forecasts.kafka.tls.ca: %s holds no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("cannot use forecasts.kafka.tls.cert with forecasts.kafka.tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// config gives nil where SASL is off.
func (s SASL) config() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "plain":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case "scram-sha-256":
		return mechanism(scram.SHA256, s)
	case "scram-sha-512":
		return mechanism(scram.SHA512, s)
	}
	return nil, nil
}

func mechanism(a scram.Algorithm, s SASL) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(a, s.Username, s.Password)
	if err != nil {
		return nil, fmt.Errorf("cannot use forecasts.kafka.sasl.username and forecasts.kafka.sasl.password with %s: %w", s.Mechanism, err)
	}
	return m, nil
}
