package kafka

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
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
	require.ErrorContains(t, err, "kafka.tls.ca: cannot read the CA certificates: open /nonexistent/ca.pem")
}

func TestCheckTopic(t *testing.T) {
	f := func(replicas, inSync int, setting, want string) {
		t.Helper()
		topic := dial.Topic{
			Name: "measurements", Brokers: 3, Config: map[string]string{"min.insync.replicas": setting},
			Partitions: []kafka.Partition{{Replicas: make([]kafka.Broker, replicas), Isr: make([]kafka.Broker, inSync)}},
		}
		err := DefaultConfig().checkTopic(topic)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, "topic: topic \"measurements\" has "+want)
	}
	f(3, 3, "2", "")
	f(3, 3, "", "") // without the permission DescribeConfigs
	f(3, 3, "1", "replication factor 3 and min.insync.replicas 1: ")
	f(2, 2, "1", "replication factor 2 and min.insync.replicas 1: ")
	f(1, 1, "", "replication factor 1 ")
	f(1, 1, "2", "replication factor 1, below its min.insync.replicas 2: ")
	f(3, 1, "2", "1 in-sync replicas of partition 0, fewer than min.insync.replicas 2: ")
}
