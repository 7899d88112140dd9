package kafka

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/dial"
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
	f(func(c *Config) { c.Brokers = nil }, "brokers")
	f(func(c *Config) { c.Topic = "" }, "topic")
	f(func(c *Config) { c.Compression = "brotli" }, "compression")
	f(func(c *Config) { c.BatchBytes = 100 }, "batch_bytes")
	f(func(c *Config) { c.BlockRows = 0 }, "block_rows")
	f(func(c *Config) { c.ParallelRequests = 65 }, "parallel_requests")
	f(func(c *Config) { c.DialTimeout = 0 }, "dial_timeout")
	f(func(c *Config) { c.ResolveAfter = time.Millisecond }, "resolve_after")
	f(func(c *Config) { c.CreateTopic.Partitions = -1 }, "create_topic.partitions")
	f(func(c *Config) { c.CreateTopic = CreateTopic{Partitions: 1} }, "create_topic.replication_factor")
}

func TestNewReadsFiles(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TLS = dial.TLS{Enabled: true, CA: "/nonexistent/ca.pem"}
	_, err := New(cfg, zerolog.Nop())
	require.ErrorContains(t, err, "kafka.tls.ca: cannot read the certificate authorities: open /nonexistent/ca.pem")
}
