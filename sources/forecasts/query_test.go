package forecasts

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
)

// newManualFeed returns a feed that is not started: the test must call check.
func newManualFeed(t *testing.T, cfg Config) (*Forecasts, *fakeLayer) {
	t.Helper()
	layer := newFakeLayer(t)
	f, err := New(cfg, layer, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	t.Cleanup(func() { f.feed.close() })
	return f, layer
}

// TestQuery runs on a real ClickHouse, which is killed and restarted.
func TestQuery(t *testing.T) {
	store := stores.StartClickHouse(t)
	store.Query(t, "CREATE DATABASE road")
	store.Query(t, `CREATE TABLE road.forecasts (street Int64, fromnode UInt32, openLRcode LowCardinality(String),
		start DateTime('Europe/Copenhagen'), end DateTime64(3), flow_valid Bool, speed_valid UInt8, speed Nullable(Float32), flow Decimal(10, 1))
		ENGINE = MergeTree ORDER BY street`)
	insert := func(rows string) { store.Query(t, "INSERT INTO road.forecasts VALUES "+rows) }
	const early, late = "'2026-11-20 19:00:00', '2026-11-20 18:15:00.500'", "'2026-11-20 19:15:00', '2026-11-20 18:30:00'"
	insert("(1, 1, 'CwV/OiHN2TvlAAA1ABM7FQ==', " + late + ", 0, 1, 11, 0), (1, 1, '', " + early + ", 0, 1, 10, 0), (2, 1, '', " + early + ", 1, 1, 20.5, 7.5)")

	cfg := DefaultConfig()
	cfg.Feed = FeedClickHouse
	cfg.MaxShrink = 1
	const query = "SELECT *, 'ignored' AS note FROM forecasts ORDER BY street, start DESC"
	cfg.ClickHouse = dial.ClickHouseQuery{
		Address: store.TCP, ClickHouse: dial.ClickHouse{Database: "road", Username: "trafficd", Password: "trafficd"},
		Query: query, Interval: time.Second, Timeout: timeout,
	}
	feed, layer := newManualFeed(t, cfg)
	source := feed.feed.(*queryFeed)
	f := func(wantError string, skipped int, want ...string) {
		t.Helper()
		feed.check(t.Context())
		s := feed.Status()
		if wantError == "" {
			require.Empty(t, s.Error)
			require.EqualValues(t, skipped, s.Skipped, "%v", s.Faults)
		}
		require.Contains(t, s.Error, wantError)
		require.Equal(t, want, layer.shown())
	}
	f("", 0, "1:1 10,11", "2:1 20.5")
	require.True(t, proto.Equal(street(1, 1, 10, 11), layer.visible[identity{1, 1}]))
	require.Equal(t, 7.5, layer.visible[identity{2, 1}].Forecast[0].Flow)
	require.True(t, layer.visible[identity{2, 1}].Forecast[0].FlowValid)

	insert("(3000000000, 1, '', " + early + ", 0, 1, 30, 0), (4, 1, '', " + early + ", 0, 2, 30, 0), (5, 1, '', " + early + ", 0, 1, NULL, 0)," +
		" (6, 1, '', " + early + ", 0, 1, 501, 0), (7, 1, '', " + early + ", 0, 1, 70, 0)")
	good := []string{"1:1 10,11", "2:1 20.5", "7:1 70"}
	f("", 4, good...)
	faults := feed.Status().Faults
	require.Equal(t, "row 4", faults[0].Position)
	require.Contains(t, faults[0].Error, "speed_valid is")
	require.Contains(t, faults[1].Error, "speed is null")
	require.Equal(t, "row 8", faults[2].Position)
	require.Contains(t, faults[2].Error, `street is "3000000000"`)
	require.Equal(t, "street 6:1 (first row 6)", faults[3].Position)

	source.Query = "SELECT street, fromnode, '2026-11-20T18:00:00.1Z' AS start, '2026-11-20T18:15Z' AS `end`, toUInt8(speed) AS speed FROM forecasts WHERE street = 7"
	f("", 0, "7:1 70")
	require.True(t, layer.visible[identity{7, 1}].Forecast[0].GetSpeedValid())
	source.Query = query
	f("", 4, good...)

	// The time of the data is the newest value of the column updated, otherwise the newest start of
	// a period, but not a time in the future.
	hasDataTime := func(columns string, want time.Time) {
		t.Helper()
		source.Query = "SELECT street, fromnode, speed, " + columns + " FROM forecasts WHERE street = 7"
		f("", 0, "7:1 70")
		require.WithinDuration(t, want, layer.confirmedAt(), 0)
	}
	hasDataTime("'2020-01-01T00:00:00Z' AS start, '2020-01-01T00:15:00Z' AS `end`", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	hasDataTime("'2120-01-01T00:00:00Z' AS start, '2120-01-01T00:15:00Z' AS `end`, toDateTime('2020-01-01 00:07:00', 'UTC') AS updated", time.Date(2020, 1, 1, 0, 7, 0, 0, time.UTC))
	// Without the column updated, a supplier that has stopped is not hidden by periods in the future.
	future := func(speed string) time.Time {
		t.Helper()
		source.Query = "SELECT street, fromnode, toFloat64(" + speed + ") AS speed, '2120-01-01T00:00:00Z' AS start, '2120-01-01T00:15:00Z' AS `end` " +
			"FROM forecasts WHERE street IN (1, 7) GROUP BY street, fromnode ORDER BY rand()"
		f("", 0, "1:1 "+speed, "7:1 "+speed)
		return layer.confirmedAt()
	}
	before := time.Now()
	first := future("30")
	require.False(t, first.Before(before))
	require.Equal(t, first, future("30"))
	require.Equal(t, first, future("30"))
	require.True(t, future("31").After(first))
	source.Query = query
	f("", 4, good...)

	source.maxBytes = 300
	f("max_bytes", 0, good...)
	source.maxBytes = 1 << 20
	source.Query = "SELECT street, fromnode, speed, start FROM forecasts"
	f("no column end", 0, good...)
	source.Query = "SELECT speed, * FROM forecasts"
	f("duplicate column speed", 0, good...)
	source.Query = "SELECT * FROM nowhere"
	f("nowhere", 0, good...)
	source.Query = "SELECT * FROM forecasts WHERE street > 1e12"
	f("no valid forecast", 0, good...)
	// Rows that precede an error are not used.
	source.Query = "SELECT 1 + number AS street, 1 AS fromnode, now() AS start, now() + 60 AS `end`, 1 AS speed, throwIf(number = 5000) FROM system.numbers LIMIT 10000 SETTINGS max_block_size = 100"
	f("throwIf", 0, good...)
	// An endless result is abandoned as soon as it exceeds max_bytes, long before the timeout.
	source.Query = "SELECT 1 + number AS street, 1 AS fromnode, now() AS start, now() + 60 AS `end`, 1 AS speed FROM system.numbers"
	source.Timeout = time.Hour
	f("max_bytes", 0, good...)
	source.Query, source.Timeout = query, timeout
	f("", 4, good...)

	require.NoError(t, store.Kill())
	f(store.TCP, 0, good...)
	require.NoError(t, store.Restart())
	store.Query(t, "ALTER TABLE road.forecasts DELETE WHERE street != 1 SETTINGS mutations_sync = 1")
	f("", 0, "1:1 10,11")
}
