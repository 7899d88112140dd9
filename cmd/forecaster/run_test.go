package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/klauspost/compress/gzip"
	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/evaluate"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/internal/streets"
	schema "trafficd/schemas/clickhouse"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

const topicName = "forecasts"

var noon = time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)

// town is an archive with 3 days of measurements of 20 detectors, and a topic.
type town struct {
	clickhouse *stores.ClickHouse
	kafka      *stores.Kafka
	cfg        config.Config
	early      *forecaster // started before any other forecaster had learned anything
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{clickhouse: stores.StartClickHouse(t), kafka: stores.StartKafka(t, stores.Topic(topicName, 3)), cfg: config.Default()}
	c := &w.cfg
	c.ClickHouse.Address, c.ClickHouse.Timeout = w.clickhouse.TCP, time.Minute
	c.Model.ProductInstance = "town"
	k := &c.Output.Kafka
	k.Brokers, k.Topic = w.kafka.Brokers, topicName
	k.DialTimeout, k.RequestTimeout, k.MetadataMaxAge = time.Minute, time.Minute, time.Minute // on a busy machine
	c.Detectors.Path = filepath.Join(t.TempDir(), "detectors.csv")
	w.register(t, 20)
	f := w.start(t)
	_, err := schema.Migrate(t.Context(), f.source.Conn, schema.Layout{Database: "trafficd", Table: "measurements"})
	require.NoError(t, err)
	w.measure(t, noon.AddDate(0, 0, -3), noon.Add(5*time.Minute), 20, 0)
	w.early = w.start(t)
	_, basis, err := w.early.forecast(t.Context(), noon)
	require.NoError(t, err)
	require.Equal(t, map[model.Basis]int{model.Persist: 10}, basis)
	require.NoError(t, f.source.Learn(t.Context(), noon, func(time.Time) error { return nil }))
	return w
}

// register writes a detectors file in which two detectors belong to each street.
func (w *town) register(t testing.TB, detectors int) {
	t.Helper()
	var b strings.Builder
	b.WriteString("detectorCode,street,fromnode,length\n")
	for d := range detectors {
		fmt.Fprintf(&b, "%d,%d,1,%d\n", d, 100+d/2, 100+d)
	}
	require.NoError(t, os.WriteFile(w.cfg.Detectors.Path, []byte(b.String()), 0o600))
	written := noon.Add(time.Duration(detectors)) // long ago, and different from other versions
	require.NoError(t, os.Chtimes(w.cfg.Detectors.Path, written, written))
}

// TestDetectorsBeingWritten checks that a new version of the detectors file, which may be half
// written, is not used until it has settled.
func TestDetectorsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{cfg: config.Default()}
		w.cfg.Detectors.Path = filepath.Join(t.TempDir(), "detectors.csv")
		source := newSource(&w.cfg, nil, "")
		learned := &model.Learned{Day: source.Day(noon, 0), Pool: &model.Detector{}}
		f := &forecaster{cfg: &w.cfg, log: zerolog.Nop(), source: source, learned: learned}
		streets := func(want int) {
			t.Helper()
			require.NoError(t, f.refresh(t.Context(), noon))
			require.Len(t, f.content.Streets, want)
		}
		modified := func() { require.NoError(t, os.Chtimes(w.cfg.Detectors.Path, time.Now(), time.Now())) }
		w.register(t, 20)
		modified()
		streets(10) // at startup
		time.Sleep(time.Minute)
		w.register(t, 12)
		modified()
		streets(10)
		time.Sleep(settle)
		streets(6)
		w.register(t, 20) // with a modification time in the future
		streets(10)
	})
}

func (w *town) measure(t testing.TB, from, to time.Time, detectors int, added float64) {
	t.Helper()
	w.clickhouse.Query(t, fmt.Sprintf(`INSERT INTO trafficd.measurements
SELECT 'town', toString(d), measure, ts, ts + 300, value, NULL, generateUUIDv4(), 0, now() FROM (
    SELECT number %% %d AS d, fromUnixTimestamp(%d + intDiv(number, %d) * 300) AS ts, cityHash64(toUnixTimestamp(ts), d) AS h
    FROM numbers(%d)
) ARRAY JOIN ['speed', 'flow'] AS measure, [40 + d + h %% 10 + %f, toFloat64(h %% 7)] AS value`,
		detectors, from.Unix(), detectors, int(to.Sub(from)/(5*time.Minute))*detectors, added))
}

func (w *town) start(t testing.TB) *forecaster {
	t.Helper()
	conn, err := connect(&w.cfg)
	require.NoError(t, err)
	out, err := newOutput(w.cfg.Output)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); out.Close() })
	f := &forecaster{cfg: &w.cfg, log: zerolog.Nop(), source: newSource(&w.cfg, conn, "trafficd"), out: out}
	f.state.Store(&status{})
	return f
}

// layer returns the latest record of each key.
func (w *town) layer(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range w.kafka.Records(t, topicName) {
		if r.Value == nil {
			delete(all, string(r.Key))
		} else {
			all[string(r.Key)] = string(r.Value)
		}
	}
	return all
}

// TestTown runs the tests that need the stores.
func TestTown(t *testing.T) {
	w := newTown(t)
	t.Run("explain", w.testExplain)
	t.Run("imperfect data", w.testImperfectData)
	t.Run("missed intervals", w.testMissedIntervals)
	t.Run("uncovered", w.testUncovered)
	t.Run("leak", w.testLeak)
	t.Run("typical", w.testTypical)
	t.Run("sick detectors", w.testSickDetectors)
	t.Run("rounds", w.testRounds)
	t.Run("metr-la", w.testMETRLA)
	t.Run("long evaluation", w.testLongEvaluation)
	t.Run("run", w.testRun)
}

// testTypical checks that the operators' listener returns the profile of a weekday, which the
// forecasts of that day also use, and what it says without one and without the archive.
func (w *town) testTypical(t *testing.T) {
	f := w.start(t)
	get := func(query string) (s networkSpeeds) {
		t.Helper()
		r := httptest.NewRecorder()
		f.serveStreets(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/streets"+query, nil))
		require.Equal(t, http.StatusOK, r.Code, r.Body)
		require.NoError(t, json.Unmarshal(r.Body.Bytes(), &s))
		return s
	}
	_, _, err := f.forecast(t.Context(), noon) // of a Wednesday
	require.NoError(t, err)
	s := f.latest.Load()
	for hour := range 24 {
		typical, start := get(fmt.Sprintf("?weekday=3&hour=%d", hour)), noon.Truncate(24*time.Hour).Add(time.Duration(hour)*time.Hour)
		require.Empty(t, typical.Problem)
		require.Len(t, typical.Usual, 10)
		require.Equal(t, s.speeds(t.Context(), start, false).Usual, typical.Usual)
		require.NotNil(t, typical.Usual[9])
	}
	sunday := get("?weekday=7&hour=8")
	require.Equal(t, "no such weekday has been learned yet", sunday.Problem)
	require.Equal(t, make([]*float64, 10), sunday.Usual)
	var learned []int
	for weekday := range 7 {
		if get(fmt.Sprintf("?weekday=%d&hour=8", weekday+1)).Problem == "" {
			learned = append(learned, weekday+1)
		}
	}
	require.Contains(t, learned, 3)
	require.Equal(t, learned, s.network().Weekdays)

	// The archive does not respond: only what it is needed for is missing, and no request waits for
	// another one.
	now := time.Now().UTC().Truncate(f.source.Interval)
	codes, recent, err := f.source.Recent(t.Context(), noon)
	require.NoError(t, err)
	for i := range recent {
		recent[i].Seen = now
	}
	l := *s.step.Learned
	l.Day = now.Truncate(24 * time.Hour)
	source := *f.source
	stuck := stuckArchive{source.Conn, make(chan struct{}, 2)}
	source.Conn = stuck
	f.latest.Store(&snapshot{step: model.NewStep(&l, now, codes, recent), streets: s.streets, source: &source})
	waiting, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.serveStreets(httptest.NewRecorder(), httptest.NewRequestWithContext(waiting, http.MethodGet, "/streets?minutes=-90", nil))
	}()
	<-stuck.began
	require.NotNil(t, get("?minutes=-30").Measured[0])
	done, stop := context.WithCancel(t.Context())
	stop() // the other client has disconnected
	past := f.latest.Load().speeds(done, time.Now().Add(-90*time.Minute), true)
	require.Contains(t, past.Problem, "cannot read the measurements of more than an hour ago: ")
	require.Nil(t, past.Measured[0])
	require.NotNil(t, past.Usual[0])
	cancel()
	<-ended
}

// stuckArchive is an archive that does not respond.
type stuckArchive struct {
	driver.Conn
	began chan struct{} // receives a value for each query
}

func (a stuckArchive) Select(ctx context.Context, _ any, _ string, _ ...any) error {
	a.began <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// testSickDetectors checks that the values of a sick detector are neither used nor learned, that
// the forecast of its street has a substitute and names it as its basis, and that this value is
// stored beside the measurements.
func (w *town) testSickDetectors(t *testing.T) {
	query := func(sql string) string { return strings.TrimSpace(w.clickhouse.Query(t, sql)) }
	state := func(code, state string, at time.Time) {
		query(fmt.Sprintf("INSERT INTO trafficd.measurements_health VALUES ('town', '%[1]s', '%[2]s', 'speed', %[3]d - 10800, %[3]d, ''), "+
			"('town', 'checked', '', '%[1]s', 0, %[3]d, '')", state, code, at.Unix()))
	}
	f := w.start(t)
	street := func(at time.Time) (basis map[model.Basis]int, p *pb.ForecastPeriod) {
		t.Helper()
		all, basis, err := f.forecast(t.Context(), at)
		require.NoError(t, err)
		for _, s := range all {
			if s.Street == 103 {
				p = s.Forecast[0]
			}
		}
		return basis, p
	}
	query("INSERT INTO trafficd.measurements_registry SELECT 'town', toString(number), map('street', toString(intDiv(number, 2))), now() FROM numbers(20)")
	_, clean := street(noon)
	query(fmt.Sprintf("INSERT INTO trafficd.measurements SELECT * REPLACE (90 AS value, now() AS received_at) FROM trafficd.measurements FINAL "+
		"WHERE detector_code = '6' AND measure_type_code = 'speed' AND timestamp_from >= %d", noon.Add(-2*time.Hour).Unix()))
	basis, stuck := street(noon)
	require.Equal(t, map[model.Basis]int{model.Own: 10}, basis)
	require.Greater(t, math.Abs(stuck.Speed-clean.Speed), 1.5)

	state("6", "constant", noon)
	basis, substitute := street(noon)
	require.Equal(t, map[model.Basis]int{model.Own: 9, model.Neighbours: 1}, basis)
	require.Equal(t, "neighbours", *substitute.Basis)
	require.InDelta(t, clean.Speed, substitute.Speed, 1)
	all, err := f.source.Values(t.Context(), noon.Add(-4*time.Hour), noon)
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(v archive.Values) bool { return v.Code == "6" })
	require.Positive(t, slices.Max(all[i].Weights[:12]), "values before the state remain")
	require.Zero(t, slices.Max(all[i].Weights[12:]))

	state("7", "constant", noon)
	basis, substitute = street(noon)
	require.Equal(t, map[model.Basis]int{model.Own: 9, model.Profile: 1}, basis)
	require.InDelta(t, clean.Speed, substitute.Speed, 1)
	require.NoError(t, f.round(t.Context(), noon))
	require.Equal(t, "6\tprofile\n7\tprofile", query("SELECT detector_code, method FROM trafficd.measurements_imputed "+
		fmt.Sprintf("WHERE timestamp_to = %d AND abs(value - 50) < 5 ORDER BY ALL", noon.Unix())))

	state("6", "silent", noon.Add(90*time.Minute))
	basis, _ = street(noon.Add(90 * time.Minute))
	require.Equal(t, map[model.Basis]int{model.None: 9, model.Profile: 1}, basis, "it has stopped, but is known to")

	query("TRUNCATE TABLE trafficd.measurements_health")
	query("ALTER TABLE trafficd.measurements DELETE WHERE value = 90 SETTINGS mutations_sync = 2")
}

// testRounds checks publications across restarts, with two instances, after changes of the
// registry, and while either store is down: they may be late, but are never wrong.
func (w *town) testRounds(t *testing.T) {
	a := w.start(t)
	require.NoError(t, a.round(t.Context(), noon))
	first := w.layer(t)
	require.Len(t, first, 10)
	var record pb.StreetForecast
	require.NoError(t, proto.Unmarshal([]byte(first["103:1"]), &record))
	require.Len(t, record.Forecast, w.cfg.Forecasts.Periods)
	require.Equal(t, "2026-06-10T12:00:00Z", record.Forecast[0].Start)
	require.Equal(t, "2026-06-10T12:15:00Z", record.Forecast[0].End)
	for _, p := range record.Forecast {
		require.InDelta(t, 51, p.Speed, 3, "detectors 6 and 7 have means of 50.5 and 51.5")
		require.True(t, *p.SpeedValid)
	}

	// Other instances and a restart compute the same forecasts, so they publish nothing.
	before := w.kafka.Count(t, topicName)
	require.NoError(t, w.early.round(t.Context(), noon))
	b := w.start(t)
	require.NoError(t, b.round(t.Context(), noon))
	require.NoError(t, b.round(t.Context(), noon))
	require.Equal(t, before, w.kafka.Count(t, topicName))
	require.Equal(t, first, w.layer(t))

	// The next interval: the instances take turns, and agree with one that has just started.
	w.measure(t, noon, noon.Add(5*time.Minute), 20, -15)
	require.NoError(t, b.round(t.Context(), noon.Add(5*time.Minute)))
	second := w.layer(t)
	require.NotEqual(t, first, second)
	require.NoError(t, w.start(t).round(t.Context(), noon.Add(5*time.Minute)))
	require.Equal(t, second, w.layer(t))

	// Two instances publish at the same time. The one whose transaction is aborted has nothing left
	// to publish.
	w.measure(t, noon, noon.Add(5*time.Minute), 20, 15)
	fenced := w.start(t)
	fenced.out = contested{fenced.out, func() error { return b.round(t.Context(), noon.Add(5*time.Minute)) }}
	b.sent = nil
	require.True(t, publish.Fenced(fenced.round(t.Context(), noon.Add(5*time.Minute))))
	before = w.kafka.Count(t, topicName)
	require.NoError(t, fenced.round(t.Context(), noon.Add(5*time.Minute)))
	require.Equal(t, before, w.kafka.Count(t, topicName))
	w.measure(t, noon, noon.Add(5*time.Minute), 20, -15)
	require.NoError(t, b.round(t.Context(), noon.Add(5*time.Minute)))
	require.Equal(t, second, w.layer(t))

	// An instance that has missed an interval replaces what another instance published in it, even if
	// its own forecasts have not changed.
	coarse, c := w.start(t), w.cfg
	coarse.cfg, c.Forecasts.Tolerance = &c, 1000
	require.NoError(t, coarse.round(t.Context(), noon))
	unchanged := w.layer(t)
	require.NoError(t, w.start(t).round(t.Context(), noon.Add(5*time.Minute)))
	require.NotEqual(t, unchanged, w.layer(t))
	require.NoError(t, coarse.round(t.Context(), noon.Add(10*time.Minute)))
	require.Equal(t, unchanged, w.layer(t))
	require.NoError(t, w.start(t).round(t.Context(), noon.Add(5*time.Minute)))
	require.Equal(t, second, w.layer(t))

	// Streets that left the registry are removed, even by an instance that never read them.
	w.register(t, 16)
	require.NoError(t, b.round(t.Context(), noon.Add(5*time.Minute)))
	require.Len(t, w.layer(t), 8)
	w.register(t, 14)
	require.NoError(t, w.start(t).round(t.Context(), noon.Add(5*time.Minute)))
	third := w.layer(t)
	require.Len(t, third, 7)

	// Without ClickHouse or Kafka, nothing changes; afterwards, publishing continues.
	require.NoError(t, w.clickhouse.Kill())
	require.Error(t, a.round(t.Context(), noon.Add(10*time.Minute)))
	require.NoError(t, w.clickhouse.Restart())
	require.Equal(t, third, w.layer(t))
	require.NoError(t, w.kafka.Stop())
	w.measure(t, noon.Add(5*time.Minute), noon.Add(10*time.Minute), 20, 20)
	enough, stop := context.WithTimeout(t.Context(), time.Second) // instead of the whole request timeout
	require.Error(t, a.round(enough, noon.Add(10*time.Minute)))
	stop()
	require.NoError(t, w.kafka.Restart())
	require.Eventually(t, func() bool { return a.round(t.Context(), noon.Add(10*time.Minute)) == nil }, time.Minute, 100*time.Millisecond)
	require.Len(t, w.layer(t), 7)
	require.NotEqual(t, third, w.layer(t))

	// Data that is too old yields no forecast. If no street has one, for example because the archive
	// is empty, the published forecasts remain.
	before = w.kafka.Count(t, topicName)
	require.ErrorIs(t, a.round(t.Context(), noon.Add(3*time.Hour)), errNoForecast)
	require.Equal(t, before, w.kafka.Count(t, topicName))
}

// TestInstancesTakeTurns checks that two instances do not abort each other's publications for ever
// if a publication takes longer than the delay before a retry.
func TestInstancesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var instances sync.WaitGroup
		var mu sync.Mutex
		fence := func() {} // aborts the transaction of the other instance
		published := [2]int{}
		c := config.Default()
		for i := range published {
			f := &forecaster{cfg: &c, log: zerolog.Nop()}
			f.state.Store(&status{})
			instances.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				f.rounds(ctx, func(ctx context.Context, _ time.Time) error {
					mu.Lock()
					fence()
					transaction, abort := context.WithTimeout(ctx, 20*time.Second)
					fence = abort
					mu.Unlock()
					<-transaction.Done()
					if !errors.Is(transaction.Err(), context.DeadlineExceeded) {
						return kafka.ProducerFenced
					}
					published[i]++
					return nil
				})
			})
		}
		time.Sleep(c.Model.Interval)
		stop()
		instances.Wait()
		require.Positive(t, published[0])
		require.Positive(t, published[1])
	})
}

// contested is an output whose publications another instance aborts.
type contested struct {
	output
	publish func() error // by the other instance
}

func (c contested) put(context.Context, []*pb.StreetForecast, []*pb.StreetForecast, []string) error {
	return errors.Join(c.publish(), kafka.InvalidProducerEpoch)
}

// testLeak checks that an evaluation fails if its tables were learned from the evaluated day, but
// not if it ends within an interval.
func (w *town) testLeak(t *testing.T) {
	f := w.start(t)
	day := f.source.Day(noon, 0)
	e := evaluate.Evaluation{Source: f.source, From: day, To: noon, Horizons: []time.Duration{15 * time.Minute, time.Hour}}
	l, err := f.source.Load(t.Context(), day)
	require.NoError(t, err)
	require.NoError(t, e.Day(t.Context(), l, day))
	e.To = noon.Add(3 * time.Minute) // within an interval
	require.NoError(t, e.Day(t.Context(), l, day))

	require.NoError(t, f.source.Learn(t.Context(), day.AddDate(0, 0, 1), func(time.Time) error { return nil }))
	leak, err := f.source.Load(t.Context(), day.AddDate(0, 0, 1))
	require.NoError(t, err)
	leak.Day = day // pretend that the tables for tomorrow are for today
	require.ErrorIs(t, e.Day(t.Context(), leak, day), evaluate.ErrLeak)
}

// TestParseTime checks that a date means the first instant of the local day.
func TestParseTime(t *testing.T) {
	f := func(zone, text, want string) {
		t.Helper()
		c := config.Default()
		c.Model.TimeZone = zone
		got, err := parseTime(&c, text)
		require.NoError(t, err)
		require.Equal(t, want, got.Format(time.RFC3339))
	}
	f("Europe/Copenhagen", "2026-09-06", "2026-09-06T00:00:00+02:00")
	f("America/Santiago", "2026-09-06", "2026-09-06T01:00:00-03:00") // clocks are set forward at midnight
	f("Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00")     // there is no such day
	f("America/Santiago", "2026-09-06T04:30:00Z", "2026-09-06T04:30:00Z")
}

func period(from, to time.Time) *evaluate.Evaluation {
	return &evaluate.Evaluation{From: from, To: to, Horizons: evaluatedHorizons}
}

// testMETRLA evaluates a small file in the METR-LA format, whose values equal the profile.
func (w *town) testMETRLA(t *testing.T) {
	var b strings.Builder
	b.WriteString(",773869,767541\n")
	start := time.Date(2012, 3, 1, 0, 0, 0, 0, time.UTC)
	for at := start; at.Before(start.AddDate(0, 0, 10)); at = at.Add(5 * time.Minute) {
		missing := "0.0"
		if at.Minute() != 5 {
			missing = fmt.Sprint(40 + at.Hour())
		}
		fmt.Fprintf(&b, "%s,%d,%s\n", at.Format(time.DateTime), 60-at.Hour(), missing)
	}
	path := filepath.Join(t.TempDir(), "metr-la.csv")
	require.NoError(t, os.WriteFile(path, []byte("\x89HDF\r\n\x1a\n\x00"), 0o600))
	_, err := readMETRLA(path)
	require.ErrorContains(t, err, "CSV that pandas writes")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	table, err := readMETRLA(path)
	require.NoError(t, err)
	require.Equal(t, start.AddDate(0, 0, 8), table.split())
	c := config.Default()
	c.ClickHouse.Address = w.clickhouse.TCP
	c.Model.ProductInstance, c.Model.Count = formatMETRLA, ""
	results, err := backtest(t.Context(), &c, table, "scratch", period(table.split(), table.end()), func(time.Time) {})
	require.NoError(t, err)
	require.Equal(t, 2*(288+264), results[0].Readings, "all except missing ones")
	require.Less(t, results[0].MAE[0], 1.0)
	require.Less(t, results[2].MAE[0], results[2].MAE[1], "the model is better than persistence")

	var text bytes.Buffer
	require.NoError(t, printResults(&text, results))
	require.Regexp(t, `15 +1104 .*persistence`, text.String())
	require.Regexp(t, `state free +60 +\d+ +\d+\.\d% +`, text.String())
	require.NotContains(t, text.String(), "noise floor", "the file has no numbers of vehicles")
	_, err = json.Marshal(results)
	require.NoError(t, err)
	_, err = backtest(t.Context(), &c, table, "scratch", period(table.end(), table.end().Add(time.Hour)), func(time.Time) {})
	require.ErrorContains(t, err, "no readings to compare")
}

// testLongEvaluation checks that an evaluation of more days than a profile covers learns all of
// them. It ends after the first day.
func (w *town) testLongEvaluation(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var learned []time.Time
	_, err := backtest(ctx, &w.cfg, nil, "scratch", period(noon, noon.AddDate(0, 0, 200)), func(day time.Time) {
		learned = append(learned, day)
		stop()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []time.Time{noon.AddDate(0, 0, -3).Truncate(24 * time.Hour)}, learned)
}

func TestMETRLAWithoutSensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metr-la.csv")
	require.NoError(t, os.WriteFile(path, []byte("time\n"), 0o600))
	_, err := readMETRLA(path)
	require.ErrorContains(t, err, "the header must have a column of times and one per sensor")
	require.NotContains(t, err.Error(), "%!")
}

func TestFileOutput(t *testing.T) {
	list, l := network(3)
	all, _ := build(config.Default().Forecasts, model.NewStep(l, noon, nil, nil), list)
	require.Empty(t, all, "nothing was measured")
	codes, recent := hour(list)
	all, _ = build(config.Default().Forecasts, model.NewStep(l, noon, codes, recent), list)
	for _, name := range []string{"forecasts.ndjson", "forecasts.ndjson.gz"} {
		path := filepath.Join(t.TempDir(), name)
		o, err := newOutput(config.Output{Feed: forecasts.FeedFile, File: config.OutputFile{Path: path}})
		require.NoError(t, err)
		f := &forecaster{out: o}
		require.NoError(t, f.publish(t.Context(), noon, all))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		if filepath.Ext(name) == ".gz" {
			z, err := gzip.NewReader(bytes.NewReader(content))
			require.NoError(t, err)
			content, err = io.ReadAll(z)
			require.NoError(t, err)
		}
		require.Equal(t, 3, bytes.Count(content, []byte("\n")))
	}
}

// recorder is an output that counts the published forecasts.
type recorder struct{ published int }

func (*recorder) Digests(context.Context, time.Duration) (map[string]uint64, error) {
	return map[string]uint64{}, nil
}
func (*recorder) Close() {}
func (r *recorder) put(_ context.Context, _, changed []*pb.StreetForecast, _ []string) error {
	r.published += len(changed)
	return nil
}

// TestUnchangedForecasts checks that forecasts that do not change for a while do not become stale.
func TestUnchangedForecasts(t *testing.T) {
	list, l := network(3)
	codes, recent := hour(list)
	all, _ := build(config.Default().Forecasts, model.NewStep(l, noon, codes, recent), list)
	r := &recorder{}
	f := &forecaster{out: r}
	at := func(minute, published int) {
		t.Helper()
		require.NoError(t, f.publish(t.Context(), noon.Add(time.Duration(minute)*time.Minute), all))
		require.Equal(t, published, r.published)
	}
	at(0, 3)
	at(5, 3)
	at(10, 4)
	at(15, 4)
	at(20, 5)
}

// network returns streets with one detector each, and learned tables.
func network(n int) ([]streets.Street, *model.Learned) {
	l := &model.Learned{Day: noon.Truncate(24 * time.Hour), Interval: 5 * time.Minute, Detectors: map[string]*model.Detector{}}
	weights := make([]model.Weights, 4)
	for i, h := range []int{3, 6, 12, 24} {
		weights[i] = model.Weights{Horizon: h, Low: -5, High: 5}
		weights[i].Beta[0] = 0.5
	}
	list := make([]streets.Street, n)
	for i := range list {
		code := fmt.Sprintf("%06d", i)
		list[i] = streets.Street{Street: int32(i + 1), Detectors: []string{code}, Lengths: []float64{1}}
		profile := slices.Repeat([]float64{40}, 3*model.SlotsPerDay)
		l.Detectors[code] = &model.Detector{Profile: profile, Mean: 40, Weights: slices.Clone(weights)}
	}
	l.Pool = l.Detectors["000000"]
	return list, l
}

func hour(list []streets.Street) (codes []string, recent []model.Recent) {
	for i, s := range list {
		r := model.Recent{Seen: noon}
		for n := range model.Hour {
			r.Values[n], r.Weights[n] = 30+float64((i+n)%20), 0.7
		}
		codes, recent = append(codes, s.Detectors[0]), append(recent, r)
	}
	return codes, recent
}

// TestStreetDetail checks that the operators' listener returns the last hour, the profile, and the
// forecast with its bounds.
func TestStreetDetail(t *testing.T) {
	list, l := network(2)
	codes, recent := hour(list)
	recent[0].Weights[3] = 0 // a reading that repeats an earlier one is not used
	c := config.Default()
	f := &forecaster{cfg: &c}
	get := func(query string) (*httptest.ResponseRecorder, streetDetail) {
		w := httptest.NewRecorder()
		f.serveStreet(w, httptest.NewRequest(http.MethodGet, "/street?"+query, nil))
		var d streetDetail
		if w.Code == http.StatusOK {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
		}
		return w, d
	}
	w, _ := get("street=1&fromnode=0")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	before := slices.Clone(recent)
	for i := range before {
		before[i].Seen = noon.Add(-time.Hour)
		before[i].Values = [model.Hour]float64(slices.Repeat([]float64{20}, model.Hour))
	}
	hourBefore := model.NewStep(l, noon.Add(-time.Hour), codes, before)
	f.latest.Store(newSnapshot(model.NewStep(l, noon, codes, recent), list, hourBefore))
	w, _ = get("street=3&fromnode=0")
	require.Equal(t, http.StatusNotFound, w.Code)
	w, _ = get("street=a&fromnode=0")
	require.Equal(t, http.StatusBadRequest, w.Code)

	_, d := get("street=1&fromnode=0")
	require.Equal(t, model.Own, d.Basis)
	require.Equal(t, noon, d.Origin)
	require.Len(t, d.Points, 2*model.Hour+24)
	require.InDelta(t, 20, *d.Points[0].Measured, 1e-9, "two hours ago")
	require.Nil(t, d.Points[0].Earlier)
	earlier := *d.Points[model.Hour].Earlier
	require.True(t, earlier > 20 && earlier < 40, "%v is what an hour ago was forecast: between what was measured then and the usual", earlier)
	require.Nil(t, d.Points[model.Hour+3].Measured)
	last, next := d.Points[2*model.Hour-1], d.Points[2*model.Hour]
	require.NotNil(t, last.Earlier)
	require.Nil(t, next.Earlier)
	require.Equal(t, noon.Add(-l.Interval), last.Start)
	require.InDelta(t, 41, *last.Measured, 1e-9)
	require.InDelta(t, 40, *last.Profile, 1e-9)
	require.Nil(t, last.Forecast)
	require.Nil(t, next.Measured)
	require.InDelta(t, *next.Forecast-5, *next.Low, 0.11)
	require.InDelta(t, *next.Forecast+5, *next.High, 0.11)

	// Without learned tables, the last value is carried forward, and the basis says so.
	empty := &model.Learned{Day: l.Day, Interval: l.Interval}
	f.latest.Store(newSnapshot(model.NewStep(empty, noon, codes, recent), list, hourBefore))
	_, d = get("street=1&fromnode=0")
	require.Equal(t, model.Persist, d.Basis)
	require.InDelta(t, 41, *d.Points[2*model.Hour].Forecast, 1e-9)
	require.Nil(t, d.Points[2*model.Hour].Profile)
	require.Nil(t, d.Points[2*model.Hour].Low)
}

// TestStreets checks that the operators' listener returns the names of all streets, and their
// speeds at a time: as measured, also more than an hour ago, and as usual.
func TestStreets(t *testing.T) {
	list, l := network(2)
	list[1].Name, list[1].Geometry = "Ring 1", []float64{10, 50, 10.1, 50.1}
	origin := time.Now().UTC().Truncate(l.Interval)
	l.Day = origin.Truncate(24 * time.Hour)
	at := func(origin time.Time, value float64) *model.Step {
		codes, recent := hour(list)
		for i := range recent {
			recent[i].Seen = origin
			for n := range recent[i].Values {
				recent[i].Values[n] = value + float64(n)
			}
		}
		return model.NewStep(l, origin, codes, recent)
	}
	c := config.Default()
	f := &forecaster{cfg: &c}
	get := func(query string, to any) int {
		w := httptest.NewRecorder()
		f.serveStreets(w, httptest.NewRequest(http.MethodGet, "/streets"+query, nil))
		if w.Code == http.StatusOK {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), to))
		}
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, get("", nil))
	f.latest.Store(newSnapshot(at(origin, 60), list, at(origin.Add(-time.Hour), 20)))
	for _, query := range []string{"?minutes=x", "?minutes=-121", "?minutes=721", "?weekday=2", "?weekday=0&hour=8", "?weekday=7&hour=24"} {
		require.Equal(t, http.StatusBadRequest, get(query, nil), query)
	}
	var n streetNetwork
	require.Equal(t, http.StatusOK, get("", &n))
	require.NotEmpty(t, n.List)
	require.Equal(t, streetNetwork{
		List: n.List, Street: []int32{1, 2}, FromNode: []int32{0, 0}, Name: []string{"", "Ring 1"},
		Detectors: [][]string{{"000000"}, {"000001"}}, Geometry: [][]float64{nil, list[1].Geometry},
		Weekdays: []int{},
	}, n)
	speeds := func(minutes int) (s networkSpeeds) {
		require.Equal(t, http.StatusOK, get(fmt.Sprintf("?minutes=%d", minutes), &s))
		require.Equal(t, n.List, s.List)
		require.InDelta(t, 40, *s.Usual[1], 0)
		return s
	}
	require.InDelta(t, 60+model.Hour-1, *speeds(0).Measured[0], 0, "the latest interval")
	require.InDelta(t, 60+model.Hour-3, *speeds(-10).Measured[1], 1, "two intervals earlier, or one if this one has ended since")
	require.InDelta(t, 20+model.Hour-3, *speeds(-70).Measured[0], 1)
	require.Nil(t, speeds(30).Measured[0])
}

// newSnapshot returns a snapshot that has read the hour before.
func newSnapshot(step *model.Step, list []streets.Street, before *model.Step) *snapshot {
	s := &snapshot{step: step, streets: list}
	s.before.Store(before)
	return s
}

// TestUnit checks that forecasts, and the details of a street, are in km/h whatever the unit of the
// archived speeds is.
func TestUnit(t *testing.T) {
	list, l := network(1)
	codes, recent := hour(list)
	c := config.Default()
	f := func(factor float64) (published float64, d streetDetail, explained string) {
		l.Factor = factor
		s := model.NewStep(l, noon, codes, recent)
		all, _ := build(c.Forecasts, s, list)
		var out bytes.Buffer
		explain(&out, &c, s, &list[0], 30*time.Minute, "km/h", false)
		return all[0].Forecast[0].Speed, (&snapshot{step: s, streets: list}).detail(c.Forecasts, &list[0], nil), out.String()
	}
	speed, detail, _ := f(0)
	list[0].Length = 106.4
	l.Detectors[list[0].Detectors[0]].SetFreeFlow()
	all, _ := build(c.Forecasts, model.NewStep(l, noon, codes, recent), list)
	p := all[0].Forecast[0]
	require.Equal(t, "own", p.GetBasis())
	require.Less(t, p.GetSpeedLow(), p.Speed)
	require.Greater(t, p.GetSpeedHigh(), p.Speed)
	require.InDelta(t, 106, all[0].GetLength(), 0)
	require.Greater(t, all[0].GetFreeFlowSpeed(), 20.0)
	const mph = 1.609344
	published, d, explained := f(mph)
	require.InDelta(t, mph*speed, published, mph*c.Forecasts.Tolerance)
	last, lastKMH := detail.Points[model.Hour-1], d.Points[model.Hour-1]
	require.InDelta(t, mph**last.Measured, *lastKMH.Measured, 0.2)
	require.InDelta(t, mph**last.Profile, *lastKMH.Profile, 0.2)
	require.InDelta(t, mph**detail.Points[model.Hour].Forecast, *d.Points[model.Hour].Forecast, 0.2)
	require.Regexp(t, `speed of the street: 6\d\.\d km/h`, explained)
}

// TestWorstBasis checks that a street with a known and an unknown detector counts as pooled,
// whichever comes first.
func TestWorstBasis(t *testing.T) {
	known, l := network(1)
	for _, detectors := range [][]string{{"000000", "new"}, {"new", "000000"}} {
		list := []streets.Street{{Street: 1, Detectors: detectors, Lengths: []float64{1, 1}}}
		_, recent := hour(known)
		s := model.NewStep(l, noon, []string{"000000", "new"}, []model.Recent{recent[0], recent[0]})
		all, basis := build(config.Default().Forecasts, s, list)
		require.Equal(t, map[model.Basis]int{model.Pooled: 1}, basis)
		require.Equal(t, "pool", all[0].Forecast[0].GetBasis())
		require.Nil(t, all[0].Forecast[0].SpeedLow, "a detector has no bounds")
		d := (&snapshot{step: s, streets: list}).detail(config.Default().Forecasts, &list[0], nil)
		require.Equal(t, model.Pooled, d.Basis)
		require.NotNil(t, d.Points[model.Hour].Forecast)
		require.Nil(t, d.Points[model.Hour].Low, "bounds of one detector are not those of the street")
	}
}

// TestExplainShortIntervals checks that explain names the time for which measurements are read, if
// that is less than forecasts.max_age.
func TestExplainShortIntervals(t *testing.T) {
	list, l := network(1)
	l.Interval = time.Minute
	c := config.Default()
	var out bytes.Buffer
	explain(&out, &c, model.NewStep(l, noon, nil, nil), &list[0], 30*time.Minute, "km/h", false)
	require.Contains(t, out.String(), "no measurement in the last 12m0s")
}

// TestExplainNewDetector checks that explain prints the two terms of a forecast without history.
func TestExplainNewDetector(t *testing.T) {
	list, l := network(1)
	_, recent := hour(list)
	list[0].Detectors[0] = "new"
	c := config.Default()
	var out bytes.Buffer
	explain(&out, &c, model.NewStep(l, noon, []string{"new"}, recent), &list[0], 30*time.Minute, "km/h", false)
	require.Contains(t, out.String(), "the profile of all detectors, 40.0, and the mean residual of the last hour, -4.5 km/h\n")
	require.Contains(t, out.String(), "speed of the street: 35.5")
}

// TestPeriodWithoutForecast checks that a period for which no detector has a forecast is omitted.
func TestPeriodWithoutForecast(t *testing.T) {
	list, l := network(1)
	origin := l.Day.Add(47 * time.Hour)      // the profiles end after an hour
	silent := []model.Recent{{Seen: origin}} // measurements, but no usable value
	all, basis := build(config.Default().Forecasts, model.NewStep(l, origin, []string{"000000"}, silent), list)
	require.Equal(t, map[model.Basis]int{model.Own: 1}, basis)
	require.Len(t, all[0].Forecast, 4)
	for _, p := range all[0].Forecast {
		require.False(t, math.IsNaN(p.Speed), p.Start)
	}
}

func TestHundredThousandStreets(t *testing.T) {
	list, l := network(100_000)
	codes, recent := hour(list)
	c := config.Default().Forecasts
	all, basis := build(c, model.NewStep(l, noon, codes, recent), list)
	require.Len(t, all, 100_000)
	require.Equal(t, map[model.Basis]int{model.Own: 100_000}, basis)
	again, _ := build(c, model.NewStep(l, noon, codes, recent), list)
	for i := range all {
		require.True(t, proto.Equal(all[i], again[i]))
	}
}

// BenchmarkStep measures the CPU time of an interval after the query: the forecasts of 10,000
// detectors at 12 horizons.
func BenchmarkStep(b *testing.B) {
	step := newStepBench()
	for b.Loop() {
		step()
	}
}

func newStepBench() func() {
	list, l := network(10_000)
	codes, recent := hour(list)
	out := make([]model.Forecast, 12)
	return func() {
		s := model.NewStep(l, noon, codes, recent)
		targets := make([]model.Target, 12)
		for i := range targets {
			targets[i] = s.TargetOf(time.Duration(i+1) * l.Interval)
		}
		for i := range codes {
			s.Forecast(codes[i], &recent[i], targets, out, nil)
		}
	}
}

// BenchmarkBuild measures the same, including the records of the streets.
func BenchmarkBuild(b *testing.B) {
	list, l := network(10_000)
	codes, recent := hour(list)
	c := config.Default().Forecasts
	c.Periods = 12
	for b.Loop() {
		build(c, model.NewStep(l, noon, codes, recent), list)
	}
}

func TestConfig(t *testing.T) {
	f := func(set []string, want ...string) {
		t.Helper()
		c, origins, err := config.Load(conf.Options{Prefix: "FORECASTER_", Set: set})
		text := fmt.Sprint(err, c.ValidateOutput(origins))
		for _, w := range want {
			require.Contains(t, text, w)
		}
	}
	f(nil, "model.product_instance must be set", "detectors.path must be set")
	f([]string{"output.feed=file", "output.file.format=xml"}, "output.file.path must be set", `output.file.format is "xml", must be protobuf`)
	f([]string{"model.measure=speed*", "model.count=*"}, `model.measure is "speed*", must be a measure type such as speed, or speed.*`, `model.count is "*"`)
	f([]string{"model.interval=7m"}, "model.interval is 7m0s", "(from --set)")
	f([]string{"model.horizons=[1h, 15m]"}, "model.horizons must be sorted")
	f([]string{"model.horizons=[15m, 15m]"}, "model.horizons must be sorted")
	f([]string{"model.horizons=[7m]"}, "model.horizons contains 7m0s")
	f([]string{"model.time_zone=Mars"}, "model.time_zone is")
	f([]string{"model.time_zone=Local"}, "model.time_zone is")
	f([]string{"model.holidays=[2026-13-01]"}, "model.holidays contains")
	f([]string{"model.holiday_region=xx"}, "model.holiday_region is")
	f([]string{"model.detector_tests=[drift, zero]"}, `model.detector_tests contains "zero", must contain only level, drift, swapped, clock`)
	f([]string{"forecasts.tolerance=0", "forecasts.max_age=2h"}, "forecasts.tolerance is 0", "forecasts.max_age is 2h0m0s")
	f([]string{"forecasts.every=2m"}, "forecasts.every is 2m0s, must be 0 or divide model.interval")
	f([]string{"forecasts.step=1h", "forecasts.periods=25"}, "forecasts.periods is 25, must be 1 to 24: profiles end")
	f([]string{"forecasts.step=25h"}, "forecasts.step is 25h0m0s, must be a multiple of model.interval up to 24h0m0s")
	f([]string{"output.feed=fax"}, "output.feed is")
	f([]string{"output.feed=file"}, "output.file.path must be set")
	c, origins, err := config.Load(conf.Options{Set: []string{"model.product_instance=a", "detectors.path=x.csv"}})
	require.NoError(t, err)
	require.NoError(t, c.ValidateOutput(origins))
	require.ErrorContains(t, check(t.Context(), io.Discard, c, origins, false), "cannot read the detectors")
}

// TestCheckDetectors checks that the check names streets without a location and ignored detectors.
func TestCheckDetectors(t *testing.T) {
	c := config.Default()
	c.Detectors.Path = filepath.Join(t.TempDir(), "detectors.csv")
	c.Output.Feed, c.Output.File.Path = forecasts.FeedFile, filepath.Join(t.TempDir(), "layer.pb")
	require.NoError(t, os.WriteFile(c.Detectors.Path, []byte("detectorCode;street;from_lat;from_lon;to_lat;to_lon\n"+
		"A;1;56,1;10,1;56,1;10,2\nB;main;;;;\n"), 0o600))
	var out bytes.Buffer
	require.NoError(t, check(t.Context(), &out, &c, nil, false))
	require.Contains(t, out.String(), `street 1 from node 0 has no location: detector "A": from_lat is "56,1"`)
	require.Contains(t, out.String(), `detector "B" is ignored`)
}

// TestCheckPermissions checks that the deep check reports that the user may not publish.
func TestCheckPermissions(t *testing.T) {
	k := stores.StartKfake(t, kfake.SeedTopics(1, topicName), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "reader", "secret", kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: topicName, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationRead, Allow: true,
		}))
	c, origins, err := config.Load(conf.Options{Set: []string{
		"model.product_instance=a", "output.kafka.brokers=" + k.ListenAddrs()[0],
		"output.kafka.sasl.mechanism=plain", "output.kafka.sasl.username=reader", "output.kafka.sasl.password=secret",
	}})
	require.NoError(t, err)
	err = check(t.Context(), io.Discard, c, origins, true)
	require.ErrorContains(t, err, `output.kafka.sasl.username: cannot write to topic "forecasts"`)
	require.ErrorContains(t, err, `output.transactional_id: cannot write with the transactional ID "forecaster"`)
	require.NotContains(t, err.Error(), "cannot read topic")
}

func TestHolidays(t *testing.T) {
	got := config.Model{HolidayRegion: "dk", Holidays: []string{"2026-06-10"}}.HolidayDates()
	require.Subset(t, got, []string{"2026-12-25", "2026-04-03", "2026-06-10"}) // Christmas, Good Friday, and a configured date
	require.NotContains(t, got, "2026-06-11")
	require.Subset(t, config.Model{HolidayRegion: "gb"}.HolidayDates(), []string{"2027-12-25", "2027-12-27"}) // Saturday, and its substitute
}
