package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// Archive is a ClickHouse server, or a cluster of one shard with its ZooKeeper.
type Archive struct {
	Nodes     []*Node
	ZooKeeper *launch.ZooKeeper // nil = a single server
	Table     string            // the table of a node's own rows, with its database

	migrate func(ctx context.Context) error // creates the tables that are missing on any node
}

// Node is a ClickHouse server. It is not safe for concurrent use.
type Node struct {
	*launch.ClickHouse
	archive *Archive
	number  int
	empty   bool // Wipe deleted its disk, and Replace has not started it yet
}

// unmerged disables merges, which would remove duplicate rows before they are counted.
var unmerged = map[string]string{
	"max_bytes_to_merge_at_max_space_in_pool": "1", "max_bytes_to_merge_at_min_space_in_pool": "1",
	"parts_to_delay_insert": "1000000", "parts_to_throw_insert": manyParts,
}

const manyParts = "1000000"

// startArchive starts one server or, if several nodes are configured, a cluster.
func (r *Rig) startArchive(ctx context.Context) {
	r.Archive = &Archive{Table: "trafficd.measurements"}
	opts := launch.Options{Dir: r.cfg.Dir, Stderr: r.log, MergeTree: unmerged}
	var servers []*launch.ClickHouse
	if r.cfg.Nodes == 1 {
		opts.Only = "clickhouse"
		stores := must.Get(launch.StartStores(ctx, opts))
		r.onClose(stores.Close)
		servers = append(servers, stores.ClickHouse)
	} else {
		opts.Hosts = r.hosts(r.cfg.Brokers, r.cfg.Nodes+1)
		cluster := must.Get(launch.StartClickHouseCluster(ctx, opts, slices.Repeat([]string{"1"}, r.cfg.Nodes)...))
		r.onClose(cluster.Close)
		r.Archive.Table += "_local"
		r.Archive.ZooKeeper, servers = cluster.ZooKeeper, cluster.Nodes
	}
	for i, s := range servers {
		r.Archive.Nodes = append(r.Archive.Nodes, &Node{ClickHouse: s, archive: r.Archive, number: i})
		r.ArchiveWires = append(r.ArchiveWires, r.startWire(fmt.Sprint("archive-", i), s.TCP))
	}
}

// addresses returns the addresses of the nodes themselves, not of the wires.
func (a *Archive) addresses() (all []string) {
	for _, n := range a.Nodes {
		all = append(all, n.TCP)
	}
	return all
}

// prepare creates the tables with d's program and settings.
func (a *Archive) prepare(ctx context.Context, d *Daemon) error {
	a.migrate = func(ctx context.Context) error {
		args := append([]string{"migrate"}, d.Args...)
		args = append(args, "--set", "clickhouse.addresses="+list(a.addresses()))
		if out, err := exec.CommandContext(ctx, d.Binary, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot create the tables: %w\n%s", err, out)
		}
		return nil
	}
	// Retry, because a busy server might not respond in time.
	if err := launch.Eventually(ctx, 2*time.Minute, func() error { return a.migrate(ctx) }); err != nil || a.ZooKeeper != nil {
		return err
	}
	return a.Nodes[0].do("CREATE TABLE IF NOT EXISTS trafficd.nowhere (n UInt64) ENGINE = Null")
}

const statementLimit = 20 * time.Second

// do runs a statement over the native protocol, because nodes of a cluster do not serve HTTP.
func (n *Node) do(statement string) error {
	return n.withConn(statementLimit, func(ctx context.Context, conn ch.Conn) error { return conn.Exec(ctx, statement) })
}

func (n *Node) count(query string) (rows uint64, err error) {
	return rows, n.withConn(statementLimit, func(ctx context.Context, conn ch.Conn) error { return conn.QueryRow(ctx, query).Scan(&rows) })
}

func (n *Node) withConn(limit time.Duration, do func(ctx context.Context, conn ch.Conn) error) (err error) {
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn := must.Get(ch.Open(&ch.Options{Addr: []string{n.TCP}, DialTimeout: 10 * time.Second}))
	defer func() { _ = conn.Close() }()
	return do(ctx, conn)
}

// hog is an expression that allocates 3.6 GB at once, which exceeds the server's memory limit.
const hog = "length(range(if(rowNumberInBlock() = 0, toUInt64(450000000), 0)))"

// TooManyParts is the only way to make a single node of a cluster reject inserts.
const TooManyParts = "too many parts"

// refusals maps each way of making a server reject inserts to the statements that start and end it;
// %s is the table. "out of memory" fails before the rows are written, and "out of memory in a view"
// afterwards.
var refusals = map[string][2]string{
	"read-only": {"ALTER TABLE %s MODIFY SETTING table_readonly = 1", "ALTER TABLE %s MODIFY SETTING table_readonly = 0"},
	TooManyParts: {
		"ALTER TABLE %s MODIFY SETTING parts_to_throw_insert = 1",
		"ALTER TABLE %s MODIFY SETTING parts_to_throw_insert = " + manyParts,
	},
	"out of memory": {
		"ALTER TABLE %s ADD CONSTRAINT IF NOT EXISTS hog CHECK " + hog + " > 0", "ALTER TABLE %s DROP CONSTRAINT IF EXISTS hog",
	},
	"out of memory in a view": {
		"CREATE MATERIALIZED VIEW IF NOT EXISTS trafficd.hog TO trafficd.nowhere AS SELECT " + hog + " AS n FROM %s",
		"DROP TABLE IF EXISTS trafficd.hog SYNC",
	},
	"table renamed": {"RENAME TABLE %s TO trafficd.away", "RENAME TABLE IF EXISTS trafficd.away TO %s"},
}

// Refusals returns the valid arguments of Refuse.
func (n *Node) Refusals() []string {
	if n.archive.ZooKeeper != nil {
		return []string{TooManyParts}
	}
	return slices.Sorted(maps.Keys(refusals))
}

// Refuse makes the server reject inserts until Allow.
func (n *Node) Refuse(how string) error { return n.refuse(how, 0) }

// Allow undoes Refuse. In a cluster it retries, because altering a table requires ZooKeeper.
func (n *Node) Allow(how string) error {
	if n.archive.ZooKeeper == nil {
		return n.refuse(how, 1)
	}
	return launch.Eventually(context.Background(), time.Minute, func() error { return n.orRevive(n.refuse(how, 1)) })
}

func (n *Node) refuse(how string, step int) error {
	return n.do(strings.ReplaceAll(refusals[how][step], "%s", n.archive.Table))
}

// Revive restarts the server if it does not respond. As a library, ClickHouse exits after some
// connection failures that the real server survives.
func (n *Node) Revive() error {
	if err := n.do("SELECT 1"); err == nil {
		return nil
	}
	return errors.Join(n.Kill(), n.Restart())
}

// orRevive calls Revive if err is not nil, and returns both errors.
func (n *Node) orRevive(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, n.Revive())
}

// Wipe kills a node and deletes its disk. If the node may have the only copy of a row, because the
// other replica was down and has not fetched it yet, Wipe keeps the disk and returns
// nemesis.ErrNotInjected. In this case it restarts the node at once, because the daemon would
// resend rows that only that node has.
func (n *Node) Wipe(ctx context.Context) error {
	// The other node may still be starting.
	err := launch.Eventually(ctx, 5*time.Second, func() error { return n.checkReplicated(5 * time.Second) })
	if err != nil {
		return fmt.Errorf("%w: %w", nemesis.ErrNotInjected, err)
	}
	if err := n.Kill(); err != nil {
		return err
	}
	if err := n.checkReplicated(2 * time.Second); err != nil {
		return cmp.Or(n.Restart(), fmt.Errorf("%w: %w", nemesis.ErrNotInjected, err))
	}
	n.empty = true
	return os.RemoveAll(filepath.Join(n.Dir(), "clickhouse"))
}

// checkReplicated returns nil if the other node has all parts of this one, that is, if its
// replication queue is empty.
func (n *Node) checkReplicated(limit time.Duration) error {
	return n.other().withConn(limit, func(ctx context.Context, conn ch.Conn) error {
		var missing uint64
		must.Do(conn.Exec(ctx, "SYSTEM SYNC REPLICA "+n.archive.Table+" PULL"))
		must.Do(conn.QueryRow(ctx, "SELECT count() FROM system.replication_queue WHERE concat(database, '.', table) = '"+
			n.archive.Table+"'").Scan(&missing))
		if missing > 0 {
			return fmt.Errorf("%s lacks %d parts", n.other().replica(), missing)
		}
		return nil
	})
}

func (n *Node) other() *Node { return n.archive.Nodes[(n.number+1)%len(n.archive.Nodes)] }

func (n *Node) replica() string { return fmt.Sprint("r", n.number+1) }

// Replace starts a node after Wipe. If its disk was deleted, Replace drops the old replica from
// ZooKeeper and creates the node's tables, which then fetch all rows.
func (n *Node) Replace(ctx context.Context) error {
	if !n.empty {
		return n.Revive()
	}
	if err := n.Restart(); err != nil {
		return err
	}
	n.empty = false
	known := []string{n.replica(), "1-" + n.replica()} // its name in sharded tables, and in tables that every server has
	return launch.Eventually(ctx, 2*time.Minute, func() error {
		for len(known) > 0 {
			if err := n.other().do("SYSTEM DROP REPLICA '" + known[0] + "' FROM DATABASE trafficd"); err != nil {
				return err // the old replica's ZooKeeper session has not expired yet, or the other node is down
			}
			known = known[1:]
		}
		return n.orRevive(n.archive.migrate(ctx))
	})
}

// AwaitReplicated waits until all nodes have all rows. It returns an error if any parts were
// merged, because the merge may have removed duplicates.
func (a *Archive) AwaitReplicated(ctx context.Context) (err error) {
	defer must.Return(&err)
	for _, n := range a.Nodes {
		if a.ZooKeeper != nil {
			sync := func() error { return n.do("SYSTEM SYNC REPLICA " + a.Table) }
			must.Do(launch.Eventually(ctx, time.Minute, sync), fmt.Sprintf("node %d does not have all rows", n.number))
		}
		merged := must.Get(n.count("SELECT count() FROM system.parts WHERE concat(database, '.', table) = '" + a.Table + "' AND level > 0"))
		if merged > 0 {
			return fmt.Errorf("%d parts of the archive were merged, so duplicates may have been removed", merged)
		}
	}
	return nil
}
