package health

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/traffic/town"
	schema "trafficd/schemas/clickhouse"
)

var layout = schema.Layout{Database: "trafficd", Table: "measurements"}

// lab is an archive with clean measurements of the product instance "clean", and copies of it with
// planted faults.
type lab struct {
	Source
	http     string
	from, to time.Time
	random   *rand.Rand // the same in every run
	runs     int
	half     string // condition on the detectors in which faults are planted
}

// heldOut is the condition on the detectors whose faults measure the tests. Thresholds are chosen
// with the others.
const heldOut = "cityHash64(detector_code, 7) % 2 = 1"

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{random: rand.New(rand.NewPCG(1, 2)), half: "true"}
	store := stores.StartClickHouse(t)
	l.http = store.HTTP
	conn, err := clickhouse.Open(&clickhouse.Options{Addr: []string{store.TCP}, ReadTimeout: 10 * time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	l.Source = Source{Conn: conn, Database: "trafficd", Table: "measurements", Instance: "clean", Location: time.UTC}
	_, err = schema.Migrate(t.Context(), conn, layout)
	require.NoError(t, err)
	return l
}

func (l *lab) query(t testing.TB, format string, args ...any) string {
	t.Helper()
	return strings.TrimSpace(l.post(t, fmt.Sprintf(format, args...), nil, ""))
}

func (l *lab) post(t testing.TB, sql string, body io.Reader, encoding string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+l.http+"/?"+
		url.Values{"input_format_parallel_parsing": {"0"}, "max_threads": {"1"}, "query": {sql}}.Encode(), body)
	require.NoError(t, err)
	r.Header.Set("Content-Encoding", encoding)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
	return string(text)
}

// derive fills the derived tables from the measurements received in [from, to).
func (l *lab) derive(t testing.TB, from, to time.Time) {
	t.Helper()
	for start := from; start.Before(to); start = start.AddDate(0, 0, 7) {
		b := schema.Block{First: start, Last: start.AddDate(0, 0, 7).Add(-1)}
		for at := start.AddDate(0, 0, -1); at.Before(start.AddDate(0, 0, 9)); at = at.AddDate(0, 0, 1) {
			b.Months = append(b.Months, uint32(at.Year()*100+int(at.Month())))
		}
		for _, sql := range layout.Derive(b) {
			require.NoError(t, l.Conn.Exec(clickhouse.Context(t.Context(), clickhouse.WithSettings(schema.DeriveSettings)), sql))
		}
	}
}

// aarhus loads 61 days of 449 links.
func (l *lab) aarhus(t testing.TB, directory string) {
	t.Helper()
	l.from, l.to = time.Date(2014, 8, 1, 0, 0, 0, 0, time.UTC), time.Date(2014, 10, 1, 0, 0, 0, 0, time.UTC)
	file, err := os.Open(filepath.Join(directory, "observations.csv.xz"))
	require.NoError(t, err)
	defer file.Close()
	l.post(t, `INSERT INTO trafficd.measurements
		SELECT 'clean', toString(report_id), measure, timestamp, timestamp + INTERVAL 5 MINUTE, value, NULL, generateUUIDv4(), 0, timestamp
		FROM input('report_id UInt32, timestamp DateTime, avg_speed_kmh Float64, vehicle_count Float64')
		ARRAY JOIN ['speed', 'flow'] AS measure, [avg_speed_kmh, vehicle_count] AS value FORMAT CSVWithNames`, file, "xz")
	detectors, err := os.Open(filepath.Join(directory, "detectors.csv"))
	require.NoError(t, err)
	defer detectors.Close()
	rows, err := csv.NewReader(detectors).ReadAll()
	require.NoError(t, err)
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	streets := map[string]string{}
	for _, row := range rows[1:] {
		streets[row[column["REPORT_ID"]]] = row[column["POINT_1_STREET"]]
	}
	l.register(t, streets)
	l.derive(t, l.from, l.to)
}

// register adds detectors with their streets to the registry.
func (l *lab) register(t testing.TB, streets map[string]string) {
	t.Helper()
	var rows []string
	for code, street := range streets {
		rows = append(rows, fmt.Sprintf("('clean', %s, map('street', %s), now())", quote(code), quote(street)))
	}
	l.query(t, "INSERT INTO trafficd.measurements_registry VALUES %s", strings.Join(rows, ","))
}

// town loads days of a made-up town.
func (l *lab) town(t testing.TB, detectors, days int) {
	t.Helper()
	cfg := town.DefaultMeasurementConfig()
	cfg.Streets, cfg.Days, cfg.AllTypes, cfg.From = detectors, days, true, time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	cfg.GapRate = 0
	l.from, l.to = cfg.From, cfg.From.AddDate(0, 0, days)
	n, err := town.New(cfg)
	require.NoError(t, err)
	read, write := io.Pipe()
	go func() {
		var row bytes.Buffer
		for item := range n.Items() {
			row.Write(item.JSON)
			row.WriteByte('\n')
			if row.Len() > 1<<20 {
				_, _ = row.WriteTo(write)
			}
		}
		_, _ = row.WriteTo(write)
		_ = write.Close()
	}()
	l.post(t, `INSERT INTO trafficd.measurements
		SELECT 'clean', detectorCode, measureTypeCode, parseDateTimeBestEffort(timestampFrom, 'UTC'), parseDateTimeBestEffort(timestampTo, 'UTC'),
			value, NULL, generateUUIDv4(), 0, parseDateTimeBestEffort(timestampFrom, 'UTC')
		FROM input('detectorCode String, measureTypeCode String, timestampFrom String, timestampTo String, value Float64') 
		SETTINGS input_format_skip_unknown_fields = 1 FORMAT JSONEachRow`, read, "")
	var registry bytes.Buffer
	require.NoError(t, n.WriteRegistry(&registry))
	rows, err := csv.NewReader(&registry).ReadAll()
	require.NoError(t, err)
	streets := map[string]string{}
	for _, row := range rows[1:] {
		streets[row[0]] = row[4]
	}
	l.register(t, streets)
	l.derive(t, l.from, l.to)
}

// kind is a kind of fault.
type kind struct {
	name   string
	states []string      // those that name it
	window time.Duration // of its test
	step   time.Duration // between checks
	change string        // rows of the planted detectors, from rows with their codes (c, m, f, t, v), what they had before (b) and a number n
	where  string        // only these rows
	able   string        // condition on what is usual from the hour of the day %d on, for detectors that the test tests
}

// conclusive holds if equal values in the hours of a fault are less likely than 1 in 1,000,000.
const conclusive = "arraySum(h -> log(greatest(constant[(h + %d) % 24 + 1], 0.02)), range(18)) < -13.8"

const hour = time.Hour

var kinds = []kind{
	{"stuck", []string{"constant", "zero", "no_vehicles"}, 6 * hour, hour, "c, m, f, t, b", "", conclusive},
	{"zero flood", []string{"zero", "no_vehicles"}, 6 * hour, hour, "c, m, f, t, 0", "", conclusive},
	{"dead detector", []string{"silent"}, hour / 2, hour / 2, "c, m, f, t, v", "false", "true"},
	{"dead feed", []string{"feed"}, hour / 2, hour / 2, "c, m, f, t, v", "false", "true"},
	{"double counting", []string{"level"}, 24 * hour, 3 * hour, "c, m, f, t, if(m = 'flow', 2 * v, v)", "", "noise < 0.2"},
	{"drift +20 %", []string{"drift", "level"}, 72 * hour, 24 * hour, "c, m, f, t, if(m = if(n % 2, 'flow', 'speed'), 1.2 * v, v)", "", "noise < 0.08"},
	{"drift -20 %", []string{"drift", "level"}, 72 * hour, 24 * hour, "c, m, f, t, if(m = if(n % 2, 'flow', 'speed'), 0.8 * v, v)", "", "noise < 0.08"},
	{"swapped", []string{"swapped"}, 24 * hour, 3 * hour, "o, m, f, t, v", "", "true"},
	{"an hour off", []string{"clock"}, 48 * hour, 6 * hour, "c, m, f + if(n % 2, 3600, -3600), t + if(n % 2, 3600, -3600), v", "", "true"},
}

// plant copies the history of the clean measurements before start to a new product instance, and
// the measurements of the length of a fault, with the fault in some detectors, whose codes it
// returns.
func (l *lab) plant(t testing.TB, k kind, start time.Time, count int) []string {
	t.Helper()
	l.runs++
	l.Instance = fmt.Sprintf("%s %d %d", k.name, l.runs, time.Now().UnixNano())
	end := start.Add(3*k.window + hour)
	codes := strings.Fields(l.query(t, `SELECT detector_code FROM (
		SELECT detector_code, countIf(hour < %[1]s) AS past, countIf(hour >= %[1]s) AS future FROM trafficd.measurements_hours FINAL
		WHERE product_instance = 'clean' AND measure_type_code = 'flow' AND hour >= %[1]s - INTERVAL 28 DAY AND hour < %[2]s AND %[5]s
		GROUP BY detector_code HAVING past > 0.6 * 24 * least(28, dateDiff('day', %[3]s, %[1]s)) AND future > 0.9 * dateDiff('hour', %[1]s, %[2]s)
		ORDER BY cityHash64(detector_code, %[4]d) )`, unix(start), unix(end), unix(l.from), l.random.Uint32(), l.half))
	others := make(map[string]string)
	switch {
	case k.name == "dead feed":
		codes = codes[:len(codes)*3/10]
	case k.name == "swapped":
		street := map[string]string{}
		for line := range strings.Lines(l.query(t, "SELECT detector_code, street FROM trafficd.measurements_detectors WHERE product_instance = 'clean'")) {
			code, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
			street[code] = name
		}
		var pairs []string
		first := map[string]string{}
		for _, code := range codes {
			road := street[code]
			if other := first[road]; other != "" && road != "" && len(pairs) < count {
				others[code], others[other] = other, code
				pairs = append(pairs, code, other)
				delete(first, road)
			} else {
				first[road] = code
			}
		}
		codes = pairs
	case len(codes) > count:
		codes = codes[:count]
	}
	l.query(t, "INSERT INTO trafficd.measurements_registry SELECT %s, detector_code, attributes, now() FROM trafficd.measurements_registry "+
		"WHERE product_instance = 'clean'", quote(l.Instance))
	l.query(t, "CREATE OR REPLACE TABLE trafficd.planted (c String, o String, n UInt32) ENGINE = Memory")
	if len(codes) == 0 {
		return nil
	}
	var values []string
	for i, code := range codes {
		values = append(values, fmt.Sprintf("(%s, %s, %d)", quote(code), quote(others[code]), i))
	}
	l.query(t, "INSERT INTO trafficd.planted VALUES %s", strings.Join(values, ","))
	l.query(t, `INSERT INTO trafficd.measurements_hours SELECT %s, * EXCEPT product_instance FROM trafficd.measurements_hours FINAL
		WHERE product_instance = 'clean' AND hour >= %s - INTERVAL 28 DAY AND hour < %s AND (hour < %s OR detector_code NOT IN (SELECT c FROM trafficd.planted))`,
		quote(l.Instance), unix(start), unix(end), unix(start))
	if k.where == "false" {
		return codes
	}
	received := time.Now().Truncate(time.Second)
	l.query(t, `INSERT INTO trafficd.measurements
		SELECT %s, x.1, x.2, x.3, x.4, x.5, NULL, generateUUIDv4(), 0, %s FROM (
			SELECT (%s) AS x FROM (SELECT detector_code AS c, measure_type_code AS m, timestamp_from AS f, timestamp_to AS t, value AS v
				FROM trafficd.measurements FINAL WHERE product_instance = 'clean' AND timestamp_from >= %[4]s AND timestamp_from < %s) AS rows
			JOIN trafficd.planted AS p USING (c)
			LEFT JOIN (SELECT detector_code AS c, measure_type_code AS m, argMax(value, timestamp_from) AS b FROM trafficd.measurements
				WHERE product_instance = 'clean' AND timestamp_from >= %[4]s - INTERVAL 3 HOUR AND timestamp_from < %[4]s GROUP BY c, m) AS before USING (c, m)
		)`, quote(l.Instance), unix(received), k.change, unix(start), unix(end))
	b := schema.Block{First: received, Last: received, Months: []uint32{uint32(start.Year()*100 + int(start.Month())), uint32(end.Year()*100 + int(end.Month()))}}
	for _, sql := range layout.Derive(b) {
		require.NoError(t, l.Conn.Exec(clickhouse.Context(t.Context(), clickhouse.WithSettings(schema.DeriveSettings)), sql))
	}
	return codes
}

// score plants a kind of fault count times, some at once, and prints the precision and recall of
// the tests.
func (l *lab) score(t testing.TB, k kind, total, atOnce int) {
	t.Helper()
	planted, found, able, ableFound, wrong, confirmed := 0, 0, 0, 0, 0, 0
	if k.name == "dead feed" {
		defer func(half string) { l.half = half }(l.half)
		total, l.half = total/10, "true" // each has a hundred detectors
	}
	var windows []float64 // until a fault is named
	for planted < total {
		span := int(l.to.Sub(l.from)/hour) - 22*24 - int(3*k.window/hour) - 24
		start := l.from.AddDate(0, 0, 22).Add(time.Duration(l.random.IntN(span)) * hour)
		codes := l.plant(t, k, start, min(atOnce, total-planted))
		if len(codes) == 0 {
			continue
		}
		end := start.Add(3 * k.window)
		states := "'" + strings.Join(k.states, "','") + "'"
		named := map[string]bool{}
		for at := start.Add(k.step); !at.After(end); at = at.Add(k.step) {
			require.NoError(t, l.Learn(t.Context(), at))
			for _, test := range Tests {
				if strings.Contains(strings.Join(k.states, " "), test.Name) || k.states[0] == "feed" && test.Name == "silent" {
					require.NoError(t, l.Check(t.Context(), test, at))
				}
			}
			for _, code := range strings.Fields(l.query(t, "SELECT DISTINCT if(state = 'feed', state, detector_code) FROM trafficd.measurements_health WHERE product_instance = %s "+
				"AND state IN (%s) AND (state = 'feed' OR detector_code IN (SELECT c FROM trafficd.planted))", quote(l.Instance), states)) {
				if !named[code] {
					named[code] = true
					windows = append(windows, at.Sub(start).Hours()/k.window.Hours())
				}
			}
		}
		if k.name == "dead feed" {
			var named, others int
			_, err := fmt.Sscan(l.query(t, "SELECT countIf(first_at = %[2]s) > 0, uniqExactIf(first_at, first_at != %[2]s) FROM trafficd.measurements_health "+
				"WHERE product_instance = %[1]s AND state = 'feed'", quote(l.Instance), unix(start)), &named, &others)
			require.NoError(t, err)
			planted, able, found, ableFound, wrong = planted+1, able+1, found+named, ableFound+named, wrong+others
			continue
		}
		var r struct{ Planted, Found, Able, AbleFound, Wrong json.Number }
		text := l.query(t, `WITH
			named AS (SELECT DISTINCT detector_code AS c FROM trafficd.measurements_health FINAL WHERE product_instance = %[1]s AND state IN (%[2]s) AND %[6]s),
			testable AS (SELECT detector_code AS c, countIf(%[3]s) > 0 AS able FROM trafficd.measurements_health_usual FINAL
				WHERE product_instance = %[1]s AND day = %[5]s AND measure_type_code = 'flow' GROUP BY c)
			SELECT count() AS Planted, countIf(c IN named) AS Found, countIf(able) AS Able, countIf(able AND c IN named) AS AbleFound,
				(SELECT countIf(c NOT IN (SELECT c FROM trafficd.planted)) FROM named) AS Wrong
			FROM trafficd.planted LEFT JOIN testable USING (c) FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0`,
			quote(l.Instance), states, strings.ReplaceAll(k.able, "%d", strconv.Itoa(start.Hour())), unix(start), quote(start.Add(k.step).Format(time.DateOnly)), l.half)
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		add := func(total *int, n json.Number) {
			i, err := strconv.Atoi(string(n))
			require.NoError(t, err)
			*total += i
		}
		add(&planted, r.Planted)
		add(&found, r.Found)
		add(&able, r.Able)
		add(&ableFound, r.AbleFound)
		add(&wrong, r.Wrong)
		confirmed += l.confirm(t, states)
	}
	slices.Sort(windows)
	share := func(n, of int) float64 { return float64(n) / float64(max(of, 1)) }
	fmt.Printf("%-16s %7d %7d %7.3f %8d %7.3f %6d %9.3f %9d %9.3f %8.1f\n", k.name, planted, found, share(found, planted), able, share(ableFound, able),
		wrong, share(found, found+wrong), confirmed, share(found, found+wrong-confirmed), append(windows, 0)[len(windows)*9/10])
}

// constantRule is the sentence of the tests constant, zero and no_vehicles.
var constantRule = regexp.MustCompile(`(?:is (\S+)|is 0) in all intervals of the last (\d+) hours`)

// confirm returns the number of detectors without a planted fault whose state is true by the
// sentence of the rule: the raw measurements were equal for so many hours, and are so on less than
// 1 in 1,000,000 days, as a plain computation finds. These faults are in the real measurements.
func (l *lab) confirm(t testing.TB, states string) (confirmed int) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(l.query(t, "SELECT detector_code, measure_type_code, toUnixTimestamp(last_at), rule FROM trafficd.measurements_health FINAL "+
		"WHERE product_instance = %s AND state IN (%s) AND detector_code NOT IN (SELECT c FROM trafficd.planted) AND %s FORMAT TSVRaw", quote(l.Instance), states, l.half)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		rule := constantRule.FindStringSubmatch(field[3])
		if rule == nil || seen[field[0]] {
			continue
		}
		last, err := strconv.ParseInt(field[2], 10, 64)
		require.NoError(t, err)
		hours, err := strconv.ParseInt(rule[2], 10, 64)
		require.NoError(t, err)
		last = last / 3600 * 3600
		equal := map[int64]bool{} // by hour: whether all its values are equal
		value := map[int64]string{}
		for row := range strings.Lines(l.query(t, "SELECT toUnixTimestamp(timestamp_from), value FROM trafficd.measurements FINAL WHERE product_instance = 'clean' "+
			"AND detector_code = %s AND measure_type_code = %s AND timestamp_from >= %d AND timestamp_from < %d", quote(field[0]), quote(field[1]), last-29*86400, last)) {
			at, v, _ := strings.Cut(strings.TrimSpace(row), "\t")
			second, err := strconv.ParseInt(at, 10, 64)
			require.NoError(t, err)
			h := second / 3600
			if value[h] == "" {
				value[h], equal[h] = v, true
			}
			equal[h] = equal[h] && value[h] == v
		}
		likelihood, constant := 0.0, true
		for h, n := last/3600-1, int64(0); n < hours && h > last/3600-48; h-- {
			if value[h] == "" {
				continue // an hour without values
			}
			n++
			constant = constant && equal[h] && value[h] == value[last/3600-1] && (rule[1] == "" && value[h] == "0" || rule[1] == value[h])
			days, same := 0.0, 0.0
			for past := h - 24; past >= last/3600-29*24; past -= 24 {
				if value[past] != "" {
					days++
					if equal[past] {
						same++
					}
				}
			}
			likelihood += math.Log(max(same/max(days, 1), 0.02))
		}
		if constant && likelihood < -12 { // days are counted from midnight by the test
			confirmed++
			seen[field[0]] = true
		}
	}
	return confirmed
}

// BenchmarkPlantedFaults prints the table of `make health-eval`.
func BenchmarkPlantedFaults(b *testing.B) {
	faults, err := strconv.Atoi(os.Getenv("HEALTH_FAULTS"))
	if err != nil {
		b.Skip("HEALTH_FAULTS is not set")
	}
	l := newLab(b)
	if directory := os.Getenv("FORECAST_DATA"); directory != "" {
		l.aarhus(b, directory)
	} else {
		l.town(b, 200, 42)
	}
	l.half = heldOut
	if os.Getenv("HEALTH_CHOOSE") != "" {
		l.half = "NOT (" + heldOut + ")"
	}
	// A fifth of the detectors would be a fault of the network.
	atOnce, err := strconv.Atoi(l.query(b, "SELECT intDiv(uniqExact(detector_code), 10) FROM trafficd.measurements_registry"))
	require.NoError(b, err)
	fmt.Printf("%-16s %7s %7s %7s %8s %7s %6s %9s %9s %9s %8s\n", "kind", "planted", "named", "recall", "testable", "recall",
		"others", "precision", "confirmed", "precision", "windows")
	for _, k := range kinds {
		if only := os.Getenv("HEALTH_KIND"); only != "" && !slices.Contains(strings.Split(only, ","), k.name) {
			continue
		}
		l.score(b, k, faults/len(kinds), atOnce)
	}
}

// TestNoFalseAlarms checks that no test that is on names a detector in 7 days of a made-up town
// without faults, among them a holiday, one that no setting names, and a day without traffic.
func TestNoFalseAlarms(t *testing.T) {
	l := newLab(t)
	l.town(t, 40, 22)
	day := func(n int) time.Time { return l.to.AddDate(0, 0, n-7) }
	sunday := day(-1)
	for sunday.Weekday() != time.Sunday {
		sunday = sunday.AddDate(0, 0, -1)
	}
	for _, holiday := range []time.Time{day(1), day(5)} { // which have the traffic of a Sunday
		l.query(t, `INSERT INTO trafficd.measurements_hours SELECT product_instance, hour + %d, * EXCEPT (product_instance, hour, computed_at), now64(6)
			FROM trafficd.measurements_hours FINAL WHERE hour >= %s AND hour < %s`,
			int(holiday.Sub(sunday)/time.Second), unix(sunday), unix(sunday.AddDate(0, 0, 1)))
	}
	l.Holidays = []string{day(1).Format(time.DateOnly)}
	l.query(t, `INSERT INTO trafficd.measurements_hours SELECT product_instance, hour, measure_type_code, detector_code, count_1, count_2, count_3, count_4,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, now64(6) FROM trafficd.measurements_hours FINAL WHERE hour >= %s AND hour < %s AND measure_type_code != 'speed'`,
		unix(day(3)), unix(day(4)))
	for at := day(0); !at.After(l.to); at = at.Add(2 * time.Hour) {
		_, err := l.CheckAll(t.Context(), at)
		require.NoError(t, err)
	}
	require.NotEqual(t, "0", l.query(t, "SELECT count() FROM trafficd.measurements_health_usual WHERE days >= 5 AND day = %s", quote(l.to.Format(time.DateOnly))))
	require.Empty(t, l.query(t, "SELECT state, first_at, last_at, detector_code, rule FROM trafficd.measurements_detector_health LIMIT 5"))
}

// BenchmarkCost prints the CPU time of ClickHouse for 10,000 detectors with speed and flow.
func BenchmarkCost(b *testing.B) {
	if os.Getenv("HEALTH_TOWN") == "" {
		b.Skip("HEALTH_TOWN is not set")
	}
	l := newLab(b)
	now := time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)
	for day := -28; day <= 0; day++ {
		l.query(b, `INSERT INTO trafficd.measurements_hours SELECT 'clean', toDateTime(%d + 3600 * (number %% 24), 'UTC'), m, 'D' || toString(intDiv(number, 24)),
			3, 3, 3, 3, n, +n, n, +n, 0, 0, 0, 0, n / 4000, n / 2000, now64(6)
			FROM (SELECT number, arrayJoin(['speed', 'flow']) AS m, if(m = 'flow' AND intDiv(number, 24) %% 10 = 0, 0, 50000 + cityHash64(number, m, %d) %% 100000) AS n FROM numbers(240000))
			WHERE toDateTime(%[1]d + 3600 * (number %% 24), 'UTC') < %[3]s`, now.Truncate(24*time.Hour).AddDate(0, 0, day).Unix(), day, unix(now))
	}
	var used float64 // CPU time of the statements, as in system.query_log
	ctx := clickhouse.Context(b.Context(), clickhouse.WithProfileEvents(func(events []clickhouse.ProfileEvent) {
		for _, e := range events {
			if e.Name == "UserTimeMicroseconds" || e.Name == "SystemTimeMicroseconds" {
				used += float64(e.Value) / 1e6
			}
		}
	}))
	require.NoError(b, l.Learn(ctx, now))
	fmt.Printf("cost: %-12s %.2f s once a day\n", "usual", used)
	hourly, each := 0.0, 0.0
	for _, test := range Tests {
		used = 0
		require.NoError(b, l.Check(ctx, test, now))
		fmt.Printf("cost: %-12s %.2f s, hourly: %v, on: %v\n", test.Name, used, test.Hourly(), !test.Off())
		switch {
		case !test.Off() && test.Hourly():
			hourly += used
		case !test.Off():
			each += used
		}
	}
	fmt.Printf("cost: %.2f s in each interval, %.2f s at the full hour, 10,000 detectors with speed and flow\n", each, each+hourly)
}
