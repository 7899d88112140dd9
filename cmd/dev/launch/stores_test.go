package launch_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

func TestStartStores(t *testing.T) {
	needs.Everything(t, "a real ClickHouse")
	progress, err := os.Create(filepath.Join(t.TempDir(), "progress"))
	require.NoError(t, err)
	defer progress.Close()
	opts := launch.Options{Dir: t.TempDir(), Stderr: progress, Topics: map[string]int{"measurements": 6}}
	f := func(rows string, records int) {
		t.Helper()
		s, err := launch.StartStores(t.Context(), opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.ClickHouse.Do(t.Context(), "CREATE DATABASE IF NOT EXISTS trafficd ENGINE = Atomic")
		require.NoError(t, err)
		_, err = s.ClickHouse.Do(t.Context(), "CREATE TABLE IF NOT EXISTS trafficd.n (n UInt8) ENGINE = MergeTree ORDER BY n")
		require.NoError(t, err)
		_, err = s.ClickHouse.Do(t.Context(), "INSERT INTO trafficd.n VALUES (1)")
		require.NoError(t, err)
		client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...), kgo.DefaultProduceTopic("measurements"))
		require.NoError(t, err)
		defer client.Close()
		for range 3 {
			require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr())
		}
		count, err := s.ClickHouse.Do(t.Context(), "SELECT count() FROM trafficd.n")
		require.NoError(t, err)
		require.Equal(t, rows, count)
		n, err := launch.CountRecords(t.Context(), s.Kafka.Brokers, "measurements")
		require.NoError(t, err)
		require.EqualValues(t, records, n)
	}
	f("1", 3)
	f("2", 6) // the same directory, other ports
	text, err := os.ReadFile(progress.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "ready in")
}

func TestTemporaryDirectoryIsRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s, err := launch.StartStores(t.Context(), launch.Options{Only: "kafka", Stderr: t.Output()})
	require.NoError(t, err)
	require.Nil(t, s.ClickHouse)
	require.NoError(t, s.Close())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStartStoresCancelled(t *testing.T) {
	needs.Everything(t, "a real Apache Kafka")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := launch.StartStores(ctx, launch.Options{Stderr: t.Output(), Only: "kafka", Broker: launch.Apache})
	require.Error(t, err)
}

func TestOptions(t *testing.T) {
	three := launch.Options{Only: "kafka", Broker: launch.Apache, Brokers: 3}
	require.NoError(t, three.Complete())
	require.Len(t, three.KafkaPorts, 3)
	require.Len(t, three.Controllers, 3)
	require.NotContains(t, append(three.KafkaPorts, three.Controllers...), 0)

	second := three
	second.Node = 2
	require.NoError(t, second.Complete(), "the ports of the others may be in use")
	require.Equal(t, three.KafkaPorts, second.KafkaPorts)
}
