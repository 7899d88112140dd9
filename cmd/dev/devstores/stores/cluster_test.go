package stores_test

import (
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
)

// TestCluster checks that replicas fetch parts from each other and share deduplication,
// Distributed tables read all shards, and a node returns after kill -9.
func TestCluster(t *testing.T) {
	c := stores.StartCluster(t, "1", "1", "2")
	conns := make([]driver.Conn, len(c.Nodes))
	connect := func(i int) {
		conn, err := ch.Open(&ch.Options{Addr: []string{c.Nodes[i].TCP}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		conns[i] = conn
	}
	create := func(i int) {
		for _, sql := range []string{
			"CREATE DATABASE IF NOT EXISTS d ENGINE = Atomic",
			"CREATE TABLE IF NOT EXISTS d.local (n UInt64) ENGINE = ReplicatedMergeTree('/tables/{shard}/local', '{replica}') ORDER BY n",
			"CREATE TABLE IF NOT EXISTS d.all AS d.local ENGINE = Distributed('main', 'd', 'local', n)",
		} {
			require.NoError(t, conns[i].Exec(t.Context(), sql))
		}
	}
	for i := range c.Nodes {
		connect(i)
		create(i)
	}
	count := func(i int, table string, want uint64) {
		t.Helper()
		require.Eventually(t, func() bool {
			var n uint64
			err := conns[i].QueryRow(t.Context(), "SELECT count() FROM d."+table).Scan(&n)
			return err == nil && n == want
		}, time.Minute, 10*time.Millisecond)
	}
	insert := func(i int, token string) error {
		return conns[i].Exec(t.Context(), "INSERT INTO d.all SETTINGS distributed_foreground_insert = 1, insert_deduplication_token = '"+token+"' SELECT number FROM numbers(100)")
	}
	require.NoError(t, insert(0, "a"))
	count(0, "local", 50)
	count(1, "local", 50)
	count(2, "local", 50)
	require.NoError(t, c.Nodes[0].Kill())
	require.NoError(t, insert(1, "a"), "deduplicated on another node, on both shards")
	require.NoError(t, insert(2, "b"))
	count(1, "all", 200)
	require.NoError(t, c.Nodes[0].Restart())
	count(0, "local", 100)
}
