package kafka

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/dial"
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
	f(func(c *Config) { c.RequestTimeout = 0 }, "request_timeout")
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

// TestCheckRetention checks that settings of the topic with which records would be deleted or
// rejected are reported.
func TestCheckRetention(t *testing.T) {
	f := func(want string, pairs ...string) {
		t.Helper()
		topic := dial.Topic{
			Name: "measurements", Brokers: 3, Config: map[string]string{
				"min.insync.replicas": "2", "retention.ms": "604800000", "retention.bytes": "-1",
				"message.timestamp.before.max.ms": "9223372036854775807", "message.timestamp.after.max.ms": "3600000",
			},
			Partitions: []kafka.Partition{{Replicas: make([]kafka.Broker, 3), Isr: make([]kafka.Broker, 3)}},
		}
		for i := 0; i < len(pairs); i += 2 {
			topic.Config[pairs[i]] = pairs[i+1]
		}
		err := DefaultConfig().checkTopic(topic)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f("")
	f("retention.ms 20000, must be at least 259200000", "retention.ms", "20000")
	f("retention.bytes 1000", "retention.bytes", "1000")
	f("message.timestamp.before.max.ms 60000, must be at least 259200000", "message.timestamp.before.max.ms", "60000")
	f("message.timestamp.after.max.ms 1000, must be at least 120000", "message.timestamp.after.max.ms", "1000")
	f("", "message.timestamp.type", "LogAppendTime", "retention.ms", "20000", "message.timestamp.after.max.ms", "1000")
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
