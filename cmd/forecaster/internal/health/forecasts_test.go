package health

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/evaluate"
	schema "trafficd/schemas/clickhouse"
)

// faulty copies the clean measurements to the product instance "faulty", in which every tenth
// detector has a fault that begins within a day after start and remains.
func (l *lab) faulty(t testing.TB, start time.Time) {
	t.Helper()
	l.query(t, "CREATE TABLE trafficd.planted (c String, o String, n UInt32, s DateTime('UTC')) ENGINE = Memory")
	// Two detectors in a row have the same number, so that the fifth kind can swap them.
	l.query(t, `INSERT INTO trafficd.planted
		SELECT code, if(n %% 2, lagInFrame(code) OVER w, leadInFrame(code) OVER w), intDiv(n, 2), %s + INTERVAL cityHash64(intDiv(n, 2)) %% 24 HOUR
		FROM (SELECT code, rowNumberInAllBlocks() AS n FROM (
			SELECT detector_code AS code FROM trafficd.measurements_hours WHERE product_instance = 'clean' AND hour >= %[1]s
			GROUP BY code HAVING count() > 400 ORDER BY cityHash64(code, 3) LIMIT 44))
		WINDOW w AS (ORDER BY n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)`, unix(start))
	l.query(t, "INSERT INTO trafficd.measurements_registry SELECT 'faulty', detector_code, attributes, now() FROM trafficd.measurements_registry "+
		"WHERE product_instance = 'clean'")
	received := l.to.AddDate(1, 0, 0)
	l.query(t, `INSERT INTO trafficd.measurements
		SELECT 'faulty', x.1, x.2, x.3, x.4, x.5, NULL, generateUUIDv4(), 0, %s FROM (
			SELECT multiIf(c = '' OR f < s, (d, m, f, t, v),
				n %% 7 = 0, (d, m, f, t, b),                                              -- stuck
				n %% 7 = 1, (d, m, f, t, 0.),                                             -- zeros
				n %% 7 = 2, (d, m, f, t, if(m = 'flow', 2 * v, v)),                       -- double counting
				n %% 7 = 3, (d, m, f, t, if(m = 'speed', v * if(c < o, 1.2, 0.8), v)),    -- drift
				n %% 7 = 4, (o, m, f, t, v),                                              -- swapped
				n %% 7 = 5, (d, m, f + 3600, t + 3600, v),                                -- an hour off
				(d, m, f, t, nan)) AS x                                                  -- dead
			FROM (SELECT toString(detector_code) AS d, measure_type_code AS m, timestamp_from AS f, timestamp_to AS t, value AS v
				FROM trafficd.measurements FINAL WHERE product_instance = 'clean') AS rows
			LEFT JOIN trafficd.planted AS p ON c = d
			LEFT JOIN (SELECT detector_code AS e, measure_type_code AS k, argMax(value, timestamp_from) AS b FROM trafficd.measurements AS r
				JOIN trafficd.planted AS p ON p.c = r.detector_code
				WHERE product_instance = 'clean' AND timestamp_from < p.s GROUP BY e, k) AS before ON e = d AND k = m
		) WHERE NOT isNaN(x.5)`, unix(received))
	for _, sql := range layout.Derive(schema.Block{First: received, Last: received, Months: []uint32{201408, 201409}}) {
		l.query(t, "%s", sql)
	}
	l.query(t, "TRUNCATE TABLE trafficd.measurements_blocks")
}

// refused runs the tests each hour, and returns for each the detectors whose values are refused.
func (l *lab) refused(t testing.TB, from time.Time) map[int64]map[string]bool {
	t.Helper()
	states := "'" + strings.Join(append(Refused(), "silent"), "', '") + "'"
	known := make(map[int64]map[string]bool)
	for at := from; at.Before(l.to); at = at.Add(time.Hour) {
		_, err := l.CheckAll(t.Context(), at)
		require.NoError(t, err)
		known[at.Unix()] = make(map[string]bool)
		for _, code := range strings.Fields(l.query(t, "SELECT DISTINCT detector_code FROM trafficd.measurements_detector_health "+
			"WHERE product_instance = %s AND current AND state IN (%s)", quote(l.Instance), states)) {
			known[at.Unix()][code] = true
		}
	}
	return known
}

// BenchmarkForecasts prints the errors of forecasts in the last fifth of two months of Aarhus: of
// clean measurements, and while a tenth of the detectors is faulty, with and without the tests. It
// compares all forecasts with the clean readings.
func BenchmarkForecasts(b *testing.B) {
	directory := os.Getenv("FORECAST_DATA")
	if directory == "" {
		b.Skip("FORECAST_DATA is not set")
	}
	l := newLab(b)
	l.aarhus(b, directory)
	split := l.from.Add(l.to.Sub(l.from) * 8 / 10).Truncate(5 * time.Minute)
	l.faulty(b, split.AddDate(0, 0, -2))
	source := func(instance, learned string, refused ...string) *archive.Source {
		_, err := schema.Migrate(b.Context(), l.Conn, schema.Layout{Database: learned, Table: "measurements"})
		require.NoError(b, err)
		return &archive.Source{
			Conn: l.Conn, Database: l.Database, Table: l.Table, Learned: learned, Instance: instance, Measure: "speed", Count: "flow",
			Most: 250, Interval: 5 * time.Minute, Horizons: []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour},
			Location: time.UTC, Refused: refused,
		}
	}
	var clean []evaluate.Result
	run := func(name string, e evaluate.Evaluation) {
		e.From, e.To, e.Horizons = split, l.to, []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour}
		results, err := e.Run(b.Context(), func(time.Time) {})
		require.NoError(b, err)
		if clean == nil {
			clean = results
			fmt.Printf("forecasts: %-38s %d hidden values, MAE %.3f, %.3f x that of 15 minutes\n", "imputed", e.Imputed.Readings,
				e.Imputed.MAE, e.Imputed.MAE/results[0].MAE[0])
		}
		for i, r := range results {
			fmt.Printf("forecasts: %-38s %2d min: %7d readings, MAE %.3f, %.3f x clean\n", name, r.Minutes, r.Readings, r.MAE[0], r.MAE[0]/clean[i].MAE[0])
		}
	}
	truth := source("clean", "clean", "none")
	run("clean", evaluate.Evaluation{Source: truth, Hidden: 10})
	nobody := func(string, time.Time) bool { return false }
	run("a tenth faulty, tests ignored", evaluate.Evaluation{Source: source("faulty", "ignored"), Truth: truth, Refused: nobody})
	l.Instance = "faulty"
	known := l.refused(b, split.AddDate(0, 0, -2))
	run("a tenth faulty, values refused", evaluate.Evaluation{
		Source: source("faulty", "refused", Refused()...), Truth: truth,
		Refused: func(code string, origin time.Time) bool {
			return known[origin.Add(-1).Truncate(time.Hour).Unix()][code]
		},
	})
}
