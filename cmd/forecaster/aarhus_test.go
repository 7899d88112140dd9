package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/evaluate"
	"trafficd/cmd/forecaster/internal/model"
	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
)

// BenchmarkForecastEval prints the figures of `make forecast-eval`: it trains the model on the
// observations in the directory that the environment variable FORECAST_DATA names, and evaluates
// it.
func BenchmarkForecastEval(b *testing.B) {
	directory := os.Getenv("FORECAST_DATA")
	if directory == "" {
		b.Skip("FORECAST_DATA is not set")
	}
	store := stores.StartClickHouse(b)
	figure := func(what string, value float64, unit string) {
		fmt.Printf("bench: forecast_%s %.4g %s\n", filepath.Base(directory)+"_"+what, value, unit)
	}
	c := config.Default()
	c.ClickHouse.Address, c.ClickHouse.Database, c.ClickHouse.Timeout, c.Model.ProductInstance = store.TCP, "eval", 30*time.Minute, "eval"
	conn, err := connect(&c)
	require.NoError(b, err)
	_, err = schema.Migrate(b.Context(), conn, schema.Layout{Database: "learned", Table: "measurements"})
	require.NoError(b, err)
	store.Query(b, "CREATE DATABASE eval ENGINE = Atomic")
	store.Query(b, `CREATE TABLE eval.measurements (
		product_instance LowCardinality(String), detector_code LowCardinality(String), measure_type_code LowCardinality(String),
		timestamp_from DateTime64(9, 'UTC'), timestamp_to DateTime64(9, 'UTC'), value Float64, received_at DateTime64(9, 'UTC'))
		ENGINE = ReplacingMergeTree(received_at) PARTITION BY toYYYYMM(timestamp_from)
		ORDER BY (product_instance, detector_code, measure_type_code, timestamp_from, timestamp_to)`)
	store.Query(b, "CREATE VIEW eval.measurements_measure_types AS SELECT '' AS measure_type_code, '' AS unit, false AS per_hour")
	require.NoError(b, upload(b.Context(), store.HTTP, filepath.Join(directory, "observations.csv.xz")))

	// The period is split into 70, 10 and 20%, of which the last part is evaluated.
	from, to := time.Date(2014, 8, 1, 0, 0, 0, 0, time.UTC), time.Date(2014, 10, 1, 0, 0, 0, 0, time.UTC)
	split := from.Add(to.Sub(from) * 8 / 10).Truncate(c.Model.Interval)

	e := evaluate.Evaluation{Source: newSource(&c, conn, "learned"), From: split, To: to, Horizons: evaluatedHorizons}
	e.Bounds = servedBounds(c.Forecasts)
	e.Source.Refused = nil // the archive has no states of health
	results, err := e.Run(b.Context(), func(time.Time) {})
	require.NoError(b, err)
	figure("learn_scratch", e.Learning.Seconds(), "s")
	store.Query(b, "ALTER TABLE learned.forecaster_learned DELETE WHERE day = toDate('2014-10-01') SETTINGS mutations_sync = 2")
	cpu := func() (seconds float64) { // of ClickHouse
		text := store.Query(b, "SELECT sum(value) / 1e6 FROM system.events "+
			"WHERE event IN ('UserTimeMicroseconds', 'SystemTimeMicroseconds')")
		_, err := fmt.Sscan(text, &seconds)
		require.NoError(b, err)
		return seconds
	}
	start, used := time.Now(), cpu()
	require.NoError(b, e.Source.Learn(b.Context(), to, func(time.Time) error { return nil }))
	figure("learn_day", time.Since(start).Seconds(), "s")
	figure("learn_day_cpu", cpu()-used, "s")
	for _, r := range results {
		for i, name := range []string{"mae", "mae_persistence", "mae_profile", "mae_profile_residual"} {
			figure(fmt.Sprintf("%s_%d", name, r.Minutes), r.MAE[i], "km/h")
		}
		figure(fmt.Sprintf("mae_worst_tenth_%d", r.Minutes), r.Worst[0], "km/h")
		figure(fmt.Sprintf("noise_floor_%d", r.Minutes), *r.Floor, "km/h")
		figure(fmt.Sprintf("closed_%d", r.Minutes), *r.Closed, "%")
		figure(fmt.Sprintf("coverage_%d", r.Minutes), r.Coverage, "%")
		for _, g := range r.Groups {
			name := fmt.Sprintf("%s_%s_%d", g.By, strings.ReplaceAll(g.Name, " ", "_"), r.Minutes)
			if g.Coverage != nil {
				figure("coverage_"+name, *g.Coverage, "%")
			}
			figure("mae_ratio_"+name, g.Ratio(), "of the better of profile and persistence")
		}
	}
	fmt.Printf("bench: forecast_memory_per_street %.0f B\n", memoryPerStreet())
	fmt.Printf("bench: forecast_step_10k_ms %.3g ms\n", stepTime().Seconds()*1e3)
	fmt.Printf("bench: forecast_served_10k_s %.3g s\n", untilServed(b, store, conn).Seconds())
}

// untilServed inserts the last interval of 10,000 streets into an archive of three hours, and
// returns the time until the daemon serves their forecasts.
func untilServed(b *testing.B, store *stores.ClickHouse, conn driver.Conn) time.Duration {
	b.Helper()
	const detectors = 10_000
	w := &town{clickhouse: store, kafka: stores.StartKafka(b, stores.Topic(topicName, 1)), cfg: config.Default()}
	w.cfg.ClickHouse.Address, w.cfg.Model.ProductInstance = store.TCP, "town"
	w.cfg.Output.Kafka.Brokers, w.cfg.Output.Kafka.Topic = w.kafka.Brokers, topicName
	w.cfg.Detectors.Path = filepath.Join(b.TempDir(), "detectors.csv")
	w.register(b, detectors)
	_, err := schema.Migrate(b.Context(), conn, schema.Layout{Database: "trafficd", Table: "measurements"})
	require.NoError(b, err)
	origin := time.Now().Truncate(5 * time.Minute)
	w.measure(b, origin.Add(-3*time.Hour), origin.Add(-5*time.Minute), detectors, 0)
	f := w.start(b)
	require.NoError(b, f.round(b.Context(), origin.Add(-5*time.Minute)))

	binary, err := launch.Program(b.Context(), "trafficd")
	require.NoError(b, err)
	d := &launch.Daemon{Binary: binary, Dir: b.TempDir()}
	require.NoError(b, d.Configure("town", "key", "forecast", []string{"0"}, "clickhouse.enabled=false", "kafka.enabled=false",
		"forecasts.feed=kafka", "forecasts.kafka.brokers="+w.kafka.Brokers[0], "forecasts.kafka.topic="+topicName))
	require.NoError(b, d.Start())
	defer func() { require.NoError(b, d.Stop(time.Minute)) }()
	layer := func() string {
		status, body, err := d.Get(b.Context(), contract.ForecastPath)
		if err != nil || status != http.StatusOK {
			return ""
		}
		return string(body)
	}
	before := ""
	require.Eventually(b, func() bool { before = layer(); return before != "" }, time.Minute, 100*time.Millisecond)
	w.measure(b, origin.Add(-5*time.Minute), origin, detectors, -15)
	start := time.Now()
	require.NoError(b, f.round(b.Context(), origin))
	for now := before; now == before || now == ""; now = layer() {
		require.Less(b, time.Since(start), time.Minute)
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// upload inserts observations with the columns of deployments/quickstart/aarhus.yaml.
func upload(ctx context.Context, address, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	query := url.Values{"input_format_parallel_parsing": {"0"}, "query": {`INSERT INTO eval.measurements
		SELECT 'eval', toString(report_id), measure, timestamp, timestamp + INTERVAL 5 MINUTE, value, timestamp
		FROM input('report_id UInt32, timestamp DateTime, avg_speed_kmh Float64, vehicle_count Float64')
		ARRAY JOIN ['speed', 'flow'] AS measure, [avg_speed_kmh, vehicle_count] AS value FORMAT CSVWithNames`}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/?"+query.Encode(), file)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Encoding", "xz")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot insert %s: %s", path, response.Status)
	}
	return nil
}

// stepTime returns the duration of the shortest of several steps.
func stepTime() time.Duration {
	step, best := newStepBench(), time.Hour
	for range 50 {
		start := time.Now()
		step()
		best = min(best, time.Since(start))
	}
	return best
}

// memoryPerStreet returns the memory in bytes that a street with one detector takes: learned
// tables, recent values and the record.
func memoryPerStreet() float64 {
	const n = 10_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	list, l := network(n)
	codes, recent := hour(list)
	all, _ := build(config.Default().Forecasts, model.NewStep(l, noon, codes, recent), list)
	after := heap()
	runtime.KeepAlive([]any{list, l, codes, recent, all})
	return (after - before) / n
}
