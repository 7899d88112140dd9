package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// Config is section kafka of the configuration.
type Config struct {
	Brokers     []string `koanf:"brokers"`   // host:port of some brokers; they name the others
	Topic       string   `koanf:"topic"`     // contract 4
	ClientID    string   `koanf:"client_id"` // shown in the brokers' logs and quotas
	Compression string   `koanf:"compression"`

	BatchBytes       int `koanf:"batch_bytes"`       // of one record batch, before compression
	BlockRows        int `koanf:"block_rows"`        // delivered and made durable together
	ParallelRequests int `koanf:"parallel_requests"` // to different partitions

	DialTimeout    time.Duration `koanf:"dial_timeout"`     // TCP, TLS and SASL together
	RequestTimeout time.Duration `koanf:"request_timeout"`  // for any answer, replication of a produce request included
	MetadataMaxAge time.Duration `koanf:"metadata_max_age"` // how soon new partitions and moved leaders are seen
	ResolveAfter   time.Duration `koanf:"resolve_after"`    // an attempt without answer that is older, or whose rows are, is looked up in the topic

	CreateTopic CreateTopic `koanf:"create_topic"`
	TLS         TLS         `koanf:"tls"`
	SASL        SASL        `koanf:"sasl"`
}

// CreateTopic creates a missing topic. Partitions 0 leaves that to the
// operator.
type CreateTopic struct {
	Partitions        int `koanf:"partitions"`
	ReplicationFactor int `koanf:"replication_factor"`
}

// TLS is how connections are encrypted. The files are PEM and read at start.
type TLS struct {
	Enabled            bool   `koanf:"enabled"`
	CA                 string `koanf:"ca"`   // empty: the system's authorities
	Cert               string `koanf:"cert"` // of the client, with Key; empty: none
	Key                string `koanf:"key"`
	InsecureSkipVerify bool   `koanf:"insecure_skip_verify"` // for trials only
}

// SASL is how the daemon proves who it is. An empty mechanism means not at all.
type SASL struct {
	Mechanism string `koanf:"mechanism"` // plain, scram-sha-256, scram-sha-512
	Username  string `koanf:"username"`
	Password  string `koanf:"password"`
}

// DefaultConfig fits one broker on this machine. Of the codecs lz4 is the one
// whose cost disappears behind the broker's: BenchmarkEncode gives 1.7 M
// records/s at a ratio of 3.2, zstd 0.9 M at 4.1 (worth it on a thin network).
// One request for each partition is enough: BenchmarkDeliver is no slower with
// 24 partitions than with one.
func DefaultConfig() Config {
	return Config{
		Brokers:          []string{"127.0.0.1:9092"},
		Topic:            "measurements",
		ClientID:         "trafficd",
		Compression:      "lz4",
		BatchBytes:       900 << 10,
		BlockRows:        100_000,
		ParallelRequests: 4,
		DialTimeout:      5 * time.Second,
		RequestTimeout:   30 * time.Second,
		MetadataMaxAge:   5 * time.Second,
		ResolveAfter:     time.Minute,
		CreateTopic:      CreateTopic{ReplicationFactor: 1},
	}
}

// codecs are the compressions of record batches by their names.
var codecs = map[string]compress.Compression{
	"none": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.Lz4, "zstd": compress.Zstd,
}

// Validate names every key that is out of bounds, and why the bound is there.
func (c Config) Validate() error {
	_, codec := codecs[c.Compression]
	return errors.Join(
		check(len(c.Brokers) > 0, "kafka.brokers", "is empty: there is nobody to ask for the topic's leaders"),
		check(validTopic(c.Topic), "kafka.topic", "has to be 1 to 249 of A-Za-z0-9._-, as brokers take nothing else"),
		check(codec, "kafka.compression", fmt.Sprintf("is %q: record batches know none, gzip, snappy, lz4 and zstd", c.Compression)),
		within("kafka.batch_bytes", c.BatchBytes, 16<<10, 64<<20, "smaller ones spend more on requests than on records, larger ones are refused by every usual broker (its default is 1 MiB)"),
		within("kafka.block_rows", c.BlockRows, 1, 1_000_000, "a block is planned and its names are looked up in memory"),
		within("kafka.parallel_requests", c.ParallelRequests, 1, 64, "each one has its own connection and two buffers of batch_bytes"),
		within("kafka.dial_timeout", c.DialTimeout, 100*time.Millisecond, time.Minute, "shorter fails on a busy network, longer keeps the other brokers waiting"),
		within("kafka.request_timeout", c.RequestTimeout, 100*time.Millisecond, 5*time.Minute, "shorter gives up on replication under way, longer stalls on a dead broker"),
		within("kafka.metadata_max_age", c.MetadataMaxAge, 100*time.Millisecond, time.Hour, "shorter burdens the brokers, longer sends to a leader of the past"),
		within("kafka.resolve_after", c.ResolveAfter, time.Second, 24*time.Hour, "shorter reads back for every slow answer, longer outlasts what brokers remember of a producer (one day)"),
		c.CreateTopic.validate(), c.TLS.validate(), c.SASL.validate(),
	)
}

func (c CreateTopic) validate() error {
	if c.Partitions == 0 {
		return nil
	}
	return errors.Join(
		within("kafka.create_topic.partitions", c.Partitions, 1, 10_000, "brokers slow down beyond it; 0 creates nothing"),
		within("kafka.create_topic.replication_factor", c.ReplicationFactor, 1, 10, "it cannot exceed the number of brokers"),
	)
}

func (t TLS) validate() error {
	return errors.Join(
		check((t.Cert == "") == (t.Key == ""), "kafka.tls.cert and kafka.tls.key", "belong together: set both or neither"),
		check(t.Enabled || t == TLS{}, "kafka.tls.enabled", "is false while other keys of kafka.tls are set: they would have no effect"),
	)
}

func (s SASL) validate() error {
	switch s.Mechanism {
	case "":
		return check(s == SASL{}, "kafka.sasl.mechanism", "is empty while user name or password is set: they would have no effect")
	case "plain", "scram-sha-256", "scram-sha-512":
		return check(s.Username != "" && s.Password != "", "kafka.sasl.username and kafka.sasl.password", "have to be set for "+s.Mechanism)
	}
	return check(false, "kafka.sasl.mechanism", fmt.Sprintf("is %q: known are plain, scram-sha-256 and scram-sha-512", s.Mechanism))
}

func validTopic(topic string) bool {
	for _, c := range []byte(topic) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(topic) >= 1 && len(topic) <= 249 && topic != "." && topic != ".."
}

func check(ok bool, key, reason string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s %s", key, reason)
}

func within[T int | time.Duration](key string, v, low, high T, reason string) error {
	return check(v >= low && v <= high, key, fmt.Sprintf("is %v and has to be from %v to %v: %s", v, low, high, reason))
}
