package stores_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKafka runs the same tests on both kinds of broker.
func TestKafka(t *testing.T) {
	for _, kind := range []string{stores.Kfake, stores.Apache} {
		t.Run(kind, func(t *testing.T) {
			k := stores.StartKafka(t, stores.Broker(kind), stores.Topic("measurements", 6), stores.Partitions(3))
			require.Equal(t, kind, k.Kind)
			require.Len(t, k.Brokers, 1)
			t.Run("topics", func(t *testing.T) { testTopics(t, k) })
			t.Run("records", func(t *testing.T) { testRecords(t, k) })
			t.Run("restart", func(t *testing.T) { testRestart(t, k) })
		})
	}
}

func testTopics(t *testing.T, k *stores.Kafka) {
	k.Create(t, "forecasts", 2)
	k.Create(t, "forecasts", 2)
	create := func(topic string) error { return launch.CreateTopic(t.Context(), k.Brokers, topic, 5, nil) }
	require.ErrorContains(t, create("forecasts"), "exists with 2")
	produce(t, k.Brokers, "by-use", 1)
	require.ErrorContains(t, create("by-use"), "exists with 3", "the option Partitions")
	require.ErrorContains(t, create("measurements"), "exists with 6", "the option Topics")

	compact := map[string]*string{"cleanup.policy": new("compact")}
	require.NoError(t, launch.CreateTopic(t.Context(), k.Brokers, "compacted", 1, compact))
	admin := adminOf(t, k)
	require.Equal(t, "compact", topicConfig(t, admin, "compacted", "cleanup.policy"))
	require.Equal(t, "delete", topicConfig(t, admin, "measurements", "cleanup.policy"))
}

func testRecords(t *testing.T, k *stores.Kafka) {
	k.Create(t, "records", 4)
	require.Empty(t, k.Records(t, "records"))
	produce(t, k.Brokers, "records", 100)
	records := k.Records(t, "records")
	require.Len(t, records, 100)
	require.Equal(t, 100, k.Count(t, "records"))
	seen := map[string]bool{}
	next := map[int32]int64{}
	for _, r := range records {
		require.Equal(t, next[r.Partition], r.Offset)
		next[r.Partition]++
		require.Equal(t, "value of "+string(r.Key), string(r.Value))
		require.Equal(t, string(r.Key), r.Header("name"))
		require.Empty(t, r.Header("other"))
		require.False(t, r.Timestamp.IsZero())
		seen[string(r.Key)] = true
	}
	require.Len(t, seen, 100)
}

func testRestart(t *testing.T, k *stores.Kafka) {
	k.Create(t, "restart", 2)
	brokers := append([]string{}, k.Brokers...)
	f := func(records int, how func() error) {
		t.Helper()
		produce(t, k.Brokers, "restart", 50)
		require.NoError(t, how())
		require.NoError(t, k.Restart())
		require.Equal(t, records, k.Count(t, "restart"))
	}
	f(50, k.Kill)
	f(100, k.Stop)
	f(150, k.Kill)
	require.Equal(t, brokers, k.Brokers)
}

// produce writes n records with different keys and waits for all acknowledgements.
func produce(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	for i := range n {
		key := fmt.Sprintf("record %d", i)
		records = append(records, &kgo.Record{
			Topic: topic, Key: []byte(key), Value: []byte("value of " + key), Headers: []kgo.RecordHeader{{Key: "name", Value: []byte(key)}},
		})
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

// TestReadSkipsControlRecords checks that control records occupy offsets at the end of a
// transaction and are not returned.
func TestReadSkipsControlRecords(t *testing.T) {
	cluster := stores.StartKfake(t, kfake.SeedTopics(1, "transactions"))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.TransactionalID("t"), kgo.DefaultProduceTopic("transactions"))
	require.NoError(t, err)
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	records, err := stores.ReadTopic(t.Context(), cluster.ListenAddrs(), "transactions")
	require.NoError(t, err)
	require.Len(t, records, 2, "committed and aborted")
}

func TestReadUnknownTopic(t *testing.T) {
	cluster := stores.StartKfake(t)
	_, err := stores.ReadTopic(t.Context(), cluster.ListenAddrs(), "nothing")
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestReadEndsWithItsContext(t *testing.T) {
	cluster := stores.StartKfake(t, kfake.SeedTopics(1, "topic"))
	produce(t, cluster.ListenAddrs(), "topic", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, false
	})
	_, err := stores.ReadTopic(ctx, cluster.ListenAddrs(), "topic")
	require.ErrorIs(t, err, context.Canceled)
}

// TestThreeBrokers checks that there are three processes and three replicas of every partition,
// and that a property of Options is set.
func TestThreeBrokers(t *testing.T) {
	k := stores.StartKafka(t, stores.Broker(stores.Apache), stores.Brokers(3), stores.Set("min.insync.replicas", "2"), stores.Topic("measurements", 6))
	require.Len(t, k.Brokers, 3)
	require.Len(t, k.PIDs(), 3)
	produce(t, k.Brokers, "measurements", 10)
	require.NoError(t, k.Kill())
	require.NoError(t, k.Restart())
	require.Equal(t, 10, k.Count(t, "measurements"))

	admin := adminOf(t, k)
	require.Equal(t, "2", topicConfig(t, admin, "measurements", "min.insync.replicas"))
	topics, err := admin.ListTopics(t.Context(), "measurements")
	require.NoError(t, err)
	require.Equal(t, 3, topics["measurements"].Partitions.NumReplicas())
}

func adminOf(t *testing.T, k *stores.Kafka) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func topicConfig(t *testing.T, admin *kadm.Client, topic, name string) string {
	t.Helper()
	configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
	require.NoError(t, err)
	config, err := configs.On(topic, nil)
	require.NoError(t, errors.Join(err, config.Err))
	i := slices.IndexFunc(config.Configs, func(c kadm.Config) bool { return c.Key == name })
	require.GreaterOrEqual(t, i, 0)
	return config.Configs[i].MaybeValue()
}
