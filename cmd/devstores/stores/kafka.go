package stores

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/devstores/internal/kafka"
)

// KafkaEnv names the environment variable that chooses the broker of [StartKafka].
const KafkaEnv = "TRAFFICD_TEST_KAFKA"

// Kafka is a running cluster.
type Kafka struct {
	*daemon
	Brokers []string // host:port
	Kind    string   // Kfake or Apache
	Version string
}

// Record is a record as the cluster holds it.
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp time.Time
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Header is the value of the record's first header of that name; empty if there is none.
func (r Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Option changes what [StartKafka] starts.
type Option func(*Options)

// Broker chooses Kfake or Apache, whatever the environment says.
func Broker(kind string) Option { return func(o *Options) { o.Broker = kind } }

// Brokers sets how many brokers there are.
func Brokers(n int) Option { return func(o *Options) { o.Brokers = n } }

// Partitions sets how many partitions a topic gets that comes into being by use.
func Partitions(n int) Option { return func(o *Options) { o.Partitions = n } }

// Topic has a topic made at the start.
func Topic(name string, partitions int) Option {
	return func(o *Options) { o.Topics[name] = partitions }
}

// Set sets a broker property, such as producer.id.expiration.ms.
func Set(key, value string) Option { return func(o *Options) { o.Properties[key] = value } }

// StartKafka gives the test a cluster on free ports and in a folder of its own. Without a [Broker] option, TRAFFICD_TEST_KAFKA chooses the kind.
func StartKafka(t testing.TB, opts ...Option) *Kafka {
	t.Helper()
	all := Options{Only: "kafka", Broker: os.Getenv(KafkaEnv), Topics: map[string]int{}, Properties: map[string]string{}}
	for _, opt := range opts {
		opt(&all)
	}
	s := launchFor(t, all)
	report(t, "kafka", s.Kafka.Kind, s.Kafka.Version, fmt.Sprint(s.Kafka.Brokers))
	return s.Kafka
}

// StartKfake gives the test a kfake in its own process, whose Fault and Control hooks it can reach. It has one broker and makes topics by use unless opts
// say otherwise, keeps its data in memory and closes with the test.
func StartKfake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(6)}, opts...)
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("cannot start kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// CreateTopic makes a topic and returns when every partition has a leader; one that exists with as many partitions is fine.
func (k *Kafka) CreateTopic(ctx context.Context, topic string, partitions int) error {
	return kafka.CreateTopic(ctx, k.Brokers, topic, partitions)
}

// Create is CreateTopic for a test, which an error ends.
func (k *Kafka) Create(t testing.TB, topic string, partitions int) {
	t.Helper()
	if err := k.CreateTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}

// Read returns everything that a topic holds now, uncommitted records too, in the order of partition and offset.
func (k *Kafka) Read(ctx context.Context, topic string) ([]Record, error) {
	return ReadTopic(ctx, k.Brokers, topic)
}

// Records is Read for a test, which an error, or half a minute, ends.
func (k *Kafka) Records(t testing.TB, topic string) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	records, err := k.Read(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// Count is the number of records that a topic holds now.
func (k *Kafka) Count(t testing.TB, topic string) int {
	t.Helper()
	return len(k.Records(t, topic))
}

// ReadTopic is [Kafka.Read] for any cluster: one behind a proxy, or one of [StartKfake] by its ListenAddrs.
func ReadTopic(ctx context.Context, brokers []string, topic string) ([]Record, error) {
	found, err := kafka.ReadTopic(ctx, brokers, topic)
	if err != nil {
		return nil, err
	}
	records := make([]Record, len(found))
	for i, r := range found {
		records[i] = Record{r.Partition, r.Offset, r.Key, r.Value, headers(r), r.Timestamp}
	}
	return records, nil
}

func headers(r *kgo.Record) []Header {
	var all []Header
	for _, h := range r.Headers {
		all = append(all, Header{h.Key, h.Value})
	}
	return all
}
