package kafka

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	f := func(change func(*Config), want string) {
		t.Helper()
		c := DefaultConfig()
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
		_, err := New(c, zerolog.Nop())
		require.ErrorContains(t, err, want)
	}
	f(func(c *Config) { c.Brokers = nil }, "kafka.brokers")
	f(func(c *Config) { c.Topic = "" }, "kafka.topic")
	f(func(c *Config) { c.Topic = "a/b" }, "kafka.topic")
	f(func(c *Config) { c.Topic = ".." }, "kafka.topic")
	f(func(c *Config) { c.Compression = "brotli" }, "kafka.compression")
	f(func(c *Config) { c.BatchBytes = 100 }, "kafka.batch_bytes")
	f(func(c *Config) { c.BlockRows = 0 }, "kafka.block_rows")
	f(func(c *Config) { c.ParallelRequests = 65 }, "kafka.parallel_requests")
	f(func(c *Config) { c.DialTimeout = 0 }, "kafka.dial_timeout")
	f(func(c *Config) { c.RequestTimeout = time.Hour }, "kafka.request_timeout")
	f(func(c *Config) { c.MetadataMaxAge = 0 }, "kafka.metadata_max_age")
	f(func(c *Config) { c.ResolveAfter = time.Millisecond }, "kafka.resolve_after")
	f(func(c *Config) { c.CreateTopic.Partitions = -1 }, "kafka.create_topic.partitions")
	f(func(c *Config) { c.CreateTopic = CreateTopic{Partitions: 1} }, "kafka.create_topic.replication_factor")
	f(func(c *Config) { c.TLS.CA = "ca.pem" }, "kafka.tls.enabled")
	f(func(c *Config) { c.TLS = TLS{Enabled: true, Cert: "c.pem"} }, "kafka.tls.cert and kafka.tls.key")
	f(func(c *Config) { c.SASL.Username = "u" }, "kafka.sasl.mechanism")
	f(func(c *Config) { c.SASL.Mechanism = "gssapi" }, "kafka.sasl.mechanism")
	f(func(c *Config) { c.SASL.Mechanism = "plain" }, "kafka.sasl.username")
}

func TestNewReadsFiles(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	require.NoError(t, os.WriteFile(junk, []byte("no certificate"), 0o600))
	f := func(c TLS, want string) {
		t.Helper()
		cfg := DefaultConfig()
		cfg.TLS = c
		_, err := New(cfg, zerolog.Nop())
		require.ErrorContains(t, err, want)
	}
	f(TLS{Enabled: true, CA: "/nonexistent/ca.pem"}, "cannot read kafka.tls.ca")
	f(TLS{Enabled: true, CA: junk}, "holds no PEM certificate")
	f(TLS{Enabled: true, Cert: junk, Key: junk}, "cannot use kafka.tls.cert")

	c, err := TLS{Enabled: true, InsecureSkipVerify: true}.config()
	require.NoError(t, err)
	require.True(t, c.InsecureSkipVerify)
	require.EqualValues(t, tls.VersionTLS12, c.MinVersion)
}
