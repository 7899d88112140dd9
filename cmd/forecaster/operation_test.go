package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// testImperfectData checks forecasts with missing, late and repeated measurements, with detectors
// whose clocks are ahead, and with detectors that fail and return.
func (w *town) testImperfectData(t *testing.T) {
	f := w.start(t)
	origin := noon.Add(-2 * time.Hour)
	forecast := func(streets int) []*pb.StreetForecast {
		t.Helper()
		all, basis, err := f.forecast(t.Context(), origin)
		require.NoError(t, err)
		require.Len(t, all, streets)
		require.Equal(t, streets, basis[model.Own])
		return all
	}
	want := forecast(10)
	equal := func() {
		t.Helper()
		for i, f := range forecast(10) {
			require.True(t, proto.Equal(want[i], f), "%v\n%v", want[i], f)
		}
	}
	remove := func(from time.Time, detectors string) {
		t.Helper()
		w.clickhouse.Query(t, fmt.Sprintf("ALTER TABLE trafficd.measurements DELETE WHERE detector_code IN (%s) "+
			"AND timestamp_from >= fromUnixTimestamp(%d) AND timestamp_from < fromUnixTimestamp(%d) SETTINGS mutations_sync = 2",
			detectors, from.Unix(), origin.Unix()))
	}
	remove(origin.Add(-20*time.Minute), "SELECT toString(number) FROM numbers(20)") // a gap
	require.False(t, proto.Equal(want[0], forecast(10)[0]))
	w.measure(t, origin.Add(-20*time.Minute), origin, 20, 0) // late
	equal()
	w.measure(t, origin.Add(-time.Hour), origin, 20, 0) // a second time
	equal()
	w.measure(t, origin.Add(30*time.Minute), origin.Add(35*time.Minute), 20, 50) // clocks that are ahead
	equal()
	remove(origin.Add(-65*time.Minute), "'6', '7'") // both detectors of a street fail
	for _, f := range forecast(9) {
		require.NotEqual(t, int32(103), f.Street)
	}
	remove(origin.Add(-5*time.Minute), "'6'")
	w.measure(t, origin.Add(-time.Hour), origin, 8, 0) // and return
	equal()
}

// watched is a connection that records the earliest measurements that a statement reads, and whose
// statements fail if they read measurements from a time on.
type watched struct {
	driver.Conn
	from   int64
	broken int64 // 0: no statement fails
}

func (w *watched) Select(ctx context.Context, to any, sql string, args ...any) error {
	if m := regexp.MustCompile(`timestamp_from >= fromUnixTimestamp\((\d+)\)`).FindStringSubmatch(sql); m != nil {
		from, _ := strconv.ParseInt(m[1], 10, 64)
		if w.from = min(w.from, from); from == w.broken {
			return errors.New("memory limit exceeded")
		}
	}
	return w.Conn.Select(ctx, to, sql, args...)
}

// testMissedIntervals checks that the bounds are adapted to the intervals that an instance has
// missed without reading two days again, and that forecasts are published if these cannot be read.
func (w *town) testMissedIntervals(t *testing.T) {
	f := w.start(t)
	c := &watched{Conn: f.source.Conn}
	f.source.Conn = c
	start := noon.Add(-3 * time.Hour)
	forecast := func(f *forecaster, origin time.Time) []*pb.StreetForecast {
		t.Helper()
		all, _, err := f.forecast(t.Context(), origin)
		require.NoError(t, err)
		require.Len(t, all, 10)
		return all
	}
	agree := func(origin time.Time) {
		t.Helper()
		fresh := forecast(w.start(t), origin)
		for i, f := range forecast(f, origin) {
			require.True(t, proto.Equal(fresh[i], f), "%v\n%v", fresh[i], f)
		}
	}
	forecast(f, start)
	c.from = math.MaxInt64
	agree(start.Add(20 * time.Minute))
	require.Equal(t, start.Add(-55*time.Minute).Unix(), c.from)

	c.broken = start.Add(-35 * time.Minute).Unix()
	forecast(f, start.Add(time.Hour))
	require.ErrorContains(t, f.state.Load().bounds, "cannot adapt the bounds of the forecasts, which are as wide as before: cannot read values")
	require.Contains(t, fmt.Sprint(f.readiness()), "memory limit exceeded")
	c.broken = 0
	agree(start.Add(65 * time.Minute))
	require.NoError(t, f.state.Load().bounds)
	c.from = math.MaxInt64
	agree(start) // the clock was set back
	require.Less(t, c.from, start.Add(-24*time.Hour).Unix())

	midnight := f.source.Day(start, 1) // the tables stay those of the day before until its end has been learned
	for n := range 3 {
		origin := midnight.Add(time.Duration(n+1) * 5 * time.Minute)
		c.from = math.MaxInt64
		_, _, err := f.forecast(t.Context(), origin)
		require.NoError(t, err)
		if n > 0 {
			require.GreaterOrEqual(t, c.from, origin.Add(-time.Hour).Unix())
		}
	}
}

// QueryRow cannot read measure types.
func (w *watched) QueryRow(ctx context.Context, sql string, args ...any) driver.Row {
	if strings.Contains(sql, "groupUniqArray") {
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		return w.Conn.QueryRow(canceled, sql, args...)
	}
	return w.Conn.QueryRow(ctx, sql, args...)
}

// testUncovered checks that measure types that cannot be read are reported, and do not keep days
// from being learned.
func (w *town) testUncovered(t *testing.T) {
	f := w.start(t)
	f.source.Conn, f.source.Instance = &watched{Conn: f.source.Conn}, "unknown"
	ctx, stop := context.WithCancel(t.Context())
	var learning sync.WaitGroup
	learning.Go(func() { f.learn(ctx) })
	require.Eventually(t, func() bool { return f.state.Load().learn != nil }, time.Minute, 10*time.Millisecond)
	stop()
	learning.Wait()
	require.ErrorContains(t, f.state.Load().learn, "cannot read the measure types")
	require.ErrorIs(t, f.state.Load().learn, archive.ErrEmpty)
}

// testExplain checks that explain prints the parts of a forecast, and why a street has none.
func (w *town) testExplain(t *testing.T) {
	f := func(args ...string) (string, error) {
		var out bytes.Buffer
		c := command()
		c.SetOut(&out)
		c.SetArgs(append(args, "--set", "clickhouse.address="+w.clickhouse.TCP, "--set", "model.product_instance=town",
			"--set", "detectors.path="+w.cfg.Detectors.Path))
		err := c.Execute()
		return out.String(), err
	}
	text, err := f("explain", "--street", "103", "--horizon", "30", "--at", noon.Format(time.RFC3339))
	require.NoError(t, err)
	for _, want := range []string{
		"detector 6, 106 m", "last hour  ", "usual at this time", "the network's last hour", "8 of 10 values are between", "speed of the street: 5",
		"not published: the period 2026-06-10T12:15:00Z to 2026-06-10T12:30:00Z has the forecast of --horizon 25",
	} {
		require.Contains(t, text, want)
	}
	running := w.start(t) // its bounds are those that explain prints
	_, _, err = running.forecast(t.Context(), noon)
	require.NoError(t, err)
	served := running.latest.Load().step
	out := make([]model.Forecast, 2)
	for i, s := range []*model.Step{served, model.NewStep(running.learned, noon, nil, nil)} {
		s.Forecast("6", served.Recent("6", time.Hour), []model.Target{served.TargetOf(30 * time.Minute)}, out[i:i+1], nil)
	}
	require.NotEqual(t, fmt.Sprintf("%.1f", out[0].High-out[0].Low), fmt.Sprintf("%.1f", out[1].High-out[1].Low), "they are adapted")
	require.Contains(t, text, fmt.Sprintf("8 of 10 values are between %.1f and %.1f \n", out[0].Low, out[0].High))
	sum, forecast := 0.0, 0.0 // the groups add up
	detector, _, _ := strings.Cut(text, "\ndetector 7")
	for _, m := range regexp.MustCompile(`(?m)^  (\w.*?)  +([+-]?\d+\.\d+)( \S*)?$`).FindAllStringSubmatch(detector, -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		if m[1] == "forecast" {
			forecast = value
		} else {
			sum += value
		}
	}
	require.Greater(t, forecast, 40.0)
	require.InDelta(t, forecast, sum, 0.05, text)
	require.NotContains(t, text, "last interval")
	text, err = f("explain", "--street", "103", "--details", "--at", noon.Format(time.RFC3339))
	require.NoError(t, err)
	for _, name := range model.Features {
		require.Contains(t, text, name+": ")
	}
	text, err = f("explain", "--street", "103", "--horizon", "25", "--at", noon.Format(time.RFC3339))
	require.NoError(t, err)
	require.Regexp(t, `published as 5\d\S* for 2026-06-10T12:15:00Z to 2026-06-10T12:30:00Z`, text)
	text, err = f("explain", "--street", "103", "--horizon", "999", "--at", noon.Format(time.RFC3339))
	require.NoError(t, err)
	require.Contains(t, text, "not published: the last period ends at 2026-06-10T1")
	text, err = f("explain", "--street", "103", "--at", noon.AddDate(0, 0, -2).Format(time.RFC3339)) // the second day
	require.NoError(t, err)
	require.Contains(t, text, "no bounds are known")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "no longer exists")
	w.clickhouse.Query(t, "ALTER TABLE trafficd.forecaster_profiles DROP PARTITION ('town', 'speed', toDate('2026-06-08'))") // as after a week
	text, err = f("explain", "--street", "103", "--at", noon.AddDate(0, 0, -2).Format(time.RFC3339))
	require.NoError(t, err)
	require.Contains(t, text, "What was learned for 2026-06-08 no longer exists")
	text, err = f("explain", "--street", "103", "--at", noon.AddDate(0, 0, 10).Format(time.RFC3339))
	require.NoError(t, err)
	require.Contains(t, text, "no measurement in the last 1h0m0s")
	require.Contains(t, text, "no forecast for the street")
	_, err = f("explain", "--street", "999", "--at", noon.Format(time.RFC3339))
	require.ErrorContains(t, err, "belongs to street 999")
	_, err = f("explain")
	require.ErrorContains(t, err, `required flag(s) "street" not set`)
	_, err = f("explain", "--street", "103", "--at", "yesterday")
	require.ErrorContains(t, err, "must be a time such as")
	_, err = f("explain", "--street", "103", "--horizon", "1500")
	require.ErrorContains(t, err, "--horizon 1500 must be from one interval (5m0s) to 24h0m0s")
	_, err = f("evaluate", "--from", "2026-06-10", "--to", "2026-06-09")
	require.ErrorContains(t, err, "--to 2026-06-09 must be after --from 2026-06-10")
}

// testRun checks that check verifies the stores, and that the running program becomes ready,
// exports metrics, publishes forecasts and stops when its context is done.
func (w *town) testRun(t *testing.T) {
	w.register(t, 20)
	c := w.cfg
	c.Forecasts.Every, c.Forecasts.Grace = time.Second, 0
	var err error
	c.Ops.Listen, err = launch.FreeAddress()
	require.NoError(t, err)
	now := time.Now().Truncate(5 * time.Minute)
	w.measure(t, now.Add(-30*time.Minute), now, 20, 0)
	w.clickhouse.Query(t, "INSERT INTO trafficd.measurements SELECT * REPLACE (concat(measure_type_code, '.lane1') AS measure_type_code) "+
		"FROM trafficd.measurements WHERE detector_code = '5' AND timestamp_from >= now() - 3600")
	var out bytes.Buffer
	require.NotContains(t, fmt.Sprint(check(t.Context(), &out, &c, nil, true)), "clickhouse")
	require.Contains(t, out.String(), "do not cover the measure types flow.lane1, speed.lane1 of the archive")
	bad := c
	bad.ClickHouse.Table = "nothing"
	require.ErrorContains(t, check(t.Context(), io.Discard, &bad, nil, true), "cannot read the archive")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, &c, zerolog.Nop()) }()
	d := &launch.Daemon{Ops: c.Ops.Listen}
	var body string
	require.NoError(t, launch.Eventually(ctx, time.Minute, func() error {
		var status int
		if status, body = d.Readyz(ctx); status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, body)
		}
		return nil
	}))
	require.Contains(t, body, `"origin"`)
	require.NoError(t, launch.Eventually(ctx, time.Minute, func() error {
		if _, body := d.Readyz(ctx); !strings.Contains(body, `"uncovered_measure_types"`) || !strings.Contains(body, `"speed.lane1"`) {
			return errors.New(body)
		}
		return nil
	}))
	require.Contains(t, body, "streets with too little history: 10")
	require.Len(t, w.layer(t), 10)
	metrics, err := d.Metrics(ctx)
	require.NoError(t, err)
	require.InDelta(t, 10, metrics.Sum("trafficd_forecaster_streets"), 0)
	require.InDelta(t, 10, metrics.Sum("trafficd_forecaster_unlocated_streets"), 0)
	require.Positive(t, metrics.Sum("trafficd_forecaster_published_total"))
	require.InDelta(t, now.Unix(), metrics.Sum("trafficd_forecaster_origin_timestamp_seconds"), 600)
	status, street, err := d.Get(ctx, "/street?street=103&fromnode=1")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(street), `"forecast":`)
	stop()
	require.NoError(t, <-ended)
}

// TestPrintConfig checks that the settings can be printed before those without a default are set.
func TestPrintConfig(t *testing.T) {
	var out bytes.Buffer
	c := command()
	c.SetArgs([]string{"--print-config"})
	c.SetOut(&out)
	require.ErrorContains(t, c.Execute(), "model.product_instance must be set")
	require.Contains(t, out.String(), "product_instance: \"\"\n")
	require.Contains(t, out.String(), "transactional_id: forecaster\n")
}
