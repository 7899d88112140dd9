package launch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"trafficd/cmd/dev/must"
)

// Cluster describes a node of a ClickHouse cluster. A node does not serve HTTP.
type Cluster struct {
	ZooKeeper      Endpoint
	Interserver    int // port from which other replicas fetch parts
	Shard, Replica string
	Clusters       map[string][][]Endpoint // name of a cluster → replicas of each of its shards
}

// ClickHouseCluster is a running cluster of ClickHouse nodes, each in its own devstores process,
// and their ZooKeeper.
type ClickHouseCluster struct {
	ZooKeeper *ZooKeeper
	Nodes     []*ClickHouse
}

// ZooKeeper is a running ZooKeeper.
type ZooKeeper struct{ *store }

// StartClickHouseCluster starts ZooKeeper and a node for each of the given shard names. For
// example, "1", "1", "2" starts two replicas of shard 1 and one of shard 2. The replicas are named
// r1, r2 and so on. Cluster "main" consists of all of them, and cluster "shard_1" of those of shard
// 1. opts.Dir must be set. If opts.Hosts is set, it lists the hosts of the nodes and, last, that of
// ZooKeeper.
func StartClickHouseCluster(ctx context.Context, opts Options, shards ...string) (c *ClickHouseCluster, err error) {
	c = &ClickHouseCluster{Nodes: make([]*ClickHouse, len(shards))}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	defer must.Return(&err)
	opts.Only, opts.Host = "zookeeper", opts.Hosts.At(len(shards))
	must.Do(opts.prepare(ctx))
	st, _, err := startStore(ctx, opts, "zookeeper")
	must.Do(err)
	c.ZooKeeper = &ZooKeeper{st}

	nodes := make([]Options, len(shards))
	clusters := map[string][][]Endpoint{}
	place := map[string]int{}
	for i, shard := range shards {
		nodes[i] = opts
		nodes[i].Only, nodes[i].Dir, nodes[i].Host = "clickhouse", filepath.Join(opts.Dir, fmt.Sprint("node-", i+1)), opts.Hosts.At(i)
		must.Do(nodes[i].Complete())
		if _, known := place[shard]; !known {
			place[shard] = len(clusters["main"])
			clusters["main"] = append(clusters["main"], nil)
			clusters["shard_"+shard] = [][]Endpoint{nil}
		}
		replicas := &clusters["main"][place[shard]]
		*replicas = append(*replicas, nodes[i].Host.Endpoint(nodes[i].ClickHouseTCP))
		clusters["shard_"+shard][0] = *replicas
		nodes[i].Cluster = &Cluster{
			ZooKeeper: opts.Host.Endpoint(opts.ZooKeeperPort), Interserver: must.Get(PickPort("ClickHouse's replication", 0)),
			Shard: shard, Replica: fmt.Sprint("r", i+1), Clusters: clusters,
		}
	}
	return c, Each(nodes, func(i int, node Options) error {
		st, a, err := startStore(ctx, node, "clickhouse")
		if err == nil {
			c.Nodes[i] = &ClickHouse{st, *a.ClickHouse}
		}
		return err
	})
}

// Close kills the nodes and stops ZooKeeper. It does not stop the nodes cleanly, because their data
// is not needed afterwards.
func (c *ClickHouseCluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		if n != nil {
			errs = append(errs, n.Kill())
		}
	}
	if c.ZooKeeper != nil {
		errs = append(errs, c.ZooKeeper.Stop())
	}
	return errors.Join(errs...)
}

// Dir returns the data directory that the store was started with.
func (s *store) Dir() string { return s.opts.Dir }
