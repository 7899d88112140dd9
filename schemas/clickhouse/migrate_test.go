package clickhouse_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	schema "trafficd/schemas/clickhouse"
)

var (
	single  = schema.Layout{Database: "trafficd", Table: "measurements"}
	cluster = schema.Layout{Database: "trafficd", Table: "measurements", Cluster: "main"}
)

func TestMigrate(t *testing.T) {
	store := stores.StartClickHouse(t)
	conn, err := ch.Open(&ch.Options{Addr: []string{store.TCP}})
	require.NoError(t, err)
	defer conn.Close()
	t.Run("new server", func(t *testing.T) { testNewServer(t, store, conn) })
	t.Run("interrupted", func(t *testing.T) { testInterrupted(t, store, conn) })
	t.Run("concurrent", func(t *testing.T) { testConcurrent(t, store, conn) })
	t.Run("dropped", func(t *testing.T) { testDropped(t, store, conn) })
	t.Run("sick hours", func(t *testing.T) { testSickHours(t, store, conn) })
	t.Run("retention", func(t *testing.T) { testRetention(t, store, conn) })
}

// testRetention checks that rows are dropped after the given number of days, and not earlier if
// that is after 2106, the end of DateTime.
func testRetention(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	l := schema.Layout{Database: "trafficd", Table: "retained"}
	_, err := schema.Migrate(t.Context(), conn, l)
	require.NoError(t, err)
	f := func(want string, days int) {
		t.Helper()
		require.NoError(t, schema.Retain(t.Context(), conn, l, days))
		require.NoError(t, conn.Exec(t.Context(), "INSERT INTO trafficd.retained"+
			" SELECT 'city', 'D-1', 'speed', timestamp AS from, from AS to, 50, NULL, generateUUIDv4(), 0, now64(9, 'UTC')"+
			" FROM (SELECT toDateTime64(arrayJoin(['2020-01-01', '2026-01-01', '2200-01-01']), 9, 'UTC') AS timestamp)"))
		require.NoError(t, conn.Exec(t.Context(), "OPTIMIZE TABLE trafficd.retained FINAL"))
		require.Equal(t, want, store.Query(t, "SELECT arraySort(groupArray(toYear(timestamp_from))) FROM trafficd.retained FINAL"))
	}
	f("[2020,2026,2200]", 36_500)
	f("[2020,2026,2200]", 29_000)
	f("[2200]", 1)
	require.NoError(t, conn.Exec(t.Context(), "INSERT INTO trafficd.retained_health SELECT 'city', 'zero', 'D-1', 'flow', at, at + INTERVAL 1 HOUR, '' "+
		"FROM (SELECT arrayJoin([toDateTime('2020-01-01', 'UTC'), now()]) AS at)"))
	require.NoError(t, conn.Exec(t.Context(), "OPTIMIZE TABLE trafficd.retained_health FINAL"))
	require.Equal(t, "1", store.Query(t, "SELECT count() FROM trafficd.retained_health"), "states are kept as long as measurements")
	require.NoError(t, schema.Retain(t.Context(), &failing{Conn: conn}, l, 1), "nothing must be executed if the TTL is the same")
}

func testNewServer(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	applied, err := schema.Migrate(t.Context(), conn, single)
	require.NoError(t, err)
	require.Equal(t, []string{"tables", "views", "traffic"}, applied)
	applied, err = schema.Migrate(t.Context(), conn, single)
	require.NoError(t, err)
	require.Empty(t, applied)

	f := func(want, sql string) {
		t.Helper()
		require.Equal(t, want, store.Query(t, sql))
	}
	const where = " WHERE database = 'trafficd' AND "
	f("Atomic", "SELECT engine FROM system.databases WHERE name = 'trafficd'")
	f("measurements,measurements_15m,measurements_1h,measurements_5m,measurements_blocks,measurements_by_time,measurements_compared,"+
		"measurements_current,measurements_detector_health,measurements_detectors,measurements_freshness,measurements_health,"+
		"measurements_health_usual,measurements_hours,measurements_imputed,measurements_last,measurements_latest,measurements_measure_types,"+
		"measurements_receipts,measurements_registry,measurements_sick_hours,measurements_speeds_1h,measurements_units",
		"SELECT arrayStringConcat(arraySort(groupArray(name)), ',') FROM system.tables"+where+"name LIKE 'measurements%'")
	f("product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to\ttoYYYYMM(timestamp_from)",
		"SELECT sorting_key, partition_key FROM system.tables"+where+"name = 'measurements'")
	f(strings.Join([]string{
		"product_instance LowCardinality(String)", "detector_code LowCardinality(String)", "measure_type_code LowCardinality(String)",
		"timestamp_from DateTime64(9, 'UTC')", "timestamp_to DateTime64(9, 'UTC')", "value Float64", "quality Nullable(Float64)",
		"batch_id UUID", "batch_index UInt32", "received_at DateTime64(9, 'UTC')",
	}, "\n"),
		"SELECT name || ' ' || type FROM system.columns"+where+"table = 'measurements' ORDER BY position FORMAT TSVRaw")
	full := store.Query(t, "SELECT engine_full FROM system.tables"+where+"name = 'measurements'")
	for _, part := range []string{"ReplacingMergeTree(received_at)", "non_replicated_deduplication_window = 10000", "fsync_after_insert = 1", "fsync_part_directory = 1"} {
		require.Contains(t, full, part)
	}
}

// testSickHours checks that a state whose test compares two measure types makes the hours of both
// sick, and that states without misleading measurements make none.
func testSickHours(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	_, err := schema.Migrate(t.Context(), conn, single)
	require.NoError(t, err)
	require.NoError(t, conn.Exec(t.Context(), "INSERT INTO trafficd.measurements_health"+
		" SELECT 'city', s.2, s.1, s.3, '2026-01-02 03:30:00', '2026-01-02 05:00:00', '' FROM (SELECT arrayJoin(["+
		"('a', 'no_vehicles', 'flow.lane1'), ('b', 'impossible', 'occupancy'), ('c', 'constant', 'speed'), ('d', 'silent', 'flow'), ('', 'checked', 'constant')]) AS s)"))
	require.Equal(t, strings.ReplaceAll(`a flow.lane1 3
a flow.lane1 4
a speed.lane1 3
a speed.lane1 4
b flow 3
b flow 4
b occupancy 3
b occupancy 4
c speed 3
c speed 4`, " ", "\t"), store.Query(t, "SELECT detector_code, measure_type_code, toHour(bucket) FROM trafficd.measurements_sick_hours ORDER BY ALL"))
}

// failing is a connection on which Exec fails after left statements.
type failing struct {
	driver.Conn
	left int
}

func (f *failing) Exec(ctx context.Context, sql string, args ...any) error {
	if f.left--; f.left < 0 {
		return errors.New("interrupted")
	}
	return f.Conn.Exec(ctx, sql, args...)
}

// testInterrupted checks that an interrupted run is completed by the next one.
func testInterrupted(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	for n := range 5 {
		l := schema.Layout{Database: fmt.Sprintf("interrupted%d", n), Table: "measurements"}
		_, err := schema.Migrate(t.Context(), &failing{conn, n}, l)
		require.ErrorContains(t, err, "interrupted")
		_, err = schema.Migrate(t.Context(), conn, l)
		require.NoError(t, err)
		require.Equal(t, versions(t), store.Query(t, "SELECT version FROM "+l.Database+".schema_migrations FINAL ORDER BY 1"))
		require.Equal(t, "0", store.Query(t, "SELECT count() FROM "+l.Database+".measurements"))
	}
}

// testDropped checks that dropped tables and views are created again as they were, even if the
// first attempt is interrupted, and that other tables keep their rows.
func testDropped(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	l := schema.Layout{Database: "dropped", Table: "measurements"}
	dropped, err := schema.ForgetDropped(t.Context(), conn, l) // there is no database yet
	require.NoError(t, err)
	require.Empty(t, dropped)
	_, err = schema.Migrate(t.Context(), conn, l)
	require.NoError(t, err)
	other := schema.Layout{Database: "dropped", Table: "other"}
	_, err = schema.Migrate(t.Context(), conn, other)
	require.NoError(t, err)
	const tables = "SELECT name, create_table_query FROM system.tables WHERE database = 'dropped' ORDER BY name"
	before := store.Query(t, tables)
	store.Query(t, "INSERT INTO dropped.measurements_last (detector_code) VALUES ('D-1')")
	store.Query(t, "INSERT INTO dropped.measurements (detector_code) VALUES ('D-1')")
	store.Query(t, "DROP VIEW dropped.measurements_latest")
	store.Query(t, "DROP VIEW dropped.measurements_5m")
	dropped, err = schema.ForgetDropped(t.Context(), conn, l)
	require.NoError(t, err)
	require.Equal(t, []string{"measurements_5m", "measurements_latest"}, dropped)
	_, err = schema.Migrate(t.Context(), conn, l)
	require.NoError(t, err)
	require.Equal(t, before, store.Query(t, tables))
	require.Equal(t, "0", store.Query(t, "SELECT count() FROM dropped.measurements_blocks"), "rows to derive again")

	for _, drop := range []string{"TABLE dropped.measurements", "TABLE dropped.measurements_hours", "VIEW dropped.measurements_5m"} {
		store.Query(t, "DROP "+drop)
	}

	applied, err := schema.Migrate(t.Context(), conn, l)
	require.NoError(t, err)
	require.Empty(t, applied)
	dropped, err = schema.ForgetDropped(t.Context(), conn, l)
	require.NoError(t, err)
	require.Equal(t, []string{"measurements", "measurements_hours", "measurements_5m"}, dropped)
	_, err = schema.Migrate(t.Context(), &failing{conn, 8}, l)
	require.ErrorContains(t, err, "interrupted")
	_, err = schema.Migrate(t.Context(), conn, l)
	require.NoError(t, err)
	require.Equal(t, before, store.Query(t, tables))
	require.Equal(t, "1", store.Query(t, "SELECT count() FROM dropped.measurements_last"))
	applied, err = schema.Migrate(t.Context(), conn, other)
	require.NoError(t, err)
	require.Empty(t, applied)
}

func testConcurrent(t *testing.T, store *stores.ClickHouse, conn driver.Conn) {
	l := schema.Layout{Database: "concurrent", Table: "measurements"}
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = schema.Migrate(t.Context(), conn, l) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, versions(t), store.Query(t, "SELECT DISTINCT version FROM concurrent.schema_migrations ORDER BY 1"))
}

// TestNewServer checks that a new server of a cluster gets tables from the others, even if an
// earlier attempt, which did not know them, failed after some migrations.
func TestNewServer(t *testing.T) {
	c := stores.StartCluster(t, "1", "1", "2")
	conns := make([]driver.Conn, len(c.Nodes))
	for i, n := range c.Nodes {
		var err error
		conns[i], err = ch.Open(&ch.Options{Addr: []string{n.TCP}})
		require.NoError(t, err)
		defer conns[i].Close()
	}
	first := conns[0]
	_, err := schema.Migrate(t.Context(), first, cluster)
	require.NoError(t, err)
	require.NoError(t, first.Exec(t.Context(), "ALTER TABLE trafficd.measurements_registry ADD COLUMN note String")) // as a later migration would
	for _, conn := range conns[1:] {
		_, err := schema.Migrate(t.Context(), conn, cluster)
		require.ErrorContains(t, err, "run trafficd migrate with all servers in clickhouse.addresses")
		_, err = schema.Migrate(t.Context(), conn, cluster, first)
		require.NoError(t, err)
		applied, err := schema.Migrate(t.Context(), conn, cluster, first)
		require.NoError(t, err)
		require.Empty(t, applied)
	}
	for days := range 10 { // set by several daemons at the same time
		errs := make([]error, len(conns))
		var wg sync.WaitGroup
		for i, conn := range conns {
			wg.Go(func() { errs[i] = schema.Retain(t.Context(), conn, cluster, 1+days) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
	}
}

// versions returns the numbers of all migrations, one per line.
func versions(t *testing.T) string {
	t.Helper()
	all, err := schema.Migrations(single)
	require.NoError(t, err)
	var lines []string
	for _, m := range all {
		lines = append(lines, fmt.Sprint(m.Version))
	}
	return strings.Join(lines, "\n")
}

func TestLayout(t *testing.T) {
	require.Equal(t, "measurements", single.Local())
	require.Equal(t, "measurements_local", cluster.Local())
	require.Equal(t, "ReplacingMergeTree(v)", single.Engine("ReplacingMergeTree", "p", "r", "v"))
	require.Equal(t, "ReplicatedReplacingMergeTree('/clickhouse/tables/p', 'r', v)", cluster.Engine("ReplacingMergeTree", "p", "r", "v"))
	require.Equal(t, "ReplicatedMergeTree('/clickhouse/tables/p', 'r')", cluster.Engine("MergeTree", "p", "r", ""))
}

// TestMigrations checks that the numbers increase, that every statement can be repeated, and that
// only the statements for a cluster use replicated and Distributed tables.
func TestMigrations(t *testing.T) {
	for _, l := range []schema.Layout{single, cluster} {
		list, err := schema.Migrations(l)
		require.NoError(t, err)
		last := uint32(0)
		for _, m := range list {
			require.Greater(t, m.Version, last)
			last = m.Version
			for _, sql := range m.Statements {
				repeatable := strings.HasPrefix(sql, "CREATE") && strings.Contains(sql, "IF NOT EXISTS") ||
					strings.HasPrefix(sql, "CREATE OR REPLACE TABLE") && strings.Contains(sql, "Distributed(") || strings.HasPrefix(sql, "INSERT INTO") ||
					strings.HasPrefix(sql, "CREATE OR REPLACE VIEW") ||
					strings.HasPrefix(sql, "ALTER TABLE") && (strings.Contains(sql, "MODIFY") || strings.Contains(sql, "ADD COLUMN IF NOT EXISTS"))
				require.True(t, repeatable, sql)
				if strings.Contains(sql, "ENGINE") {
					require.Equal(t, l.Cluster != "", strings.Contains(sql, "Replicated") || strings.Contains(sql, "Distributed("), sql)
				}
			}
		}
	}
}
