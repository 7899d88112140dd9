package rig

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
)

// TestWipe checks that Wipe deletes the disk of a node if another node has all of its rows, but
// not if the node has the only copy of a row.
func TestWipe(t *testing.T) {
	c := stores.StartCluster(t, "1", "1")
	a := &Archive{Table: "trafficd.measurements_local", ZooKeeper: c.ZooKeeper}
	for i, n := range c.Nodes {
		a.Nodes = append(a.Nodes, &Node{ClickHouse: n, archive: a, number: i})
	}
	crashing := false
	a.migrate = func(context.Context) (err error) {
		if crashing {
			crashing = false
			require.NoError(t, a.Nodes[0].Kill())
		}
		for _, n := range a.Nodes {
			err = errors.Join(err, n.do("CREATE DATABASE IF NOT EXISTS trafficd ENGINE = Atomic"), n.do("CREATE TABLE IF NOT EXISTS "+a.Table+
				" (n UInt64) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/trafficd/measurements_local', '{replica}') ORDER BY n"))
		}
		return err
	}
	require.NoError(t, a.migrate(t.Context()))
	rows := func(n *Node, want uint64) {
		t.Helper()
		require.NoError(t, n.do("SYSTEM SYNC REPLICA "+a.Table))
		got, err := n.count("SELECT count() FROM " + a.Table)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	one, two := a.Nodes[0], a.Nodes[1]
	require.NoError(t, one.do("INSERT INTO "+a.Table+" VALUES (1)"))
	rows(two, 1)
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error { // a busy node may respond too late
		return one.Wipe(t.Context())
	}))
	crashing = true
	require.NoError(t, one.Replace(t.Context()))
	rows(one, 1)

	require.NoError(t, one.do("SYSTEM STOP FETCHES "+a.Table))
	require.NoError(t, two.do("INSERT INTO "+a.Table+" VALUES (2)"))
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, two.Wipe(soon), nemesis.ErrNotInjected)
	require.NoError(t, two.Replace(t.Context()))
	rows(two, 2)
}
