package kafka

import (
	"errors"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
)

// Config is the kafka section of the configuration.
type Config struct {
	dial.Kafka `setting:",squash"`
	// compression of record batches; compared with lz4, snappy uses less CPU but 5 to 10% more
	// bytes, and zstd uses more CPU but fewer bytes
	Compression string `setting:"compression"`

	// maximum size of a record batch before compression; not more than the topic's
	// max.message.bytes
	BatchBytes       int `setting:"batch_bytes"`
	BlockRows        int `setting:"-"` // maximum number of rows delivered and made durable together
	ParallelRequests int `setting:"-"` // maximum number of concurrent produce requests, to different partitions

	// If an attempt received no response, and the attempt or its rows are older than this, the topic
	// is read to find out whether the attempt succeeded. With request_timeout, not more than
	// producer.id.expiration.ms of the brokers; otherwise records may be doubled.
	ResolveAfter time.Duration `setting:"resolve_after"`
	CreateTopic  CreateTopic   `setting:"create_topic"` // create a missing topic; with partitions 0, the operator must create it
}

// CreateTopic holds the settings for creating a missing topic.
type CreateTopic struct {
	Partitions        int `setting:"partitions"`         // partitions of the new topic; more partitions allow more consumers
	ReplicationFactor int `setting:"replication_factor"` // replication factor of the new topic
}

// DefaultConfig returns the settings for one broker on this machine. lz4 is a compromise: snappy
// uses half the CPU and 5 to 10% more bytes, zstd two to five times the CPU but 20% fewer bytes
// (see BenchmarkEncode). With 96 partitions on three brokers, delivering a batch of 14,000 rows
// takes 0.1–0.2 s with 32 concurrent requests, and 0.3–0.5 s with 4.
func DefaultConfig() Config {
	return Config{
		Kafka:            dial.DefaultKafka("measurements"), // contract 4
		Compression:      "lz4",
		BatchBytes:       900 << 10,
		BlockRows:        100_000,
		ParallelRequests: 32,
		ResolveAfter:     time.Minute,
		CreateTopic:      CreateTopic{ReplicationFactor: 1},
	}
}

var codecs = map[string]compress.Compression{
	"none": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.Lz4, "zstd": compress.Zstd,
}

// Validate returns all errors, joined; each names its key and the reason for the bound.
func (c Config) Validate() error {
	_, codec := codecs[c.Compression]
	errs := []error{
		c.Kafka.Validate(""),
		settings.Check(codec, "compression is %q, must be none, gzip, snappy, lz4 or zstd", c.Compression),
		settings.Within("batch_bytes", c.BatchBytes, 16<<10, 64<<20,
			"smaller batches cost more for requests than for records; brokers reject larger ones (max.message.bytes is 1 MiB by default)"),
		settings.Within("resolve_after", c.ResolveAfter, time.Second, 24*time.Hour,
			"a shorter time reads the topic after every slow response; brokers remember a producer for one day"),
	}
	if c.CreateTopic.Partitions != 0 {
		errs = append(errs,
			settings.Within("create_topic.partitions", c.CreateTopic.Partitions, 0, 10_000,
				"more partitions slow the brokers down; with 0 no topic is created"),
			settings.Within("create_topic.replication_factor", c.CreateTopic.ReplicationFactor, 1, 10, "it cannot exceed the number of brokers"))
	}
	return errors.Join(errs...)
}
