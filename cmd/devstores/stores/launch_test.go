package stores_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
)

func TestLaunchForPrograms(t *testing.T) {
	var said bytes.Buffer
	opts := stores.Options{Dir: t.TempDir(), Stderr: &said, Topics: map[string]int{"measurements": 6}}
	f := func(rows string, records int) {
		t.Helper()
		s, err := stores.Launch(t.Context(), opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.ClickHouse.Do(t.Context(), "CREATE DATABASE IF NOT EXISTS trafficd ENGINE = Atomic")
		require.NoError(t, err)
		_, err = s.ClickHouse.Do(t.Context(), "CREATE TABLE IF NOT EXISTS trafficd.n (n UInt8) ENGINE = MergeTree ORDER BY n")
		require.NoError(t, err)
		s.ClickHouse.Query(t, "INSERT INTO trafficd.n VALUES (1)")
		produce(t, s.Kafka.Brokers, "measurements", 3)
		require.Equal(t, rows, s.ClickHouse.Query(t, "SELECT count() FROM trafficd.n"))
		require.Equal(t, records, s.Kafka.Count(t, "measurements"))
	}
	f("1", 3)
	f("2", 6) // the same folder, other ports
	require.Contains(t, said.String(), "ready in")
}

func TestLaunchWithoutAFolderLeavesNone(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s, err := stores.Launch(t.Context(), stores.Options{Only: "kafka", Stderr: t.Output()})
	require.NoError(t, err)
	require.Nil(t, s.ClickHouse)
	require.NoError(t, s.Close())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestLaunchErrors(t *testing.T) {
	_, err := stores.Launch(t.Context(), stores.Options{Stderr: t.Output(), Broker: "redpanda"})
	require.ErrorContains(t, err, `kind "redpanda"`)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = stores.Launch(ctx, stores.Options{Stderr: t.Output(), Only: "kafka", Broker: stores.Apache})
	require.Error(t, err)
}
