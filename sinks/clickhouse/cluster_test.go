package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
)

// TestCluster runs on three servers. Cluster main has two shards, the first of which has two
// replicas; cluster shard_1 consists of these two.
func TestCluster(t *testing.T) {
	defer func(dead, quorum time.Duration) { deadAfter, quorumTimeout = dead, quorum }(deadAfter, quorumTimeout)
	deadAfter, quorumTimeout = time.Second, time.Second
	c := stores.StartCluster(t, "1", "1", "2")
	a := newClustered(t, c, 0, clustered(c, "main", 0, 1, 2))
	t.Run("two shards", func(t *testing.T) { testTwoShards(t, c, a) })
	t.Run("documented queries", func(t *testing.T) {
		testDocumentedQueries(t, newClustered(t, c, 0, clustered(c, "main", 0, 1, 2)))
	})
	t.Run("rename", func(t *testing.T) { testRename(t, newClustered(t, c, 0, clustered(c, "main", 0, 1, 2))) })
	t.Run("poll of a busy server", func(t *testing.T) {
		for range 3 { // an update of the derived tables, a lookup, and the migration of another server
			ctx, cancel := context.WithCancel(t.Context())
			rows, err := a.hosts.all[0].conn.Query(ctx, "SELECT number FROM system.numbers")
			require.NoError(t, err)
			defer rows.Close()
			defer cancel() // Close would read the endless result
		}
		a.hosts.refresh(t.Context())
		require.NoError(t, a.hosts.unavailable())
	})
	t.Run("concurrent polls", func(t *testing.T) {
		var polls sync.WaitGroup
		for range 4 {
			polls.Go(func() {
				a.hosts.refresh(t.Context())
				_, _ = a.hosts.byShard()
				_ = a.hosts.requiredReplicas()
			})
		}
		polls.Wait()
	})
	t.Run("rejected rows", func(t *testing.T) { testRejectedByShards(t, c) })
	t.Run("check", func(t *testing.T) { testCheckCluster(t, c, a.config) })
	t.Run("paused replica", func(t *testing.T) {
		newPair(t, c, func(c *Config) { c.DialTimeout = time.Second }).testPaused(t)
	})
	p := newPair(t, c)
	t.Run("dead replica", func(t *testing.T) { p.in(t).testDead(t) })
	t.Run("lost disk", func(t *testing.T) { p.in(t).testLostDisk(t) })
}

// clustered returns a function that configures a cluster of these nodes. With a long dial timeout,
// which limits polls too, a server that is only busy does not become unavailable.
func clustered(c *stores.Cluster, name string, nodes ...int) func(*Config) {
	return func(config *Config) {
		config.Cluster, config.Addresses = name, nil
		for _, n := range nodes {
			config.Addresses = append(config.Addresses, c.Nodes[n].TCP)
		}
		config.DialTimeout, config.WriteTimeout, config.DeriveInterval = time.Minute, 8*time.Second, 0
	}
}

// server queries a node over the native protocol, which is the only one that a node serves.
type server struct{ address string }

func (s server) Query(t testing.TB, sql string) string {
	t.Helper()
	lines, err := s.query(t.Context(), sql)
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

func (s server) query(ctx context.Context, sql string) (lines []string, err error) {
	conn, err := ch.Open(&ch.Options{Addr: []string{s.address}})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sql, _, _ = strings.Cut(sql, " FORMAT ")
	if !strings.HasPrefix(sql, "SELECT") {
		return nil, conn.Exec(ctx, sql)
	}
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var fields []any
		for _, column := range rows.ColumnTypes() {
			fields = append(fields, reflect.New(column.ScanType()).Interface())
		}
		if err := rows.Scan(fields...); err != nil {
			return nil, err
		}
		var line []string
		for _, field := range fields {
			value := reflect.ValueOf(field).Elem()
			if value.Kind() == reflect.Pointer && !value.IsNil() { // the column is Nullable
				value = value.Elem()
			}
			line = append(line, fmt.Sprint(value))
		}
		lines = append(lines, strings.Join(line, "\t"))
	}
	return lines, rows.Err()
}

// newClustered returns an archive in a cluster, which is read through one of the nodes.
func newClustered(t *testing.T, c *stores.Cluster, read int, change ...func(*Config)) *archive {
	a := newArchive(t, nil, change...)
	a.store = server{c.Nodes[read].TCP}
	return a
}

// testTwoShards sends measurements and corrections of them through two daemons, to two shards.
func testTwoShards(t *testing.T, c *stores.Cluster, one *archive) {
	one.t = t
	require.Eventually(t, func() bool { // a busy server might not respond in time
		err := one.Probe(t.Context())
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	for _, n := range c.Nodes {
		require.Eventually(t, func() bool { // the probe may end before every server has its tables
			return server{n.TCP}.Query(t, "SELECT count() FROM system.tables WHERE concat(database, '.', name) = '"+one.name+"_local'") == "1"
		}, time.Minute, 100*time.Millisecond)
		server{n.TCP}.Query(t, "SYSTEM STOP MERGES "+one.name+"_local")
	}
	table := one.config.Table
	two := newClustered(t, c, 2, clustered(c, "main", 2, 1, 0), func(c *Config) { c.Table = table })
	two.name = one.name
	r := rand.New(rand.NewPCG(1, 1))
	first := randomRows(r, 800, 2)
	second := append([]row(nil), first...)
	for i := range second {
		second[i].value++
	}
	r.Shuffle(len(second), func(i, j int) { second[i], second[j] = second[j], second[i] })
	for i := range 4 { // the two daemons send 200 rows each in turn
		from, to := 200*i, 200*i+200
		rows, plan := one.plan(blockOf(batchOf(i, epoch+int64(i), first[from:to]...)))
		one.retry(plan, rows)
		rows, plan = two.plan(blockOf(batchOf(10+i, epoch+minute+int64(i), second[from:to]...)))
		two.retry(plan, rows)
	}
	rows, plan := one.plan(blockOf(batchOf(4, epoch+4, first[:100]...)))
	one.retry(plan, rows)
	two.retry(plan, rows) // retry through another server
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := one.missingRows(ended, rows)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, one.hosts.unavailable(), "a cancelled lookup must not make servers unavailable")
	sum := 0.0
	for _, s := range second {
		sum += math.Round(s.value * 1000)
	}
	for _, a := range []*archive{one, two} {
		// A replica that was busy during an INSERT gets its rows later.
		require.Eventually(t, func() bool { return a.count("count()") == 1700 }, time.Minute, 100*time.Millisecond, "each row must be inserted once")
		require.Equal(t, "800", a.store.Query(t, "SELECT count() FROM "+a.name+" FINAL"))
		require.Equal(t, fmt.Sprintf("800\t%.0f", sum), a.store.Query(t, "SELECT count(), sum(toInt64(round(value * 1000))) FROM "+a.name+"_current"))
		require.Equal(t, "2", a.store.Query(t, "SELECT uniqExact(_shard_num) FROM "+a.name))
		require.Equal(t, "1", a.store.Query(t, "SELECT max(shards) FROM (SELECT uniqExact(_shard_num) AS shards FROM "+a.name+" GROUP BY product_instance, detector_code)"))
	}
	require.Eventually(t, func() bool { return two.Derive(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	one.requireDerived()
}

// testRejectedByShards checks that a block needs no halving if both shards reject some of its rows,
// although the error of a shard counts only the rows that it received.
func testRejectedByShards(t *testing.T, c *stores.Cluster) {
	a := newClustered(t, c, 0, clustered(c, "main", 0, 1, 2))
	require.Eventually(t, func() bool { return a.ready(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	for _, node := range []int{0, 2} { // one replica of each shard
		server{c.Nodes[node].TCP}.Query(t, "ALTER TABLE "+a.table+" ADD CONSTRAINT positive CHECK value >= 0 SETTINGS alter_sync = 2")
	}
	b := batchOf(1, epoch, randomRows(rand.New(rand.NewPCG(9, 1)), 400, 1)...)
	bad := 0
	for i := range b.Value {
		if b.Value[i] = 1; i%50 == 7 {
			b.Value[i] = -1
			bad++
		}
	}
	rows, plan := a.plan(blockOf(b))
	var rejected *batch.PermanentError
	require.Eventually(t, func() bool { // a busy server might not respond in time
		_, err := a.Deliver(t.Context(), plan, rows)
		return errors.As(err, &rejected)
	}, time.Minute, 100*time.Millisecond)
	require.Len(t, rejected.Rejected, bad)
	for _, r := range rejected.Rejected {
		require.Equal(t, 7, r.Rows[0].From%50)
	}
	require.Eventually(t, func() bool { return a.count("count()") == 400-bad }, time.Minute, 100*time.Millisecond)
}

func testCheckCluster(t *testing.T, c *stores.Cluster, given Config) {
	given = withLongTimeouts(given)
	f := func(want string, change func(*Config)) {
		t.Helper()
		config := given
		config.Addresses = slices.Clone(given.Addresses)
		change(&config)
		err := config.Check(t.Context(), true)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	f("", func(*Config) {})
	f("", func(c *Config) { c.Table = "none" })
	f("migrate: table `trafficd`.`none` does not exist on "+c.Nodes[0].TCP, func(c *Config) { c.Table, c.Migrate = "none", false })
	f("cluster: no cluster \"other\"", func(c *Config) { c.Cluster = "other" })
	f("addresses: lists 2 servers, but cluster \"main\" has 3", func(c *Config) { c.Addresses = c.Addresses[:2] })
	f("are both replica r1 of shard 1", func(c *Config) { c.Addresses[1] = c.Addresses[0] })
	node, table := server{c.Nodes[0].TCP}, "trafficd."+given.Table
	node.Query(t, "ALTER TABLE "+table+"_local MODIFY SETTING old_parts_lifetime = 1")
	f("old_parts_lifetime of "+given.Table+"_local on "+c.Nodes[0].TCP+" must be at least 480", func(*Config) {})
	node.Query(t, "ALTER TABLE "+table+"_local MODIFY SETTING old_parts_lifetime = 480, replicated_deduplication_window = 0")
	f("replicated_deduplication_window = 10000", func(*Config) {})
	node.Query(t, "CREATE OR REPLACE TABLE "+table+" AS "+table+"_local ENGINE = Distributed('main', 'trafficd', '"+given.Table+"_local', rand())")
	f("must be Distributed with sharding key cityHash64(product_instance, detector_code)", func(*Config) {})
}

// pair is an archive on two replicas of one shard, with the blocks that it must contain.
type pair struct {
	*archive
	c      *stores.Cluster
	blocks []batch.Block
}

// newPair returns a pair that contains a block.
func newPair(t *testing.T, c *stores.Cluster, change ...func(*Config)) *pair {
	t.Helper()
	p := &pair{archive: newClustered(t, c, 0, append([]func(*Config){clustered(c, "shard_1", 0, 1)}, change...)...), c: c}
	p.deliverNext()
	return p
}

// in sets the current subtest.
func (p *pair) in(t *testing.T) *pair {
	p.t = t
	return p
}

func (p *pair) node(n int) server { return server{p.c.Nodes[n].TCP} }

// block plans another block, which requireOnce then expects.
func (p *pair) block() (plan []byte, rows batch.Block) {
	n := len(p.blocks)
	rows, plan = p.plan(blockOf(batchOf(n, epoch+int64(n), randomRows(rand.New(rand.NewPCG(1, uint64(n))), 500, 1)...)))
	p.blocks = append(p.blocks, rows)
	return plan, rows
}

// deliverNext archives another block.
func (p *pair) deliverNext() {
	p.t.Helper()
	plan, rows := p.block()
	p.retry(plan, rows)
}

// requireOnce waits until both replicas have each row, once with FINAL and after merges, and
// compares the derived tables.
func (p *pair) requireOnce(t *testing.T) {
	t.Helper()
	want := 0
	for _, b := range p.blocks {
		want += b.Rows()
	}
	for n := range 2 {
		p.node(n).Query(t, "SYSTEM SYNC REPLICA "+p.name+"_local")
		require.Equal(t, fmt.Sprintf("%d\t%d", want, want), p.node(n).Query(t, "SELECT count(), uniqExact((batch_id, batch_index)) FROM "+p.name+"_local FINAL"))
	}
	p.node(0).Query(t, "OPTIMIZE TABLE "+p.name+"_local FINAL")
	require.Equal(t, fmt.Sprint(want), p.node(0).Query(t, "SELECT count() FROM "+p.name+"_local"))
	p.deriveAll(t)
}

func (p *pair) deriveAll(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Derive(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
	p.requireDerived()
}

func (p *pair) migrate(t *testing.T) error {
	return Migrate(t.Context(), withLongTimeouts(p.config), zerolog.Nop())
}

// withLongTimeouts returns the configuration with timeouts that suit busy servers.
func withLongTimeouts(c Config) Config {
	c.DialTimeout, c.WriteTimeout = time.Minute, time.Minute
	return c
}

// waitUntilLive waits until both replicas are live.
func (p *pair) waitUntilLive(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.hosts.refresh(t.Context())
		return p.hosts.unavailable() == nil
	}, time.Minute, 50*time.Millisecond)
}

// testPaused checks that a replica that accepts connections but does not respond delays an in-doubt
// block only for a limited time.
func (p *pair) testPaused(t *testing.T) {
	plan, rows := p.block()
	p.retry(plan, rows)
	require.NoError(t, p.c.Nodes[1].Pause())
	p.retry(plan, rows) // the block is in doubt now
	p.deliverNext()
	require.NoError(t, p.c.Nodes[1].Resume())
	p.waitUntilLive(t)
	p.requireOnce(t)
}

// deliverToOne delivers a block to only one replica, so that the block is in doubt, and kills that
// replica.
func (p *pair) deliverToOne(t *testing.T) (plan []byte, rows batch.Block, dead int) {
	t.Helper()
	p.waitUntilLive(t)
	count := "SELECT count() FROM " + p.name + "_local"
	before := p.node(1).Query(t, count)
	for n := range 2 {
		p.node(n).Query(t, "SYSTEM STOP FETCHES "+p.name+"_local")
	}
	plan, rows = p.block()
	_, err := p.Deliver(t.Context(), plan, rows)
	require.ErrorContains(t, err, "cannot insert 500 rows")
	if p.node(1).Query(t, count) != before {
		dead = 1
	}
	require.NoError(t, p.c.Nodes[dead].Kill())
	p.store = p.node(1 - dead)
	p.store.Query(t, "SYSTEM START FETCHES "+p.name+"_local")
	return plan, rows, dead
}

// testDead checks that blocks are still delivered after a replica has died with the only copy of an
// in-doubt block, and that the archive is correct when the replica returns.
func (p *pair) testDead(t *testing.T) {
	plan, rows, dead := p.deliverToOne(t)
	p.retry(plan, rows)
	p.restarted().retry(p.block()) // by a daemon that starts while the replica is dead
	p.deriveAll(t)
	err := p.migrate(t)
	require.ErrorContains(t, err, p.c.Nodes[dead].TCP+": ")
	require.NotContains(t, err.Error(), p.c.Nodes[1-dead].TCP+": ", "the live server must be migrated")

	require.NoError(t, p.c.Nodes[dead].Restart())
	p.waitUntilLive(t)
	p.requireOnce(t)
}

// testLostDisk checks that no rows are lost if a replica dies with the only copy of an in-doubt
// block and its disk is deleted.
func (p *pair) testLostDisk(t *testing.T) {
	plan, rows, dead := p.deliverToOne(t)
	require.NoError(t, os.RemoveAll(p.c.Nodes[dead].Dir()))
	p.retry(plan, rows)

	// The new server is empty, but Keeper still lists its tables.
	require.NoError(t, p.c.Nodes[dead].Restart())
	require.ErrorContains(t, p.migrate(t), "SYSTEM DROP REPLICA")
	for _, replica := range []string{fmt.Sprint("r", dead+1), fmt.Sprint("1-r", dead+1)} {
		require.Eventually(t, func() bool { // succeeds once the replica's session in ZooKeeper has expired
			_, err := p.node(1-dead).query(t.Context(), "SYSTEM DROP REPLICA '"+replica+"' FROM DATABASE trafficd")
			return err == nil
		}, time.Minute, 50*time.Millisecond)
	}
	require.NoError(t, p.migrate(t))
	p.waitUntilLive(t)
	p.deliverNext()
	p.requireOnce(t)
}
