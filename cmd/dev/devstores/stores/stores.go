// Package stores starts real stores for tests: ClickHouse and a Kafka-protocol broker on loopback.
// Each runs in its own devstores process, so that it can be killed, paused and restarted on the
// same ports and directory.
//
//	s := stores.StartClickHouse(t)
//	k := stores.StartKafka(t, stores.Topic("measurements", 6))
//	…
//	require.NoError(t, s.Kill())    // kill -9
//	require.NoError(t, s.Restart()) // same addresses, same data
//
// A test's stores stop when the test ends or its process dies. All processes share the downloads.
// ClickHouse and Apache Kafka run only if all tests run (package needs), kfake always.
//
// Environment:
//
//	TRAFFICD_TEST_KAFKA   kfake (default) or apache: the broker of StartKafka without a Broker option
//	TRAFFICD_STORES_LOG   path of a file that receives one line for each store that a test started
//	TRAFFICD_CACHE        see `devstores --help`
//
// A running store has goroutines in the test's process, which wait for its child. A test that
// checks for leaked goroutines must start its stores first and pass goleak.IgnoreCurrent(), or
// leave the check to goleak.VerifyTestMain.
package stores

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// LogEnv is the name of the environment variable that holds the path of the log of used stores.
const LogEnv = "TRAFFICD_STORES_LOG"

// KafkaEnv is the name of the environment variable that selects the broker of [StartKafka].
const KafkaEnv = "TRAFFICD_TEST_KAFKA"

// The kinds of broker.
const (
	Kfake  = launch.Kfake
	Apache = launch.Apache
)

// ClickHouse is a ClickHouse server that stops when the test ends.
type ClickHouse struct{ *launch.ClickHouse }

// Kafka is a Kafka-protocol cluster that stops when the test ends.
type Kafka struct{ *launch.Kafka }

// Record is a record of a topic.
type Record = launch.Record

// StartClickHouse starts a ClickHouse server on free ports in a temporary directory.
func StartClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	needs.Everything(t, "a real ClickHouse")
	s := start(t, launch.Options{Only: "clickhouse"}).ClickHouse
	report(t, "clickhouse", s.Kind, s.Version, s.TCP)
	return &ClickHouse{s}
}

// Query runs a statement with Do and returns the response. It fails the test on an error.
func (c *ClickHouse) Query(t testing.TB, sql string) string {
	t.Helper()
	body, err := c.Do(t.Context(), sql)
	require.NoError(t, err)
	return body
}

// Cluster is a ClickHouse cluster that stops when the test ends.
type Cluster struct{ *launch.ClickHouseCluster }

// StartCluster starts a ClickHouse cluster on free ports in a temporary directory, with a node for
// each of the given shard names. See [launch.StartClickHouseCluster] for the names of replicas and
// clusters.
func StartCluster(t testing.TB, shards ...string) *Cluster {
	t.Helper()
	needs.Everything(t, "a real ClickHouse cluster")
	c, err := launch.StartClickHouseCluster(t.Context(), launch.Options{Dir: directory(t), Stderr: t.Output()}, shards...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for _, n := range c.Nodes {
		report(t, "clickhouse-node", n.Kind, n.Version, n.TCP)
	}
	return &Cluster{c}
}

// Option changes what [StartKafka] starts.
type Option func(*launch.Options)

// Broker selects Kfake or Apache, regardless of the environment.
func Broker(kind string) Option { return func(o *launch.Options) { o.Broker = kind } }

// Brokers sets the number of brokers.
func Brokers(n int) Option { return func(o *launch.Options) { o.Brokers = n } }

// Partitions sets the number of partitions for automatically created topics.
func Partitions(n int) Option { return func(o *launch.Options) { o.Partitions = n } }

// Topic creates a topic when the cluster starts.
func Topic(name string, partitions int) Option {
	return func(o *launch.Options) { o.Topics[name] = partitions }
}

// Set sets a broker property, such as producer.id.expiration.ms.
func Set(key, value string) Option {
	return func(o *launch.Options) { o.Properties[key] = value }
}

// StartKafka starts a cluster on free ports in a temporary directory. Without a [Broker] option,
// TRAFFICD_TEST_KAFKA selects the kind of broker.
func StartKafka(t testing.TB, opts ...Option) *Kafka {
	t.Helper()
	all := launch.Options{Only: "kafka", Broker: os.Getenv(KafkaEnv), Topics: map[string]int{}, Properties: map[string]string{}}
	for _, opt := range opts {
		opt(&all)
	}
	if all.Broker == Apache {
		needs.Everything(t, "a real Apache Kafka")
	}
	k := start(t, all).Kafka
	report(t, "kafka", k.Kind, k.Version, fmt.Sprint(k.Brokers))
	return &Kafka{k}
}

// StartKfake starts kfake in the test's process, so that the test can call its Fault and Control
// methods. Unless opts say otherwise, it has one broker, creates topics automatically and keeps its
// data in memory.
func StartKfake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(6)}, opts...)
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

// StartKfakeInMemory starts kfake like [StartKfake], but on a network in memory, so that it can run
// on the fake clock of a synctest bubble. Any address that dial is called with leads to it.
func StartKfakeInMemory(t testing.TB, opts ...kfake.Opt) (dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	t.Helper()
	l := memoryListener{accepted: make(chan net.Conn)}
	l.closed, l.close = context.WithCancel(t.Context())
	StartKfake(t, append(opts, kfake.ListenFn(func(string, string) (net.Listener, error) { return l, nil }))...)
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case l.accepted <- server:
			return client, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.closed.Done():
			return nil, net.ErrClosed
		}
	}
}

type memoryListener struct {
	accepted chan net.Conn
	closed   context.Context
	close    func()
}

func (l memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l memoryListener) Close() error {
	l.close()
	return nil
}

// Addr returns the address that kfake advertises.
func (l memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }

// Create calls [launch.CreateTopic] and fails the test on an error.
func (k *Kafka) Create(t testing.TB, topic string, partitions int) {
	t.Helper()
	require.NoError(t, launch.CreateTopic(t.Context(), k.Brokers, topic, partitions, nil))
}

// Records returns the records of a topic. It fails the test on an error, or after two minutes.
func (k *Kafka) Records(t testing.TB, topic string) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	records, err := launch.ReadTopic(ctx, k.Brokers, topic)
	require.NoError(t, err)
	return records
}

// Count returns the number of records in a topic. It fails like Records.
func (k *Kafka) Count(t testing.TB, topic string) int {
	t.Helper()
	return len(k.Records(t, topic))
}

// ReadTopic returns the records of a topic like [Kafka.Records], but from any cluster, such as one
// behind a proxy or one that [StartKfake] started (at its ListenAddrs).
func ReadTopic(ctx context.Context, brokers []string, topic string) ([]Record, error) {
	return launch.ReadTopic(ctx, brokers, topic)
}

// start starts stores that stop when the test ends.
func start(t testing.TB, opts launch.Options) *launch.Stores {
	t.Helper()
	opts.Dir, opts.Stderr = directory(t), t.Output()
	s, err := launch.StartStores(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// directory returns a directory that is removed when the test ends. It is in memory, unless there
// is little: a disk takes seconds to write and to remove the thousands of small files of
// ClickHouse. Pages in memory, like a disk's, survive a kill of the store.
func directory(t testing.TB) string {
	t.Helper()
	const memory, enough, prefix = "/dev/shm", 4 << 30, "trafficd-stores-"
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < enough {
		return t.TempDir()
	}
	all, _ := filepath.Glob(filepath.Join(memory, prefix+"*")) // the pattern is valid
	for _, dir := range all {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), prefix+"%d-", &pid); err == nil && !launch.Alive(pid) {
			_ = os.RemoveAll(dir) // left by a killed test
		}
	}
	dir, err := os.MkdirTemp(memory, fmt.Sprintf("%s%d-", prefix, os.Getpid())) //nolint:usetesting // t.TempDir is on the disk
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// report records the store that a test uses in the test's log and, if LogEnv is set, in its file.
// Each line is a single write, so that the lines of parallel test processes do not interleave.
func report(t testing.TB, store, kind, version, address string) {
	t.Helper()
	t.Logf("%s: %s %s at %s", store, kind, version, address)
	file := os.Getenv(LogEnv)
	if file == "" {
		return
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %s %s %s\n", t.Name(), store, kind, version)
	require.NoError(t, err)
}
