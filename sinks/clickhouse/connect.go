package clickhouse

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/rs/zerolog"

	schema "trafficd/schemas/clickhouse"
)

var compressions = map[string]ch.CompressionMethod{
	"lz4":  ch.CompressionLZ4,
	"zstd": ch.CompressionZSTD,
	"none": ch.CompressionNone,
}

// Migrate makes or updates the tables at once: what `migrate: true` does when
// the store first answers.
func Migrate(ctx context.Context, c Config, log zerolog.Logger) error {
	conn, err := connect(c)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return migrate(ctx, conn, c, log)
}

func migrate(ctx context.Context, conn driver.Conn, c Config, log zerolog.Logger) error {
	applied, err := schema.Migrate(ctx, conn, c.layout())
	for _, name := range applied {
		log.Info().Str("migration", name).Str("database", c.Database).Str("table", c.Table).Msg("archive: migration applied")
	}
	return err
}

// connect prepares a pool of one connection: one goroutine uses it. It does
// not need the store. No database is named in the handshake, as it may not be
// there yet.
func connect(c Config) (driver.Conn, error) {
	dial, err := c.dialer()
	if err != nil {
		return nil, err
	}
	conn, err := ch.Open(&ch.Options{
		Addr:             c.Addresses,
		Auth:             ch.Auth{Username: c.Username, Password: c.Password},
		Compression:      &ch.Compression{Method: compressions[c.Compression]},
		DialContext:      dial,
		DialTimeout:      c.DialTimeout,
		ReadTimeout:      c.WriteTimeout,
		MaxOpenConns:     1,
		MaxIdleConns:     1,
		ConnOpenStrategy: ch.ConnOpenInOrder,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up the connection to ClickHouse: %w", err)
	}
	return conn, nil
}

// dialer obeys the context, which the client's own does not.
func (c Config) dialer() (func(ctx context.Context, address string) (net.Conn, error), error) {
	plain := &net.Dialer{Timeout: c.DialTimeout}
	if !c.Secure {
		return func(ctx context.Context, address string) (net.Conn, error) {
			return plain.DialContext(ctx, "tcp", address)
		}, nil
	}
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	secure := &tls.Dialer{NetDialer: plain, Config: config}
	return func(ctx context.Context, address string) (net.Conn, error) {
		return secure.DialContext(ctx, "tcp", address)
	}, nil
}

func (c Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("cannot use ca_file %s: it holds no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		if _, err := c.certificate(nil); err != nil {
			return nil, err
		}
		t.GetClientCertificate = c.certificate
	}
	return t, nil
}

// certificate reads the files anew, so that a renewed one is taken up without
// a restart.
func (c Config) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use cert_file and key_file: %w", err)
	}
	return &pair, nil
}
