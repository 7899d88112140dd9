package health

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
)

// noon is the time of the check. The measurements begin 16 days before.
var noon = time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)

// measure inserts measurements of healthy detectors and of one for each state, which is its code.
// It fails as that state says in the last hours before noon.
func (l *lab) measure(t testing.TB) {
	t.Helper()
	l.from, l.to = noon.AddDate(0, 0, -16), noon
	streets := map[string]string{"left": "bridge", "right": "bridge"}
	var codes []string
	for _, test := range Tests {
		codes = append(codes, test.Name)
	}
	for i := range 40 {
		codes = append(codes, fmt.Sprint("healthy ", i))
	}
	for _, code := range append(codes, "left", "right") {
		if streets[code] == "" {
			streets[code] = ""
		}
	}
	l.register(t, streets)
	l.query(t, `INSERT INTO trafficd.measurements
WITH
    dateDiff('hour', start, toDateTime(%d, 'UTC')) AS ago,
    (h, early) -> 3 + 60 * exp(-pow(h - if(early, 8, 17), 2) / 6) AS curve, -- vehicles in an interval
    cityHash64(code, start) %% 1000 / 1000 AS noise,
    toHour(start) + toMinute(start) / 60 AS clock,
    curve(multiIf(code = 'clock' AND ago <= 48, clock - 1, clock), if(ago <= 24, code = 'right', code = 'left') OR code NOT IN ('left', 'right')) AS expected,
    round(expected * (0.9 + 0.2 * noise) * multiIf(code = 'level' AND ago <= 24, 2, code = 'drift' AND ago <= 72, 1.2, 1)) AS vehicles,
    ago <= 8 AS recent
SELECT 'clean', code, x.1, start, start + 300, x.2, NULL, generateUUIDv4(), 0, start + 360
FROM (SELECT arrayJoin(splitByChar(',', %s)) AS code, toDateTime(%d + 300 * number, 'UTC') AS start FROM numbers(%d))
ARRAY JOIN [
    ('flow', multiIf(code IN ('zero', 'no_vehicles', 'impossible') AND recent, 0, code = 'constant' AND recent, 7, vehicles)),
    ('speed', multiIf(code = 'zero' AND recent, 0, code = 'range' AND ago <= 1, 900, 60 + 10 * noise)),
    ('occupancy', if(code = 'impossible', 5 + noise, -1))] AS x
WHERE x.2 >= 0 AND NOT (code = 'silent' AND ago <= 1) AND NOT (code = 'few' AND ago <= 3 AND toMinute(start) %% 15 >= 5)`,
		noon.Unix(), quote(strings.Join(append(codes, "left", "right"), ",")), l.from.Unix(), int(l.to.Sub(l.from)/(5*time.Minute)))
	l.derive(t, l.from, l.to)
}

// named returns the states that were found at the latest checks, as state, detector and measure
// type.
func (l *lab) named(t testing.TB) (all []string) {
	t.Helper()
	return strings.Split(l.query(t, "SELECT state || '/' || detector_code || '/' || measure_type_code AS s FROM trafficd.measurements_detector_health "+
		"WHERE product_instance = 'clean' AND current ORDER BY s FORMAT TSVRaw"), "\n")
}

// TestDetectorHealth checks that each test names the detector that fails it, and no healthy one,
// with numbers that a simple computation over the same rows confirms.
func TestDetectorHealth(t *testing.T) {
	l := newLab(t)
	l.measure(t)
	sick, err := l.CheckAll(t.Context(), noon)
	require.NoError(t, err)
	require.NotContains(t, sick, "level")
	l.Enabled = contract.OptionalHealthStates()
	sick, err = l.CheckAll(t.Context(), noon)
	require.NoError(t, err)
	require.Equal(t, uint64(2), sick["swapped"])
	require.Equal(t, []string{
		"clock/clock/flow", "constant/constant/flow", "drift/drift/flow", "few/few/flow", "few/few/speed", "impossible/impossible/occupancy",
		"level/constant/flow", "level/impossible/flow", "level/level/flow", "level/no_vehicles/flow", "level/range/speed", "level/zero/flow",
		"level/zero/speed", "no_vehicles/impossible/flow", "no_vehicles/no_vehicles/flow", "range/range/speed",
		"silent/silent/flow", "silent/silent/speed", "swapped/left/flow", "swapped/right/flow", "zero/zero/flow", "zero/zero/speed",
	}, l.named(t))
	require.Equal(t, uint64(1), sick["range"])
	l.oracle(t)
	l.Enabled = nil // what the tests have found ends

	// The same states at the next check continue; the detector that reports again is not silent.
	l.query(t, `INSERT INTO trafficd.measurements SELECT 'clean', 'silent', m, %[1]s - 300, %[1]s, 30, NULL, generateUUIDv4(), 0, %[1]s
		FROM (SELECT arrayJoin(['flow', 'speed']) AS m)`, unix(noon.Add(5*time.Minute)))
	l.derive(t, noon, noon.Add(time.Hour))
	_, err = l.CheckAll(t.Context(), noon.Add(5*time.Minute))
	require.NoError(t, err)
	require.NotContains(t, l.named(t), "silent/silent/flow")
	require.Contains(t, l.named(t), "swapped/left/flow", "until the next hour")
	require.Equal(t, "2026-06-10 11:00:00\t2026-06-10 12:00:00\tfalse", l.query(t,
		"SELECT first_at, last_at, current FROM trafficd.measurements_detector_health WHERE detector_code = 'silent' AND state = 'silent' LIMIT 1"))

	// All detectors stop: that is one state.
	_, err = l.CheckAll(t.Context(), noon.Add(55*time.Minute))
	require.NoError(t, err)
	require.Contains(t, l.named(t), "feed//flow")
	require.NotContains(t, strings.Join(l.named(t), ","), "silent/healthy")
	const feed = "SELECT rule FROM trafficd.measurements_detector_health WHERE state = 'feed' AND measure_type_code = 'flow'"
	require.NotContains(t, l.query(t, feed), "still received")

	// The client sends the last interval again. Measurements are accepted a minute after the interval.
	require.Equal(t, "2026-06-10 12:05:00\t360", l.query(t, "SELECT newest, usual_lag FROM trafficd.measurements_freshness WHERE measure_type_code = 'flow'"))
	l.query(t, "INSERT INTO trafficd.measurements SELECT * REPLACE (%s AS received_at) FROM trafficd.measurements WHERE timestamp_from = %s",
		unix(noon.Add(58*time.Minute)), unix(noon.Add(-5*time.Minute)))
	l.derive(t, noon, noon.Add(time.Hour))
	_, err = l.CheckAll(t.Context(), noon.Add(time.Hour))
	require.NoError(t, err)
	require.NotContains(t, l.named(t), "swapped/left/flow")
	require.Contains(t, l.query(t, feed), "; old measurements are still received, the last at 2026-06-10 12:58 UTC")
	_, err = l.CheckAll(t.Context(), noon.Add(2*time.Hour))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(l.named(t), ","), "few/healthy", "all have too few values")
	require.Equal(t, "true\tfalse", l.query(t, "SELECT late, repeated FROM trafficd.measurements_freshness WHERE measure_type_code = 'flow'"))
	l.query(t, "INSERT INTO trafficd.measurements SELECT * REPLACE (now() AS received_at) FROM trafficd.measurements WHERE timestamp_from = %s",
		unix(noon.Add(-5*time.Minute)))
	for _, sql := range layout.Derive(schema.Block{First: time.Now().Add(-time.Hour), Last: time.Now().Add(time.Hour), Months: []uint32{202606}}) {
		l.query(t, "%s", sql)
	}
	require.Equal(t, "true", l.query(t, "SELECT repeated FROM trafficd.measurements_freshness WHERE measure_type_code = 'flow'"))
}

// oracle computes from the raw measurements what is usual, and the numbers of the rule of level.
func (l *lab) oracle(t *testing.T) {
	type key struct{ place, day int }
	values, levels := map[key][]float64{}, map[int][]float64{}
	for line := range strings.Lines(l.query(t, "SELECT toUnixTimestamp(timestamp_from), value FROM trafficd.measurements_current "+
		"WHERE detector_code = 'level' AND measure_type_code = 'flow' ORDER BY timestamp_from")) {
		var seconds int64
		var value float64
		_, err := fmt.Sscan(line, &seconds, &value)
		require.NoError(t, err)
		at := time.Unix(seconds, 0).UTC()
		kind := map[time.Weekday]int{time.Saturday: 1, time.Sunday: 2}[at.Weekday()]
		k := key{24*kind + at.Hour(), at.YearDay()}
		values[k] = append(values[k], value)
	}
	mean := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x / float64(len(v))
		}
		return sum
	}
	for k, v := range values {
		if k.day < noon.YearDay() {
			levels[k.place] = append(levels[k.place], mean(v))
		}
	}
	usual := func(place int) float64 {
		v := slices.Sorted(slices.Values(levels[place]))
		if len(v) < 2 {
			return -1
		}
		return v[len(v)/2]
	}
	var stored [72]float64
	for place := range stored {
		_, err := fmt.Sscan(l.query(t, "SELECT levels[%d] FROM trafficd.measurements_health_usual FINAL "+
			"WHERE detector_code = 'level' AND measure_type_code = 'flow'", place+1), &stored[place])
		require.NoError(t, err)
		require.InDelta(t, usual(place), stored[place], 1e-4, place)
	}
	now, expected := 0.0, 0.0
	for at := noon.AddDate(0, 0, -1); at.Before(noon); at = at.Add(time.Hour) {
		if u := usual(at.Hour()); at.Hour() >= 5 && at.Hour() <= 21 && u > 0 {
			now += mean(values[key{at.Hour(), at.YearDay()}]) / 17
			expected += u / 17
		}
	}
	rule := l.query(t, "SELECT rule FROM trafficd.measurements_detector_health WHERE detector_code = 'level' AND state = 'level'")
	require.Contains(t, rule, fmt.Sprintf("flow averages %v in the last 24 hours, %v of the usual", math.Round(10*now)/10, math.Round(100*now/expected)/100))
}

// TestStuckForWeeks checks that a detector that is stuck for longer than the days from which the
// usual is learned stays named, and that its usual days are learned again after a repair.
func TestStuckForWeeks(t *testing.T) {
	l := newLab(t)
	const stuckAt, repairedAt, days = 6, 38, 48
	start := noon.AddDate(0, 0, -days).Truncate(24 * time.Hour)
	l.query(t, `INSERT INTO trafficd.measurements_hours SELECT 'clean', hour, 'flow', code, 3, 3, 3, 3, n, n + 1, n, n + if(stuck, 0, 2), 0, 0, 0, 0,
		n / 3000, n / 3000 + if(stuck, 0, 9), now64(6)
		FROM (SELECT toDateTime(%[1]d + 3600 * number, 'UTC') AS hour, arrayJoin(['stuck', 'well']) AS code,
			code = 'stuck' AND intDiv(number, 24) >= %[2]d AND intDiv(number, 24) < %[3]d AS stuck,
			if(stuck, 12000, 30000 + cityHash64(code, number) %% 9000) AS n FROM numbers(%[4]d))`, start.Unix(), stuckAt, repairedAt, 24*days)
	for day := stuckAt - 1; day < days; day++ {
		at := start.AddDate(0, 0, day).Add(12 * time.Hour)
		require.NoError(t, l.Learn(t.Context(), at))
		require.NoError(t, l.Check(t.Context(), Test{Name: "constant"}, at))
		if day == stuckAt || day == repairedAt {
			continue // the last 24 hours have both
		}
		want := ""
		if day > stuckAt && day < repairedAt {
			want = "constant/stuck/flow"
		}
		require.Equal(t, []string{want}, l.named(t), "after %d days", day)
	}
	require.Equal(t, "1", l.query(t, "SELECT levels[13] BETWEEN 9 AND 14 AND days >= 5 AS usual FROM trafficd.measurements_health_usual "+
		"WHERE detector_code = 'stuck' ORDER BY day DESC LIMIT 1"))

	const kept = "SELECT count(DISTINCT day) FROM trafficd.measurements_health_usual"
	require.Equal(t, "7", l.query(t, kept))
	require.NoError(t, l.Learn(t.Context(), start.AddDate(0, 0, days+4).Add(12*time.Hour)))
	require.Equal(t, "3", l.query(t, kept), "also those that would have been dropped on days without the forecaster")
}
