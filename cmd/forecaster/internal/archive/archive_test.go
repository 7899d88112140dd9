package archive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/forecaster/internal/model"
	schema "trafficd/schemas/clickhouse"
)

const (
	detectors = 40
	days      = 4
)

// start returns a source with some days of measurements, up to and including the day last. One in
// thirteen values is missing, one in twelve has no vehicles, and some are impossible. Detector 8 is
// dead for half of the time, and detector 9 is new.
func start(t *testing.T, store *stores.ClickHouse, database string, zone string, last time.Time) *Source {
	t.Helper()
	s := open(t, store.TCP, schema.Layout{Database: database})
	var err error
	s.Location, err = time.LoadLocation(zone)
	require.NoError(t, err)
	y, m, d := last.Date()
	end := time.Date(y, m, d+1, 0, 0, 0, 0, s.Location)
	s.insert(t, end.AddDate(0, 0, -days), end, end, 0)
	return s
}

// open returns a source without measurements.
func open(t *testing.T, address string, layout schema.Layout, others ...driver.Conn) *Source {
	t.Helper()
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr: []string{address}, ReadTimeout: time.Minute, Settings: clickhouse.Settings{"distributed_foreground_insert": 1},
	})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	layout.Table = "measurements"
	_, err = schema.Migrate(t.Context(), conn, layout, others...)
	require.NoError(t, err)
	return &Source{
		Conn: conn, Database: layout.Database, Table: layout.Table, Learned: layout.Database, Instance: "city",
		Measure: "speed", Count: "flow", Most: 200, Interval: 5 * time.Minute,
		Horizons: []time.Duration{15 * time.Minute, time.Hour, 2 * time.Hour}, Location: time.UTC,
	}
}

// insert adds measurements of all detectors. added is added to their speeds.
func (s *Source) insert(t *testing.T, from, to, received time.Time, added float64) {
	t.Helper()
	dead, revived, fresh := to.Add(-60*time.Hour).Unix(), to.Add(-12*time.Hour).Unix(), to.AddDate(0, 0, -1).Unix()
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
		s.Database, received.Unix(), detectors, from.Unix(), detectors, added, int(to.Sub(from)/s.Interval)*detectors,
		dead, revived, fresh)))
}

// learn learns all days before one, and reads the values of that day.
func (s *Source) learn(t *testing.T, day time.Time) *model.Learned {
	t.Helper()
	require.NoError(t, s.Learn(t.Context(), day, func(time.Time) error { return nil }))
	require.NoError(t, s.exec(t.Context(), s.query(day, day, s.Day(day, 1), 0), "values"))
	l, err := s.Load(t.Context(), day)
	require.NoError(t, err)
	require.True(t, l.Day.Equal(day))
	require.True(t, l.Until.Equal(day))
	return l
}

// TestOracle checks that the model in pure SQL agrees with the model in Go for random detectors and
// times, on days on which clocks change, and on the day after.
func TestOracle(t *testing.T) {
	store := stores.StartClickHouse(t)
	f := func(s *Source, day string, hours float64) {
		t.Helper()
		noon, err := time.ParseInLocation(time.DateTime, day+" 12:00:00", s.Location)
		require.NoError(t, err)
		start := s.Day(noon, 0)
		require.InDelta(t, hours, s.Day(noon, 1).Sub(start).Hours(), 0)
		s.compare(t, s.learn(t, start), start)
	}
	f(start(t, store, "spring", "Europe/Copenhagen", time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)), "2026-03-29", 23)
	autumn := start(t, store, "autumn", "Europe/Copenhagen", time.Date(2026, 10, 26, 0, 0, 0, 0, time.UTC))
	f(autumn, "2026-10-25", 25)
	f(autumn, "2026-10-26", 24)
	santiago := start(t, store, "santiago", "America/Santiago", time.Date(2026, 9, 7, 0, 0, 0, 0, time.UTC))
	f(santiago, "2026-09-06", 23) // starts at 1:00
	f(santiago, "2026-09-07", 24)
	f(start(t, store, "apia", "Pacific/Apia", time.Date(2011, 12, 31, 0, 0, 0, 0, time.UTC)), "2011-12-31", 24) // the day after the 29th
}

func (s *Source) compare(t *testing.T, l *model.Learned, day time.Time) {
	t.Helper()
	type key struct {
		code      string
		target    int64
		intervals uint8
	}
	lead := int(s.Horizons[len(s.Horizons)-1]/s.Interval) + model.Hour
	sql, err := s.query(day, day.Add(-time.Duration(lead)*s.Interval), s.Day(day, 1), lead).sql("predictions")
	require.NoError(t, err)
	rows, err := s.Conn.Query(clickhouse.Context(t.Context(), clickhouse.WithSettings(settings)),
		"SELECT detector_code, toInt64(j), toUInt8(h), p + c, p + c + f * low, p + c + f * high FROM ("+sql+") "+
			"ARRAY JOIN ps AS p, corrections AS c, factors AS f, arrayEnumerate(ps) AS j")
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
	require.NotZero(t, l.Pool.Weights[0].Spread)
	random := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for compared < 1000 {
		h := s.Horizons[random.IntN(len(s.Horizons))]
		place := 1 + random.IntN(int(s.Day(day, 1).Sub(day)/s.Interval))
		origin := day.Add(time.Duration(place)*s.Interval - h)
		codes, recent, err := s.Recent(t.Context(), origin)
		require.NoError(t, err)
		step := model.NewStep(l, origin, codes, recent)
		out := make([]model.Forecast, 1)
		for i, code := range codes {
			step.Forecast(code, &recent[i], []model.Target{step.TargetOf(h)}, out, nil)
			want, ok := oracle[key{code, int64(place), uint8(h / s.Interval)}]
			require.Equal(t, l.Detectors[code] != nil, ok, "nothing is learned relative to the profile of other detectors")
			if !ok {
				continue
			}
			for n, got := range []float64{out[0].Value, out[0].Low, out[0].High} {
				require.InDelta(t, want[n], got, 1e-9, "%s at %s + %s", code, origin, h)
			}
			compared++
		}
	}
}

// TestLearning checks that learning yields the same tables after an interruption, and if a
// measurement has several versions, of which only the latest is used.
func TestLearning(t *testing.T) {
	store := stores.StartClickHouse(t)
	last := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	s := start(t, store, "city", "UTC", last)
	want := s.learn(t, last)
	require.Len(t, want.Detectors, detectors-1, "detector 9 is new")
	s.compare(t, want, last)
	wantCodes, wantRecent, err := s.Recent(t.Context(), last.Add(18*time.Hour))
	require.NoError(t, err)
	require.Len(t, wantCodes, detectors)
	equal := func() {
		t.Helper()
		requireEqual(t, want, s.learn(t, last))
	}
	require.NoError(t, s.Learn(t.Context(), last.Add(-time.Hour), nil), "an instance whose clock is ahead has learned the day")
	require.ErrorContains(t, s.Learn(t.Context(), last.AddDate(0, 0, -2), nil), "the clock was ahead: days up to 2026-06-10")
	s.Interval = 15 * time.Minute
	require.ErrorContains(t, s.Learn(t.Context(), last, nil), "were learned with 5m0s")
	_, err = s.Load(t.Context(), last)
	require.ErrorContains(t, err, "model.interval is 15m0s, but")
	s.Interval = 5 * time.Minute

	// Learn the last day again, as after a crash before the row in forecaster_learned was written.
	require.NoError(t, s.Conn.Exec(t.Context(),
		"ALTER TABLE city.forecaster_learned DELETE WHERE day >= '2026-06-10' SETTINGS mutations_sync = 2"))
	equal()

	end := last.AddDate(0, 0, 1)
	s.insert(t, end.AddDate(0, 0, -days), end, end.Add(-time.Hour), 30) // earlier versions, which arrive later
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE city.forecaster_learned"))
	equal()
	codes, recent, err := s.Recent(t.Context(), last.Add(18*time.Hour))
	require.NoError(t, err)
	require.Equal(t, wantCodes, codes)
	require.Equal(t, wantRecent, recent)

	s.flow(t, last)
	s.holidays(t, last)

	// The number of rows that an interval reads does not grow with the history.
	read := func() (n uint64) {
		t.Helper()
		ctx := clickhouse.Context(t.Context(), clickhouse.WithProgress(func(p *clickhouse.Progress) { n += p.Rows }))
		_, _, err := s.Recent(ctx, last.Add(18*time.Hour))
		require.NoError(t, err)
		return n
	}
	before := read()
	require.NotZero(t, before)
	may := last.AddDate(0, -1, 0)
	s.insert(t, may.AddDate(0, 0, -days), may, end, 0)
	require.LessOrEqual(t, read(), before, "merges may have removed rows")

	s.rules(t)
}

// TestInstances checks that an instance that falls behind another one, which has learned the same
// days and removed old tables, does not replace what that one has learned.
func TestInstances(t *testing.T) {
	store := stores.StartClickHouse(t)
	end := time.Date(2026, 6, 11, 0, 0, 0, 0, time.UTC)
	source := func(database string) *Source {
		s := open(t, store.TCP, schema.Layout{Database: database})
		s.insert(t, end.AddDate(0, 0, -KeepDays-3), end, end, 0)
		return s
	}
	want := source("single").learn(t, end)
	two := source("two")
	once := false
	require.NoError(t, two.Learn(t.Context(), end, func(time.Time) error {
		if once {
			return nil
		}
		once = true
		return two.Learn(t.Context(), end, func(time.Time) error { return nil })
	}))
	requireEqual(t, want, two.learn(t, end))
}

// TestNewDetector checks that a detector that is much faster than the others gets its own profile
// after its first day, and that the other detectors' weights do not depend on it.
func TestNewDetector(t *testing.T) {
	store := stores.StartClickHouse(t)
	last := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	want := start(t, store, "without", "UTC", last).learn(t, last)
	s := start(t, store, "city", "UTC", last)
	require.NoError(t, s.Conn.Exec(t.Context(), fmt.Sprintf(`
INSERT INTO city.measurements
SELECT 'city', 'motorway', measure, fromUnixTimestamp(%d + number * 300) AS ts, ts + 300, value, NULL, generateUUIDv4(), 0, now()
FROM numbers(288) ARRAY JOIN ['speed', 'flow'] AS measure, [120., 20.] AS value`, last.AddDate(0, 0, -1).Unix())))
	got := s.learn(t, last)
	for _, v := range got.Detectors["motorway"].Profile {
		require.InDelta(t, 120, v, 1e-9)
	}
	for code, d := range want.Detectors {
		for i, w := range d.Weights {
			require.InDeltaSlice(t, w.Beta[:], got.Detectors[code].Weights[i].Beta[:], 1e-6)
		}
	}
}

func requireEqual(t *testing.T, want, got *model.Learned) {
	t.Helper()
	require.InDelta(t, want.Pool.Mean, got.Pool.Mean, 1e-9)
	require.Len(t, got.Detectors, len(want.Detectors))
	for code, d := range want.Detectors {
		require.InDeltaSlice(t, d.Profile, got.Detectors[code].Profile, 1e-9)
		for i, w := range d.Weights {
			require.InDeltaSlice(t, w.Beta[:], got.Detectors[code].Weights[i].Beta[:], 1e-6)
			require.InDelta(t, w.Low, got.Detectors[code].Weights[i].Low, 1e-6)
			require.InDelta(t, w.High, got.Detectors[code].Weights[i].High, 1e-6)
		}
	}
}

// flow checks that vehicle counts, from 0 to 11, are learned in addition to the speeds.
func (s *Source) flow(t *testing.T, last time.Time) {
	t.Helper()
	speeds, err := s.Load(t.Context(), last)
	require.NoError(t, err)
	flow := *s
	flow.Measure, flow.Count, flow.Zero = "flow", "", true
	l := flow.learn(t, last)
	require.InDelta(t, 5.5, l.Pool.Mean, 0.1)
	require.Len(t, l.Detectors, detectors-1)
	flow.compare(t, l, last)
	again, err := s.Load(t.Context(), last)
	require.NoError(t, err)
	require.Equal(t, speeds, again)
}

// holidays checks that holidays count as Sundays. Speeds are 20 higher on Tuesday, which raises the
// profile of weekdays or, if Tuesday is a holiday, the profile of Sundays.
func (s *Source) holidays(t *testing.T, wednesday time.Time) {
	t.Helper()
	require.Equal(t, time.Wednesday, wednesday.Weekday())
	tuesday := wednesday.AddDate(0, 0, -1)
	s.insert(t, tuesday, wednesday, wednesday.AddDate(0, 0, 1), 20)
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE city.forecaster_learned"))
	s.learn(t, wednesday)
	mean := func(holidays ...time.Time) (sum float64) {
		t.Helper()
		for _, h := range holidays {
			s.Holidays = append(s.Holidays, h.Format(time.DateOnly))
		}
		defer func() { s.Holidays = nil }()
		require.NoError(t, s.exec(t.Context(), s.query(wednesday, wednesday, wednesday, 0), "profiles"))
		l, err := s.Load(t.Context(), wednesday)
		require.NoError(t, err)
		for _, v := range l.Pool.Profile[model.SlotsPerDay : 2*model.SlotsPerDay] {
			sum += v / model.SlotsPerDay
		}
		return sum
	}
	weekday, sunday := mean(), mean(wednesday)
	require.Greater(t, weekday, sunday+2)
	require.Less(t, mean(tuesday), weekday-2)
	require.Greater(t, mean(tuesday, wednesday), sunday+2)
}

// TestCluster checks that an archive with two shards is read through Distributed tables, that both
// nodes have the tables that one of them learned, and that these tables equal those of a single
// server.
func TestCluster(t *testing.T) {
	c := stores.StartCluster(t, "1", "2")
	last := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	end := last.AddDate(0, 0, 1)
	single := open(t, c.Nodes[0].TCP, schema.Layout{Database: "single"})
	city := schema.Layout{Database: "city", Cluster: "main"}
	first := open(t, c.Nodes[0].TCP, city)
	nodes := []*Source{first, open(t, c.Nodes[1].TCP, city, first.Conn)}
	single.insert(t, end.AddDate(0, 0, -days), end, end, 0)
	nodes[0].insert(t, end.AddDate(0, 0, -days), end, end, 0)
	nodes[1].insert(t, end.AddDate(0, 0, -days), end, end.Add(-time.Hour), 30) // earlier versions
	for _, s := range nodes {
		var local, all uint64
		require.NoError(t, s.Conn.QueryRow(t.Context(), "SELECT count() FROM city.measurements_local FINAL").Scan(&local))
		require.NoError(t, s.Conn.QueryRow(t.Context(), "SELECT count() FROM city.measurements FINAL").Scan(&all))
		require.NotZero(t, local)
		require.Less(t, local, all, "the other shard has the rest")
	}
	want := single.learn(t, last)
	requireEqual(t, want, nodes[0].learn(t, last))
	for _, table := range []string{"values", "profiles", "weights", "learned"} {
		require.NoError(t, nodes[1].Conn.Exec(t.Context(), "SYSTEM SYNC REPLICA city.forecaster_"+table))
	}
	got, err := nodes[1].Load(t.Context(), last)
	require.NoError(t, err)
	requireEqual(t, want, got)
	nodes[1].compare(t, got, last)
	origin := last.Add(18 * time.Hour)
	wantCodes, wantRecent, err := single.Recent(t.Context(), origin)
	require.NoError(t, err)
	for _, s := range nodes {
		codes, recent, err := s.Recent(t.Context(), origin)
		require.NoError(t, err)
		require.Equal(t, wantCodes, codes)
		require.Equal(t, wantRecent, recent)
	}
}

// rules checks that readings without vehicles and impossible readings are not used, and to which
// interval a reading belongs.
func (s *Source) rules(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE city.measurements"))
	from := time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)
	f := func(code string, speed, weight float64, flows ...float64) {
		t.Helper()
		insert := func(measure string, value float64, seconds int) {
			require.NoError(t, s.Conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO city.measurements "+
				"SELECT 'city', '%s', '%s', fromUnixTimestamp(%d) AS start, start + %d, %g, NULL, generateUUIDv4(), 0, now()",
				code, measure, from.Unix(), seconds, value)))
		}
		insert("speed", speed, 300)
		for i, flow := range flows {
			insert("flow", flow, 300-i)
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
	f("a", 50, 0.5, 2)
	f("b", 50, 0, 0) // no_vehicles
	f("c", 0, 0, 5)  // impossible
	f("d", 201, 0, 5)
	f("e", -3, 0, 5)
	f("f", 50, 0.6) // no count
	f("g", 50, 0.6, 1, 2)
	f("h", 50, 1e6/(1e6+1), 1e308, 1e308) // the sum would be infinite
	f("i", 50, 0, -1e308, -1e308)

	// Lanes are averaged in proportion to their vehicles.
	lanes := *s
	lanes.Measure, lanes.Count = "speed.*", "flow.*"
	type reading struct {
		lane        string
		speed, flow float64 // flow < 0: none
	}
	g := func(code string, speed, weight float64, readings ...reading) {
		t.Helper()
		for _, r := range readings {
			for measure, value := range map[string]float64{"speed": r.speed, "flow": r.flow} {
				if value >= 0 {
					require.NoError(t, s.Conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO city.measurements "+
						"SELECT 'city', '%s', '%s', fromUnixTimestamp(%d) AS start, start + 300, %g, NULL, generateUUIDv4(), 0, now()",
						code, measure+r.lane, from.Unix(), value)))
				}
			}
		}
		all, err := lanes.Values(t.Context(), from, from.Add(s.Interval))
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(v Values) bool { return v.Code == code })
		require.InDelta(t, speed, all[i].Values[0], 1e-9)
		require.InDelta(t, weight, all[i].Weights[0], 1e-9)
	}
	g("lanes", (60*30+100*10)/40., 40/42., reading{".lane1", 60, 30}, reading{".lane2", 100, 10}, reading{".lane3", 30, 0})
	g("trucks", (60*6+100*3)/9., 9/11., reading{".lane1", 60, 6}, reading{".lane2.truck", 100, -1})
	g("uncounted", 80, 0.6, reading{".lane1", 60, -1}, reading{".lane2", 100, -1})
	g("empty", 0, 0, reading{".lane1", 60, 0}, reading{".lane2", 100, 0})
	g("plain", 50, 0.5, reading{"", 50, 2})
	g("limits", 70, 3/5., reading{"_limit", 30, -1}, reading{".lane1", 70, 3})
	// Counts per hour are converted.
	require.NoError(t, s.Conn.Exec(t.Context(), "INSERT INTO city.measurements_units (measure_type_code, unit) VALUES ('flow', 'veh/h'), ('speed', 'km/h')"))
	f("z hourly", 50, 2/4., 24)
	require.NoError(t, s.Conn.Exec(t.Context(), "INSERT INTO city.measurements_units (measure_type_code, unit, set_at) VALUES ('flow', 'veh', now64(3) + 1)"))
	unit, err := s.Unit(t.Context())
	require.NoError(t, err)
	require.Equal(t, "km/h", unit)
	require.NoError(t, s.Conn.Exec(t.Context(), "INSERT INTO city.measurements_units (measure_type_code, unit, set_at) VALUES ('speed', 'mph', now64(3) + 1)"))
	l, err := s.Load(t.Context(), from)
	require.NoError(t, err)
	require.InDelta(t, 16.09344, l.KMH(10), 1e-9)
	uncovered, err := s.Uncovered(t.Context(), from)
	require.NoError(t, err)
	require.Equal(t, []string{"flow.lane1", "flow.lane2", "flow.lane3", "speed.lane1", "speed.lane2", "speed.lane2.truck", "speed.lane3"}, uncovered)
	uncovered, err = lanes.Uncovered(t.Context(), from)
	require.NoError(t, err)
	require.Empty(t, uncovered)

	// The latest reading is the last value until the next one, even between the ends of intervals.
	for _, later := range []time.Duration{0, time.Second, 4 * time.Minute, s.Interval - time.Second} {
		codes, recent, err := s.Recent(t.Context(), from.Add(s.Interval+later))
		require.NoError(t, err)
		require.Equal(t, "a", codes[0])
		require.InDelta(t, 50, recent[0].Values[model.Hour-1], 1e-12, later)
	}
	s.lanes(t, from)
}

// lanes checks that a day of lanes is learned like one of whole detectors.
func (s *Source) lanes(t *testing.T, at time.Time) {
	t.Helper()
	day := s.Day(at, 0)
	end := s.Day(at, 1)
	for _, table := range []string{
		"measurements", "forecaster_learned", "forecaster_values", "forecaster_days", "forecaster_moments", "forecaster_profiles", "forecaster_weights",
	} {
		require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE city."+table))
	}
	s.insert(t, s.Day(day, -2), end, end, 0)
	want := s.learn(t, day)
	require.NoError(t, s.Conn.Exec(t.Context(), "CREATE TABLE city.whole AS city.measurements"))
	require.NoError(t, s.Conn.Exec(t.Context(), "INSERT INTO city.whole SELECT * FROM city.measurements"))
	require.NoError(t, s.Conn.Exec(t.Context(), "TRUNCATE TABLE city.measurements"))
	for _, lane := range []string{".lane1", ".lane2"} {
		require.NoError(t, s.Conn.Exec(t.Context(), "INSERT INTO city.measurements "+
			"SELECT * REPLACE (concat(measure_type_code, '"+lane+"') AS measure_type_code, if(measure_type_code LIKE 'flow%', value / 2, value) AS value) FROM city.whole"))
	}
	lanes := *s
	lanes.Measure, lanes.Count = "speed.*", "flow.*"
	got := lanes.learn(t, day)
	requireEqual(t, want, got)
	lanes.compare(t, got, day)
}
