package clickhouse

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
	schema "trafficd/schemas/clickhouse"
)

// oracles are queries that compute, from the archive with FINAL, what each view must return.
var oracles = map[string]string{
	"current": "SELECT * FROM {} FINAL",
	"latest": "SELECT product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to, value, quality, batch_id, batch_index, received_at" +
		" FROM {} FINAL ORDER BY timestamp_from DESC, timestamp_to DESC LIMIT 1 BY product_instance, detector_code, measure_type_code",
	"5m": "SELECT product_instance, fromUnixTimestamp64Second(intDiv(toUnixTimestamp64Second(timestamp_from), 300) * 300, 'UTC') AS bucket, measure_type_code," +
		" detector_code, count(), sum(value), sum(value) / count(), min(value), max(value) FROM {} FINAL GROUP BY 1, 2, 3, 4",
	"15m": "SELECT product_instance, fromUnixTimestamp64Second(intDiv(toUnixTimestamp64Second(timestamp_from), 900) * 900, 'UTC') AS bucket, measure_type_code," +
		" detector_code, count(), sum(value), sum(value) / count() FROM {} FINAL GROUP BY 1, 2, 3, 4",
	"1h": "SELECT product_instance, fromUnixTimestamp64Second(intDiv(toUnixTimestamp64Second(timestamp_from), 3600) * 3600, 'UTC') AS bucket, measure_type_code," +
		" detector_code, count(), sum(value), sum(value) / count(), min(value), max(value) FROM {} FINAL GROUP BY 1, 2, 3, 4",
}

// requireDerived compares each view with its oracle.
func (a *archive) requireDerived() {
	a.t.Helper()
	for view, oracle := range oracles {
		oracle = strings.ReplaceAll(oracle, "{}", a.name)
		f := func(sql string) []string {
			return strings.Split(a.store.Query(a.t, "SELECT * FROM ("+sql+") ORDER BY ALL FORMAT TSVRaw"), "\n")
		}
		want := f(oracle)
		require.Greater(a.t, len(want), 5, view)
		require.Equal(a.t, want, f("SELECT * EXCEPT (good) FROM "+a.name+"_"+view), view) // TestTraffic checks good
	}
}

// derive updates the derived tables. In a cluster that fails until the replica has caught up.
func (a *archive) derive() {
	a.t.Helper()
	require.EventuallyWithT(a.t, func(c *assert.CollectT) {
		require.NoError(c, a.Derive(context.Background()))
	}, time.Minute, 10*time.Millisecond)
}

// overlappingRows returns rows of a few detectors in a few hours, many of them with the same key.
// The values have few binary digits, so that sums do not depend on the order.
func overlappingRows(r *rand.Rand, n int) []row {
	rows := make([]row, n)
	for i := range rows {
		from := epoch + int64(r.IntN(24*30))*2*minute
		if r.IntN(20) == 0 {
			from = time.Date([...]int{1970, 2025, 2150}[r.IntN(3)], 2, 3, r.IntN(24), 4, 5, 6, time.UTC).UnixNano() // a late row, or a wrong clock
		}
		rows[i] = row{fmt.Sprintf("D-%d", r.IntN(9)), [...]string{"speed", "flow"}[r.IntN(2)], from, from + minute, float64(r.IntN(4000)-500) / 4, noQuality}
		if r.IntN(2) == 0 {
			rows[i].quality = 0.5
		}
	}
	return rows
}

// TestDerived checks that the derived tables and the views agree with the archive after
// replacements, late rows, duplicates, retried blocks, failures and restarts.
func TestDerived(t *testing.T) {
	store := stores.StartClickHouse(t)
	t.Run("oracle", func(t *testing.T) { testDerivedOracle(t, store) })
	t.Run("values", func(t *testing.T) { testDerivedValues(t, store) })
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, store) })
	t.Run("interrupted", func(t *testing.T) { testInterrupted(t, store) })
	t.Run("clock", func(t *testing.T) { testClockSetBack(t, store) })
	t.Run("many months", func(t *testing.T) { testManyMonths(t, store) })
	t.Run("background", func(t *testing.T) { testBackgroundUpdates(t, store) })
	require.Zero(t, testutil.ToFloat64(derivedAt), "Close must reset the gauge, because another replica may continue the updates")
	t.Run("documented queries", func(t *testing.T) {
		a := newArchive(t, store, func(c *Config) { c.Database, c.Table = "documented", "measurements" })
		testDocumentedQueries(t, a)
		testAnalyst(t, a)
	})
	t.Run("traffic", func(t *testing.T) { testTraffic(t, store) })
	t.Run("detectors", func(t *testing.T) { testDetectors(t, store) })
	t.Run("rename", func(t *testing.T) { testRename(t, newArchive(t, store, func(c *Config) { c.Database = "renaming" })) })
	t.Run("retention", func(t *testing.T) { testRetention(t, store) })
}

func testDerivedOracle(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.BlockRows = 500 })
	r := rand.New(rand.NewPCG(9, 1))
	var plans [][]byte
	var blocks []batch.Block
	for n := range 8 {
		var batches []*batch.Batch
		for range 1 + r.IntN(3) {
			list := overlappingRows(r, 300)
			list = append(list, list[:r.IntN(100)]...) // duplicates in the batch
			for i := 300; i < len(list); i++ {
				list[i].value += 0.25
			}
			batches = append(batches, batchOf(100*n+len(batches), epoch+int64(100*n+len(batches)), list...))
		}
		for rest := blockOf(batches...); len(rest) > 0; {
			head, plan := a.plan(rest)
			a.deliver(plan, head)
			plans, blocks = append(plans, plan), append(blocks, head)
			rest = after(rest, head.Rows())
		}
		if n%3 == 0 { // deliver an earlier block again, before or after its rows are derived
			i := r.IntN(len(plans))
			a.restarted().deliver(plans[i], blocks[i])
		}
		if n%2 == 0 {
			a.derive()
			a.requireDerived()
		}
		if n == 5 {
			for _, table := range []string{"", "_by_time", "_hours", "_last"} {
				store.Query(t, "OPTIMIZE TABLE "+a.name+table+" FINAL")
			}
		}
	}
	a.derive()
	a.requireDerived()

	// Derive everything again, with two daemons at the same time.
	store.Query(t, "INSERT INTO "+a.name+"_blocks (first_received_at, last_received_at, months) SELECT first_received_at, last_received_at, months FROM "+a.name+"_blocks")
	other := make(chan error)
	go func() { other <- a.restarted().Derive(context.Background()) }()
	a.derive()
	require.NoError(t, <-other)
	a.requireDerived()

	for _, view := range []string{"5m", "15m", "1h", "speeds_1h"} { // a query for 2150, from which there are few rows, must not read all rows
		read := store.Query(t, "SELECT sum(rows) FROM (EXPLAIN ESTIMATE SELECT * FROM "+a.name+"_"+view+" WHERE bucket >= '2150-01-01' AND bucket < '2151-01-01')")
		all := store.Query(t, "SELECT count() FROM "+a.name+map[bool]string{true: "_by_time", false: "_hours"}[view == "5m" || view == "speeds_1h"])
		require.Equal(t, "1", store.Query(t, "SELECT "+read+" BETWEEN 1 AND "+all+" / 2"), "%s reads %s of %s rows for a time range", view, read, all)
	}
}

// testDerivedValues checks that values are exact, whatever their number of decimals.
func testDerivedValues(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	var rows []row
	for i, v := range []float64{0, 0.1, 112.1, -37, 0.001, 0.0005, 1.0 / 3, 999_999_999.999, 1e9, 1e300, -1e-300, 5e-324, 123456.7895} {
		rows = append(rows, row{fmt.Sprintf("D-%d", i), "x", epoch, epoch + minute, v, noQuality})
	}
	block, plan := a.plan(blockOf(batchOf(1, epoch, rows...)))
	a.deliver(plan, block)
	a.derive()
	a.requireDerived()
}

// testUpgrade migrates a database whose archive contains rows, but that has no derived tables.
func testUpgrade(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.Database = "old" })
	list, err := schema.Migrations(a.config.layout())
	require.NoError(t, err)
	store.Query(t, "CREATE DATABASE old ENGINE = Atomic")
	store.Query(t, list[0].Statements[0])
	store.Query(t, "INSERT INTO "+a.name+" SELECT 'city', 'D-' || number % 11, 'speed', fromUnixTimestamp64Milli(1780000000000 + intDiv(number, 11) * 777000, 'UTC') AS f,"+
		" f + 60, number / 2, NULL, generateUUIDv7(), number, fromUnixTimestamp64Milli(1780000000000 + number * 500000, 'UTC') FROM numbers(3000)")
	require.NoError(t, a.ready(t.Context()))
	a.derive()
	a.requireDerived()
	require.Equal(t, "3000", store.Query(t, "SELECT sum(count) FROM "+a.name+"_1h"))
	require.Equal(t, "18", store.Query(t, "SELECT uniqExact(computed_at) FROM "+a.name+"_hours FINAL"), "each day must be derived separately")
}

// testInterrupted checks that an update that failed at any statement is completed by the next
// update.
func testInterrupted(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	r := rand.New(rand.NewPCG(9, 2))
	for n, table := range []string{"_last", "_by_time", "_hours", "_blocks"} {
		block, plan := a.plan(blockOf(batchOf(n, epoch+int64(n), overlappingRows(r, 200)...)))
		a.deliver(plan, block)
		store.Query(t, "RENAME TABLE "+a.name+table+" TO "+a.name+"_away")
		require.ErrorContains(t, a.Derive(t.Context()), "cannot update the tables derived from")
		store.Query(t, "RENAME TABLE "+a.name+"_away TO "+a.name+table)
		a.derive()
		a.requireDerived()
	}

	// A block is delivered only when it is recorded. The retry finds its rows in the table.
	block, plan := a.plan(blockOf(batchOf(9, epoch+9, overlappingRows(r, 200)...)))
	store.Query(t, "RENAME TABLE "+a.name+"_blocks TO "+a.name+"_away")
	_, err := a.Deliver(t.Context(), plan, block)
	require.ErrorContains(t, err, "cannot record a block")
	store.Query(t, "RENAME TABLE "+a.name+"_away TO "+a.name+"_blocks")
	before := a.count("count()")
	a.deliver(plan, block)
	require.Equal(t, before, a.count("count()"))
	a.derive()
	a.requireDerived()
}

// testClockSetBack checks that new rows appear in the views even if the clock of the server was an
// hour ahead, and was then corrected.
func testClockSetBack(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	r := rand.New(rand.NewPCG(9, 5))
	for n := range 4 {
		block, plan := a.plan(blockOf(batchOf(n, epoch+int64(n), overlappingRows(r, 200)...)))
		a.deliver(plan, block)
		a.derive()
		if n == 0 {
			for table, column := range map[string]string{"_hours": "computed_at", "_blocks": "changed_at"} {
				store.Query(t, fmt.Sprintf("INSERT INTO %s%s SELECT * REPLACE (%s + INTERVAL 1 HOUR AS %s) FROM %s%s FINAL",
					a.name, table, column, column, a.name, table))
			}
		}
		a.requireDerived()
	}
	store.Query(t, "OPTIMIZE TABLE "+a.name+"_hours FINAL")
	a.requireDerived()
}

// testManyMonths checks an update of as many blocks as possible, each with rows of all months since
// 1970.
func testManyMonths(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	block, plan := a.plan(blockOf(batchOf(1, epoch, overlappingRows(rand.New(rand.NewPCG(9, 4)), 200)...)))
	a.deliver(plan, block)
	var blocks []schema.Block
	for n := range maxDeriveBlocks - 1 {
		blocks = append(blocks, schema.Block{
			First: time.Unix(0, epoch), Last: time.Unix(0, epoch+int64(n)), Months: newMonths(blockOf(batchOf(2, epoch, rotatingRows(680, 680, 0)...))).list,
		})
	}
	require.NoError(t, a.hosts.all[0].conn.Exec(t.Context(), a.config.layout().Record(false, blocks...)))
	a.derive()
	a.requireDerived()
}

// testBackgroundUpdates checks that a sink updates the derived tables in the background from its
// first block on, even if it is not probed, as after a restart with a block in progress and without
// a pause in the traffic.
func testBackgroundUpdates(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.DeriveInterval = time.Second })
	block, plan := a.plan(blockOf(batchOf(1, epoch, overlappingRows(rand.New(rand.NewPCG(9, 3)), 200)...)))
	a.deliver(plan, block)
	require.Eventually(t, func() bool {
		return store.Query(t, "SELECT count() FROM "+a.name+"_blocks FINAL WHERE derived = 0") == "0"
	}, time.Minute, 50*time.Millisecond)
	a.requireDerived()
	require.NotZero(t, testutil.ToFloat64(derivedAt))
	require.EqualValues(t, 1, testutil.ToFloat64(deriveInterval))
}

// testDetectors checks that the registry's lists are archived with the columns of the feed.
func testDetectors(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	a.Detectors = &Detectors{}
	require.NoError(t, a.ready(t.Context()))
	require.NoError(t, a.saveDetectors(t.Context()))
	list := batch.DetectorList{
		ProductInstance: "city", Codes: []string{"A", "B", "", strings.Repeat("X", batch.MaxCodeLen+1), "C"},
		Attributes: [][]batch.Attribute{{{Name: "street", Value: "Ringvej"}, {Name: "lon", Value: "10.2"}, {Name: "latitude", Value: "56.1"}, {Name: "lanes", Value: "2"}}, nil, nil, nil, nil},
	}
	f := func(want ...string) {
		t.Helper()
		require.Equal(t, strings.Join(want, "\n"), store.Query(t, "SELECT product_instance, detector_code, street, longitude, latitude, mapSort(attributes)"+
			" FROM "+a.name+"_detectors ORDER BY detector_code FORMAT TSVRaw"))
	}
	a.Detectors.Put(list)
	store.Query(t, "RENAME TABLE "+a.name+"_registry TO "+a.name+"_away")
	require.ErrorContains(t, a.saveDetectors(t.Context()), "cannot archive the detectors of city")
	store.Query(t, "RENAME TABLE "+a.name+"_away TO "+a.name+"_registry")
	require.NoError(t, a.saveDetectors(t.Context()))
	f("city\tA\tRingvej\t10.2\t56.1\t{'lanes':'2','latitude':'56.1','lon':'10.2','street':'Ringvej'}",
		"city\tB\t\t\\N\t\\N\t{}", "city\tC\t\t\\N\t\\N\t{}")

	inserted := func() string { return store.Query(t, "SELECT count() FROM "+a.name+"_registry") }
	before := inserted()
	slices.Reverse(list.Codes)
	slices.Reverse(list.Attributes)
	a.Detectors.Put(list)
	require.NoError(t, a.saveDetectors(t.Context()))
	require.Equal(t, before, inserted(), "the same list, in another order, must not be archived again")
	list.Codes, list.Attributes = []string{"A"}, [][]batch.Attribute{{{Name: "street", Value: "Ny Ringvej"}}}
	a.Detectors.Put(list)
	require.NoError(t, a.saveDetectors(t.Context()))
	f("city\tA\tNy Ringvej\t\\N\t\\N\t{'street':'Ny Ringvej'}", "city\tB\t\t\\N\t\\N\t{}", "city\tC\t\t\\N\t\\N\t{}")
}

// testRetention checks that the tables have the TTL that retention_days sets, and keep it if the
// setting is removed.
func testRetention(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store, func(c *Config) { c.RetentionDays = 400 })
	require.NoError(t, a.Probe(t.Context()))
	f := func(days int) {
		t.Helper()
		for _, table := range []string{"", "_by_time", "_hours"} {
			full := store.Query(t, "SELECT engine_full FROM system.tables WHERE database || '.' || name = '"+a.name+table+"'")
			require.Contains(t, full, fmt.Sprintf(" + %d, ", days*86400), table)
			require.Contains(t, full, "ttl_only_drop_parts = 1", table)
		}
	}
	f(400)
	require.NoError(t, a.restarted().Probe(t.Context()))
	f(400)
	a.config.RetentionDays = 30
	require.NoError(t, a.restarted().Probe(t.Context()))
	f(30)
	a.config.RetentionDays = 0
	require.NoError(t, a.restarted().Probe(t.Context()))
	f(30)
}

// testAnalyst checks that the documented grant is enough for the views and for a Parquet file of a
// day, and that every view and its columns have comments.
func testAnalyst(t *testing.T, a *archive) {
	text, err := os.ReadFile("../../schemas/clickhouse/README.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "GRANT SELECT ON trafficd.measurements* TO analyst")
	ask := func(sql string) (status int, body string) {
		response, err := http.Post("http://"+a.store.(*stores.ClickHouse).HTTP+"/?user=analyst&password=analyst", "", strings.NewReader(sql))
		require.NoError(t, err)
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(answer)
	}
	adapt := strings.NewReplacer("'city'", "'aarhus'", "measurements_", a.name+"_", "trafficd.measurements_", a.name+"_")
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, q := range queries {
		status, body := ask(adapt.Replace(q[1]))
		require.Equal(t, http.StatusOK, status, body)
	}
	parquet := regexp.MustCompile(`(?s)--data-binary "(.*?FORMAT Parquet)"`).FindStringSubmatch(string(text))
	require.NotNil(t, parquet)
	status, body := ask(adapt.Replace(parquet[1]))
	require.Equal(t, http.StatusOK, status, body)
	require.True(t, strings.HasPrefix(body, "PAR1") && strings.HasSuffix(body, "PAR1"))
	_, body = ask("SELECT count() FROM " + a.config.Database + ".schema_migrations")
	require.Contains(t, body, "ACCESS_DENIED")

	board, err := os.ReadFile("../../deployments/observability/grafana/trafficd-archive.json")
	require.NoError(t, err)
	panels := regexp.MustCompile(`"(?:rawSql|definition)": ("SELECT .*"),?\n`).FindAllStringSubmatch(string(board), -1)
	require.Len(t, panels, 10)
	fill := strings.NewReplacer("${archive}", a.name, "$product_instance", "aarhus", "$measure_type", "speed",
		"$__fromTime", "toDateTime('2026-11-01 00:00:00', 'UTC')", "$__toTime", "toDateTime('2026-11-02 00:00:00', 'UTC')",
		"${__from:date:YYYY-MM-DD HH:mm:ss}", "2026-11-01 00:00:00", "${__to:date:YYYY-MM-DD HH:mm:ss}", "2026-11-02 00:00:00")
	for _, p := range panels {
		sql, err := strconv.Unquote(p[1])
		require.NoError(t, err)
		status, body := ask(fill.Replace(sql))
		require.Equal(t, http.StatusOK, status, body)
		require.NotEmpty(t, body, sql)
		if strings.HasPrefix(sql, "SELECT count() / (greatest") {
			require.Equal(t, "1\n", body, "completeness")
		}
	}

	require.Empty(t, a.store.Query(t, "SELECT table, name FROM system.columns WHERE database = '"+a.config.Database+"' AND comment = ''"+
		" AND table IN (SELECT name FROM system.tables WHERE engine = 'View' OR name = 'measurements')"))
	require.Empty(t, a.store.Query(t, "SELECT name FROM system.tables WHERE database = '"+a.config.Database+"' AND comment = '' AND engine = 'View'"))
}

// testTraffic compares the mean speeds and the comparison with the past with values computed here.
func testTraffic(t *testing.T, store *stores.ClickHouse) {
	a := newArchive(t, store)
	a.Units = NewUnits([]string{"flow"}, func(code string) string { // the others are archived when they occur
		return map[string]string{"flow": "veh/h", "flow.lane1": "veh"}[code]
	})
	require.NoError(t, a.ready(t.Context()))
	zone, err := time.LoadLocation("Asia/Kolkata") // its hours begin at half past an hour of UTC
	require.NoError(t, err)
	first := time.Date(2026, 9, 28, 0, 0, 0, 0, zone)
	var rows []row
	usual := func(hour int) float64 { return 60 - 2*float64(hour%12) }
	for at := first; at.Before(first.AddDate(0, 0, 29)); at = at.Add(15 * time.Minute) {
		speed := usual(at.Hour())
		if at.Sub(first) >= 28*24*time.Hour && at.Hour() == 8 {
			speed = 10
		}
		from := at.UnixNano()
		rows = append(rows, row{"D-1", "speed", from, from + 15*minute, speed, noQuality})
		if at.Sub(first) >= 28*24*time.Hour {
			rows = append(rows, row{"D-2", "speed", from, from + 15*minute, 40, noQuality}) // without a past
		}
	}
	lane := func(minutes int64, speed, flow float64, suffix string) {
		from := time.Date(2026, 10, 1, 5, 0, 0, 0, time.UTC).UnixNano() + minutes*minute
		rows = append(rows, row{"D-3", "speed" + suffix, from, from + 5*minute, speed, noQuality})
		if flow >= 0 {
			rows = append(rows, row{"D-3", "flow" + suffix, from, from + 5*minute, flow, noQuality})
		}
	}
	lane(0, 30, 1200, "")
	lane(5, 60, 600, "")
	lane(10, 90, 0, "")  // without vehicles
	lane(15, 99, -1, "") // without a flow
	lane(0, 20, 4, ".lane1")
	block, plan := a.plan(blockOf(batchOf(1, epoch, rows...)))
	a.deliver(plan, block)
	a.derive()
	require.NoError(t, a.saveUnits(t.Context()))
	require.Equal(t, "flow\tveh/h\nflow.lane1\tveh", store.Query(t, "SELECT measure_type_code, unit FROM "+a.name+"_measure_types ORDER BY 1"))
	require.Equal(t, "speed\t2\t150\t45\t40\t36\nspeed.lane1\t1\t4\t20\t20\t20", store.Query(t,
		"SELECT measure_type_code, intervals, vehicles, average, time_mean_speed, space_mean_speed FROM "+a.name+"_speeds_1h WHERE detector_code = 'D-3' ORDER BY 1"))

	compared := func(columns, where string) string {
		return store.Query(t, fmt.Sprintf("SELECT %s FROM %s_compared(product_instance = 'aarhus', measure_type_code = 'speed', from = '2026-10-26 00:00:00',"+
			" to = '2026-10-27 00:00:00', zone = 'Asia/Kolkata') WHERE %s FORMAT TSVRaw", columns, a.name, where))
	}
	require.Equal(t, "24", compared("count()", "detector_code = 'D-1'"))
	require.Equal(t, "2026-10-26 08:00:00\t10\t58\t1\t44\t-34\t4", compared("hour, speed, free_flow_speed, congested, usual_speed, difference, weeks", "congested"))
	require.Equal(t, "24", compared("countIf(congested IS NULL AND free_flow_speed IS NULL AND usual_speed IS NULL AND difference IS NULL AND speed = 40)",
		"detector_code = 'D-2'"))
	require.Equal(t, "0", compared("countIf(NOT good)", "1"))
	for _, column := range []string{"5m", "15m", "1h", "speeds_1h"} {
		require.Equal(t, "true", store.Query(t, "SELECT min(good) FROM "+a.name+"_"+column), column)
	}
	for _, state := range []string{
		"'constant', 'D-3', 'speed', '2026-10-01 05:00:00', '2026-10-01 06:05:00'", // found again in the first minutes of the next hour
		"'zero', 'D-1', 'speed', '2026-10-26 02:00:00', '2026-10-26 04:05:00'", "'silent', 'D-1', 'speed', '2026-10-26 05:00:00', '2026-10-26 09:05:00'",
	} {
		store.Query(t, "INSERT INTO "+a.name+"_health VALUES ('aarhus', "+state+", '')")
	}
	sick := func(view string) string {
		return store.Query(t, "SELECT detector_code, measure_type_code, toStartOfHour(bucket) AS hour, count() FROM "+a.name+"_"+view+
			" WHERE NOT good GROUP BY ALL ORDER BY ALL FORMAT TSVRaw")
	}
	one := "\tspeed\t2026-10-01 05:00:00\t"
	require.Equal(t, "D-3"+one+"1", sick("speeds_1h"), "flow and other lanes are well")
	two := "D-1\tspeed\t2026-10-26 02:00:00\t%[1]d\nD-1\tspeed\t2026-10-26 03:00:00\t%[1]d\nD-3" + one
	require.Equal(t, fmt.Sprintf(two, 1)+"1", sick("1h"))
	require.Equal(t, fmt.Sprintf(two, 4)+"2", sick("15m"))
	require.Equal(t, fmt.Sprintf(two, 4)+"4", sick("5m"))
	explained := store.Query(t, "EXPLAIN SELECT min(good) FROM "+a.name+"_15m")
	require.Equal(t, 1, strings.Count(explained, "CreatingSet ("), "the sick hours are read once: %s", explained)
	require.Equal(t, "2026-10-26 08:00:00\n2026-10-26 09:00:00", store.Query(t, fmt.Sprintf("SELECT hour FROM %s_compared(product_instance = 'aarhus', "+
		"measure_type_code = 'speed', from = '2026-10-26 00:00:00', to = '2026-10-27 00:00:00', zone = 'Asia/Kolkata') WHERE NOT good ORDER BY ALL FORMAT TSVRaw", a.name)))
	require.Equal(t, "23", compared("countIf(difference = 0 AND usual_speed = 60 - 2 * (toHour(hour) % 12))", "detector_code = 'D-1'"))
}

// testDocumentedQueries checks that each query in schemas/clickhouse/README.md returns rows.
func testDocumentedQueries(t *testing.T, a *archive) {
	text, err := os.ReadFile("../../schemas/clickhouse/README.md")
	require.NoError(t, err)
	var rows []row
	for i := range int64(288) {
		for d := range 3 {
			code, from := fmt.Sprintf("D-%d", d), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixNano()+5*i*minute
			speed := 50.0
			if d == 2 { // differs in each local hour of Asia/Kolkata, which begins at half past an hour of UTC
				speed = 20 + float64((5*i+330)/60%24)
			}
			rows = append(rows, row{code, "speed", from, from + 5*minute, speed, noQuality}, row{code, "flow", from, from + 5*minute, 7, noQuality})
		}
	}
	block, plan := a.plan(blockOf(batchOf(1, epoch, rows...)))
	a.deliver(plan, block)
	a.derive()
	a.Detectors = &Detectors{}
	a.Detectors.Put(batch.DetectorList{
		ProductInstance: "aarhus", Codes: []string{"D-0"}, Attributes: [][]batch.Attribute{{{Name: "street", Value: "Ringvej"}}},
	})
	require.NoError(t, a.saveDetectors(t.Context()))
	vehicles := func(want string) {
		t.Helper()
		query := regexp.MustCompile("(?s)```sql\n([^`]*AS vehicles.*?)```").FindStringSubmatch(string(text))[1]
		query = strings.NewReplacer("'city'", "'aarhus'", "measurements_", a.name+"_").Replace(query)
		require.EventuallyWithT(t, func(c *assert.CollectT) { // a write need not be on this server yet
			require.Equal(c, want, a.store.Query(t, "SELECT DISTINCT vehicles FROM ("+query+")"))
		}, time.Minute, 50*time.Millisecond)
	}
	vehicles("252") // 3 detectors with 7 vehicles in each of 12 intervals
	for unit, want := range map[string]string{"veh/h": "21", "veh": "252"} {
		a.Units = NewUnits([]string{"flow", "speed"}, func(code string) string { return map[string]string{"flow": unit, "speed": "km/h"}[code] })
		require.NoError(t, a.saveUnits(t.Context()))
		vehicles(want)
	}
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, queries, 17)
	a.store.Query(t, "INSERT INTO "+a.name+"_health VALUES ('aarhus', 'silent', 'D-1', 'speed', now(), now(), 'no speed')") //nolint:dupword // two columns
	a.store.Query(t, "INSERT INTO "+a.name+"_health VALUES ('aarhus', 'zero', 'D-2', 'speed', '2026-11-01 03:00:00', '2026-11-01 05:05:00', '')")
	adapt := strings.NewReplacer("'city'", "'aarhus'", "measurements_", a.name+"_", "01980000-0000-7000-8000-000000000001", block[0].ID.String())
	for _, q := range queries {
		require.NotEmpty(t, a.store.Query(t, adapt.Replace(q[1])), q[1])
	}
	good := queries[slices.IndexFunc(queries, func(q []string) bool { return strings.Contains(q[1], "AS good") })][1]
	for _, rows := range []string{adapt.Replace(good), "SELECT good FROM " + a.name + "_15m WHERE product_instance = 'aarhus' AND measure_type_code = 'speed' " +
		"AND bucket >= '2026-11-01' AND bucket < '2026-11-02'"} {
		require.Equal(t, "288\t8", a.store.Query(t, "SELECT count(), countIf(NOT good) FROM ("+rows+")"), rows)
	}
	local := queries[slices.IndexFunc(queries, func(q []string) bool { return strings.Contains(q[1], "weekday") })][1]
	kolkata := strings.NewReplacer("'Europe/Copenhagen'", "'Asia/Kolkata'", "'speed'", "'speed' AND detector_code = 'D-2'").Replace(adapt.Replace(local))
	require.Equal(t, "25\t0", a.store.Query(t, "SELECT count(), countIf(speed != 20 + hour) FROM ("+kolkata+")"))
	require.Equal(t, "96", a.store.Query(t, "SELECT count() FROM ("+adapt.Replace(queries[4][1])+") WHERE detector_code = 'D-1' AND average IN (50, 7) AND measure_type_code = 'speed'"))
}
