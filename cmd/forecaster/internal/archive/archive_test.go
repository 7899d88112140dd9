package archive

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/devstores/stores"
	"trafficd/cmd/forecaster/internal/model"
	schema "trafficd/schemas/clickhouse"
)

const detectors = 40

// start returns a source with 9 days of measurements that end with a day. A twelfth of the values is
// missing, a twelfth has no vehicles, some are impossible; detector 8 is dead for three days, 9 is new.
func start(t *testing.T, store *stores.ClickHouse, database string, zone string, last time.Time) *Source {
	t.Helper()
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{store.TCP}, ReadTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = schema.Migrate(t.Context(), conn, schema.Layout{Database: database, Table: "measurements"})
	require.NoError(t, err)
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	s := &Source{
		Conn: conn, Database: database, Table: "measurements", Learned: database, Instance: "city", Measure: "speed", Count: "flow", Most: 200,
		Interval: 5 * time.Minute, Horizons: []time.Duration{15 * time.Minute, time.Hour, 2 * time.Hour}, Location: location,
	}
	y, m, d := last.Date()
	end := time.Date(y, m, d+1, 0, 0, 0, 0, location)
	s.insert(t, end.AddDate(0, 0, -9), end, end, 0)
	return s
}

// insert adds measurements of all detectors. added is added to their speeds.
func (s *Source) insert(t *testing.T, from, to, received time.Time, added float64) {
	t.Helper()
	dead, revived, fresh := to.AddDate(0, 0, -6).Unix(), to.AddDate(0, 0, -3).Unix(), to.AddDate(0, 0, -1).Unix()
	require.NoError(t, s.Conn.Exec(t.Context(), fmt.Sprintf(`
INSERT INTO %s.measurements
SELECT 'city', toString(d), measure, ts, ts + 300, value, NULL, generateUUIDv4(), 0, fromUnixTimestamp(%d)
FROM (
    SELECT number %% %d AS d, fromUnixTimestamp(%d + intDiv(number, %d) * 300) AS ts, toUnixTimestamp(ts) AS u,
        cityHash64(u, d) AS h, 40 + d / 2 + 10 * sin(u / 86400 * 2 * pi()) + (h %% 100) / 10 + %f AS speed, intDiv(h, 100) %% 12 AS flow
    FROM numbers(%d)
    WHERE h %% 13 != 0 AND NOT (d = 8 AND u >= %d AND u < %d) AND NOT (d = 9 AND u < %d)
)
ARRAY JOIN ['speed', 'flow'] AS measure, [if(h %% 97 = 0, 1000, speed), toFloat64(flow)] AS value`,
		s.Database, received.Unix(), detectors, from.Unix(), detectors, added, int(to.Sub(from)/s.Interval)*detectors, dead, revived, fresh)))
}

// learn learns all days before one, and reads the values of that day.
func (s *Source) learn(t *testing.T, day time.Time) *model.Learned {
	t.Helper()
	require.NoError(t, s.Learn(t.Context(), day, func(time.Time) error { return nil }))
	require.NoError(t, s.exec(t.Context(), s.query(day, day, day.AddDate(0, 0, 1), 0), "values"))
	l, err := s.Load(t.Context(), day)
	require.NoError(t, err)
	require.True(t, l.Day.Equal(day))
	require.True(t, l.Until.Equal(day))
	return l
}

// TestOracle: the same model in SQL alone agrees with the step in Go, at random detectors and
// moments, on days on which clocks change, and on the days after.
func TestOracle(t *testing.T) {
	store := stores.StartClickHouse(t)
	f := func(database, zone, day string, hours float64) {
		t.Helper()
		last, err := time.Parse(time.DateOnly, day)
		require.NoError(t, err)
		s := start(t, store, database, zone, last)
		y, m, d := last.Date()
		midnight := time.Date(y, m, d, 0, 0, 0, 0, s.Location)
		require.InDelta(t, hours, midnight.AddDate(0, 0, 1).Sub(midnight).Hours(), 0)
		l := s.learn(t, midnight)
		require.Len(t, l.Detectors, detectors-1, "detector 9 is new")
		s.compare(t, l, midnight)
	}
	f("plain", "UTC", "2026-06-10", 24)
	f("spring", "Europe/Copenhagen", "2026-03-29", 23)
	f("autumn", "Europe/Copenhagen", "2026-10-25", 25)
	f("after_autumn", "Europe/Copenhagen", "2026-10-26", 24)
}

func (s *Source) compare(t *testing.T, l *model.Learned, day time.Time) {
	t.Helper()
	type key struct {
		code      string
		target    int64
		intervals uint8
	}
	lead := int(s.Horizons[len(s.Horizons)-1]/s.Interval) + model.Hour
	sql, err := s.query(day, day.Add(-time.Duration(lead)*s.Interval), day.AddDate(0, 0, 1), lead).sql("predictions")
	require.NoError(t, err)
	rows, err := s.Conn.Query(clickhouse.Context(t.Context(), clickhouse.WithSettings(settings)),
		"SELECT detector_code, toInt64(j), toUInt8(h), p + correction, p + correction + low, p + correction + high FROM ("+sql+")")
	require.NoError(t, err)
	oracle := make(map[key][3]float64)
	for rows.Next() {
		var k key
		var v [3]float64
		require.NoError(t, rows.Scan(&k.code, &k.target, &k.intervals, &v[0], &v[1], &v[2]))
		oracle[k] = v
	}
	require.NoError(t, rows.Err())
	rows.Close()
	random := rand.New(rand.NewPCG(1, 2))
	compared, own := 0, 0
	for compared < 1000 {
		h := s.Horizons[random.IntN(len(s.Horizons))]
		place := 1 + random.IntN(int(day.AddDate(0, 0, 1).Sub(day)/s.Interval))
		origin := day.Add(time.Duration(place)*s.Interval - h)
		codes, recent, err := s.Recent(t.Context(), origin)
		require.NoError(t, err)
		step := model.NewStep(l, origin, codes, recent)
		out := make([]model.Forecast, 1)
		for i, code := range codes {
			step.For(code, &recent[i], []model.Target{step.TargetOf(h)}, out, nil)
			want, ok := oracle[key{code, int64(place), uint8(h / s.Interval)}]
			require.True(t, ok)
			for n, got := range []float64{out[0].Value, out[0].Low, out[0].High} {
				require.InDelta(t, want[n], got, 1e-9, "%s at %s + %s", code, origin, h)
			}
			compared++
			if out[0].Basis == model.Own {
				own++
			}
		}
	}
	require.Greater(t, own, 900)
}

// TestVersions: of several versions of a measurement the latest counts, also for what was learned.
func TestVersions(t *testing.T) {
	store := stores.StartClickHouse(t)
	last := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	s := start(t, store, "versions", "UTC", last)
	want := s.learn(t, last)
	wantCodes, wantRecent, err := s.Recent(t.Context(), last.Add(12*time.Hour))
	require.NoError(t, err)

	end := last.AddDate(0, 0, 1)
	s.insert(t, end.AddDate(0, 0, -9), end, end.Add(-time.Hour), 30) // earlier versions, which arrive later
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE versions.forecaster_learned"))
	got := s.learn(t, last)
	require.InDelta(t, want.Pool.Mean, got.Pool.Mean, 1e-9)
	for code, d := range want.Detectors {
		require.InDeltaSlice(t, d.Profile, got.Detectors[code].Profile, 1e-9)
		require.InDeltaSlice(t, d.Weights[1].Beta[:], got.Detectors[code].Weights[1].Beta[:], 1e-6)
	}
	codes, recent, err := s.Recent(t.Context(), last.Add(12*time.Hour))
	require.NoError(t, err)
	require.Equal(t, wantCodes, codes)
	require.Equal(t, wantRecent, recent)
}

// TestRules: readings without vehicles and impossible ones are not used.
func TestRules(t *testing.T) {
	store := stores.StartClickHouse(t)
	s := start(t, store, "rules", "UTC", time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC))
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE rules.measurements"))
	from := time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)
	f := func(code string, speed, flow, weight float64) {
		t.Helper()
		insert := func(measure string, value float64) {
			require.NoError(t, s.Conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO rules.measurements SELECT 'city', '%s', '%s', fromUnixTimestamp(%d), "+
				"fromUnixTimestamp(%d), %f, NULL, generateUUIDv4(), 0, now()", code, measure, from.Unix(), from.Unix()+300, value)))
		}
		insert("speed", speed)
		if flow >= 0 {
			insert("flow", flow)
		}
		all, err := s.Values(t.Context(), from, from.Add(s.Interval))
		require.NoError(t, err)
		v := all[len(all)-1]
		require.Equal(t, code, v.Code)
		require.InDelta(t, weight, v.Weights[0], 1e-12)
		if weight > 0 {
			require.InDelta(t, speed, v.Values[0], 1e-12)
		}
		require.Equal(t, from.Add(s.Interval), v.Seen.UTC(), "the detector is alive")
	}
	f("a", 50, 2, 0.5)
	f("b", 50, 0, 0) // no_vehicles
	f("c", 0, 5, 0)  // impossible
	f("d", 201, 5, 0)
	f("e", -3, 5, 0)
	f("f", 50, -1, 0.6) // no count
}

// TestLearningIsRepeatable: learning continues after an interruption at any statement, with the same
// result.
func TestLearningIsRepeatable(t *testing.T) {
	store := stores.StartClickHouse(t)
	last := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	s := start(t, store, "repeat", "UTC", last)
	want := s.learn(t, last)
	// The last two days again, as after a crash before the row in forecaster_learned.
	require.NoError(t, s.Conn.Exec(t.Context(), "ALTER TABLE repeat.forecaster_learned DELETE WHERE day >= '2026-06-09' SETTINGS mutations_sync = 2"))
	got := s.learn(t, last)
	require.InDeltaSlice(t, want.Detectors["1"].Profile, got.Detectors["1"].Profile, 1e-9)
	require.InDeltaSlice(t, want.Detectors["1"].Weights[0].Beta[:], got.Detectors["1"].Weights[0].Beta[:], 1e-9)
	require.InDelta(t, want.Detectors["1"].Weights[0].High, got.Detectors["1"].Weights[0].High, 1e-9)
}
