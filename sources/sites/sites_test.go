package sites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/lib/dial"
	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
	"trafficd/schemas/openapi"
	"trafficd/sinks/clickhouse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// body is what both paths respond with.
type body struct {
	Time    *time.Time
	Problem string
	Places  []Place
	Types   []Series
}

// get requests a path and returns the body, decompressed if gzip is accepted.
func get(t *testing.T, serve func(*fasthttp.RequestCtx) error, query, etag, accept string) (b body, status int, newETag string) {
	t.Helper()
	var ctx fasthttp.RequestCtx
	ctx.Request.SetRequestURI("/?" + query)
	ctx.Request.Header.Set("If-None-Match", etag)
	ctx.Request.Header.Set("Accept-Encoding", accept)
	require.NoError(t, serve(&ctx))
	text := ctx.Response.Body()
	if len(text) > 0 {
		if accept == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(text))
			require.NoError(t, err)
			text, err = io.ReadAll(z)
			require.NoError(t, err)
		}
		require.NoError(t, json.Unmarshal(text, &b), "%s", text)
	}
	return b, ctx.Response.StatusCode(), string(ctx.Response.Header.Peek("ETag"))
}

// forget makes the next request read the archive again.
func (s *Service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.answers {
		a.tried = time.Time{}
	}
}

// newService returns a service for a new archive.
func newService(t *testing.T, store *stores.ClickHouse) *Service {
	t.Helper()
	c := clickhouse.DefaultConfig()
	c.Addresses = []string{store.TCP}
	require.NoError(t, clickhouse.Migrate(t.Context(), c, zerolog.Nop()))
	s, err := New(Archive{c.Addresses, dial.ClickHouse{Username: "default"}, schema.Layout{Database: c.Database, Table: c.Table}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestSites(t *testing.T) {
	store := stores.StartClickHouse(t)
	s := newService(t, store)
	site := func(instance, code, attributes, listed string) {
		store.Query(t, fmt.Sprintf("INSERT INTO trafficd.measurements_registry VALUES ('%s', '%s', map(%s), '%s')", instance, code, attributes, listed))
	}
	value := func(code, kind string, ago time.Duration, value float64) {
		to := time.Now().Truncate(time.Minute).Add(-ago)
		store.Query(t, fmt.Sprintf(`INSERT INTO trafficd.measurements_last SELECT 'nl', '%s', '%s', (fromUnixTimestamp(%d), fromUnixTimestamp(%d), now64(9), 0, %g, NULL, generateUUIDv4())`,
			kind, code, to.Unix()-60, to.Unix(), value))
	}
	hour := func(code string, days int, sum float64) {
		store.Query(t, fmt.Sprintf(`INSERT INTO trafficd.measurements_hours (product_instance, hour, measure_type_code, detector_code, count_1, thousandths_1, minimum, maximum)
			SELECT 'nl', toStartOfHour(now('UTC')) - toIntervalDay(%d), 'speed', '%s', 2, %g, 0, 0`, days, code, 1000*sum))
	}
	const listed, here = "2026-01-02 00:00:00", "'longitude', '5.123456', 'latitude', '52.1', 'name', 'A1'"
	site("nl", "total", here, listed)
	value("total", "speed", time.Minute, 81.5)
	value("total", "speed.lane1", time.Minute, 70.25)
	value("total", "speed.lane2", time.Minute, 95)
	value("total", "speed.lane1.lorry", time.Minute, 60) // a class is not a lane
	value("total", "speed.lane3", 2*time.Minute, 5)      // of an earlier interval
	value("total", "flow", time.Minute, 1200)
	hour("total", 7, 200)
	hour("total", 14, 160)
	hour("total", 8, 20)                                                             // another weekday
	site("nl", "lanes", "'longitude', '5.123457', 'latitude', '52.1000001'", listed) // the same place
	value("lanes", "speed", 2*time.Minute, 50)
	value("lanes", "speed.lane1", time.Minute, 0) // a standstill
	site("nl", "classes", "'lon', '6', 'lat', '52'", listed)
	value("classes", "speed.lane1.car", time.Minute, 101)
	value("classes", "speed.lane1.lorry", time.Minute, 88)
	value("classes", "speedometer", time.Minute, 3)
	site("nl", "only", "'lon', '7', 'lat', '52'", listed)
	value("only", "speed", time.Minute, 33)
	site("nl", "silent", "'lon', '8', 'lat', '52'", listed)
	value("silent", "speed", 16*time.Minute, 50)
	site("nl", "never", "'lon', '9', 'lat', '52'", listed)
	site("nl", "nowhere", "'lon', '', 'lat', '52'", listed)
	site("nl", "wrong", "'lon', '181', 'lat', '52'", listed)
	site("nl", "removed", "'lon', '5', 'lat', '52'", "2026-01-01 00:00:00")
	site("be", "only", "'lon', '7', 'lat', '52'", "2026-01-01 00:00:00")

	until := time.Now().Truncate(time.Minute).Add(-time.Minute).UTC()
	want := []Place{
		{5.12346, 52.1, []Site{
			{"nl", "lanes", nil, nil, new(0.0), &until},
			{"nl", "total", new(81.5), new(90.0), new(70.25), &until},
		}},
		{6, 52, []Site{{"nl", "classes", nil, nil, new(88.0), &until}}},
		{7, 52, []Site{{"be", "only", nil, nil, nil, nil}, {"nl", "only", new(33.0), nil, new(33.0), &until}}},
		{8, 52, []Site{{"nl", "silent", nil, nil, nil, nil}}},
		{9, 52, []Site{{"nl", "never", nil, nil, nil, nil}}},
	}
	got, status, etag := get(t, s.ServeSites, "", "", "gzip")
	require.Equal(t, 200, status)
	require.Empty(t, got.Problem)
	if got.Places[0].Sites[0].MeasuredUntil.After(until) { // the minute has changed meanwhile
		until = until.Add(time.Minute)
	}
	require.Equal(t, want, got.Places)
	plain, _, other := get(t, s.ServeSites, "", "", "identity")
	require.Equal(t, got, plain)
	require.NotEqual(t, etag, other)

	for _, table := range []string{"", "_last"} { // a value of the last hour, and one that replaces it
		store.Query(t, "TRUNCATE TABLE trafficd.measurements"+table)
	}
	_, status, _ = get(t, s.ServeSites, "", etag, "gzip")
	require.Equal(t, 304, status, "viewers share the answer of ten seconds")
	s.forget()
	got, status, _ = get(t, s.ServeSites, "", etag, "gzip")
	require.Equal(t, 200, status)
	require.Nil(t, got.Places[0].Sites[1].Speed)

	insert := func(kind, detector string, minutes int, value float64) {
		store.Query(t, fmt.Sprintf(`INSERT INTO trafficd.measurements SELECT 'nl', '%s', '%s', toStartOfMinute(now()) - toIntervalMinute(%d), toStartOfMinute(now()) - toIntervalMinute(%d),
			%g, NULL, generateUUIDv4(), 0, now64(9)`, detector, kind, minutes, minutes-1, value))
	}
	insert("speed.lane1", "it''s", 3, 50)
	insert("speed.lane1", "it''s", 3, 51)
	insert("speed.lane1", "it''s", 2, 52)
	insert("flow.lane1", "it''s", 2, 600)
	insert("flow.lane1", "it''s", 61, 700)
	insert("flow.lane1", "other", 2, 800)
	query := url.Values{"product_instance": {"nl"}, "detector": {"it's"}}.Encode()
	got, _, _ = get(t, s.ServeHour, query, "", "gzip")
	require.Empty(t, got.Problem)
	var values []string
	for _, series := range got.Types {
		for _, v := range series.Values {
			require.Equal(t, time.Minute, v.To.Sub(v.From))
			values = append(values, fmt.Sprint(series.MeasureTypeCode, " ", v.Value))
		}
	}
	require.Equal(t, []string{"flow.lane1 600", "speed.lane1 51", "speed.lane1 52"}, values)
	for n := range 2 * maxAnswers { // bounded memory
		get(t, s.ServeHour, fmt.Sprintf("product_instance=nl&detector=%d", n), "", "gzip")
	}
	require.LessOrEqual(t, len(s.answers), maxAnswers+1)

	before, _, etag := get(t, s.ServeSites, "", "", "gzip")
	require.NoError(t, store.Stop())
	s.forget()
	stale, status, _ := get(t, s.ServeSites, "", etag, "gzip")
	require.Equal(t, 200, status)
	require.Contains(t, stale.Problem, "cannot read the archive: ")
	require.Equal(t, before.Time, stale.Time)
	require.Equal(t, before.Places, stale.Places)
	require.NoError(t, store.Restart())
	s.forget()
	back, _, same := get(t, s.ServeSites, "", "", "gzip")
	require.Empty(t, back.Problem)
	require.Equal(t, etag, same)
}

// TestUnavailable checks that there is an answer even before the archive could be read, and that
// viewers wait for one attempt only.
func TestUnavailable(t *testing.T) {
	s, err := New(Archive{[]string{"127.0.0.1:1"}, dial.ClickHouse{}, schema.Layout{Database: "d", Table: "t"}})
	require.NoError(t, err)
	defer s.Close()
	got, status, _ := get(t, s.ServeSites, "", "", "identity")
	require.Equal(t, 200, status)
	require.Nil(t, got.Time)
	require.Contains(t, got.Problem, "connection refused")
	require.Equal(t, []Place{}, got.Places)
	tried := s.answers[""].tried
	_, _, _ = get(t, s.ServeSites, "", "", "identity")
	require.Equal(t, tried, s.answers[""].tried)
}

// TestNation reads as many sites as a nation has.
func TestNation(t *testing.T) {
	store := stores.StartClickHouse(t)
	s := newService(t, store)
	store.Query(t, `INSERT INTO trafficd.measurements_registry SELECT 'nl', 'site-' || toString(number),
		map('longitude', toString(3.5 + number / 5000), 'latitude', '52'), '2026-01-01 00:00:00' FROM numbers(20000)`)
	store.Query(t, `INSERT INTO trafficd.measurements_last WITH now64(9) AS n SELECT 'nl', ['speed', 'speed.lane1', 'speed.lane2', 'flow'][1 + number % 4], 'site-' || toString(intDiv(number, 4)),
		(n, n + 0, n, 0, 50 + number % 4, NULL, generateUUIDv4()) FROM numbers(80000)`)
	start := time.Now()
	got, _, _ := get(t, s.ServeSites, "", "", "gzip")
	t.Logf("20,000 sites in %s, %d bytes as gzip", time.Since(start).Round(time.Millisecond), len(s.answers[""].packed))
	require.Empty(t, got.Problem)
	require.Len(t, got.Places, 20_000)
	for _, p := range got.Places {
		require.Equal(t, 50.0, *p.Sites[0].Speed)
		require.Equal(t, 51.0, *p.Sites[0].Slowest)
	}
}

// TestDocumented checks that operators.yaml describes the paths with all members.
func TestDocumented(t *testing.T) {
	var document struct {
		Paths      map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, yaml.Unmarshal(openapi.Operators, &document))
	f := func(name string, v any) {
		t.Helper()
		text, err := json.Marshal(v)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(text, &members))
		properties := document.Components.Schemas[name].Properties
		for member := range members {
			require.Contains(t, properties, member, name)
		}
		require.Len(t, properties, len(members), name)
	}
	one := 1.0
	f("Place", Place{})
	f("Site", Site{Speed: &one, Usual: &one, Slowest: &one, MeasuredUntil: &time.Time{}})
	f("Series", Series{})
	f("Value", Value{})
	f("Health", contract.Health{})
	f("SickDetector", contract.SickDetector{})
	f("Hour", Hour{})
	for _, path := range []string{Path, HourPath, HealthPath, EvidencePath} {
		require.Contains(t, document.Paths, path)
	}
	require.NotContains(t, strings.ToLower(string(openapi.Document)), "\n  "+Path+":\n")
}
