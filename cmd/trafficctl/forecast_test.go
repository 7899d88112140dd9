package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/forecasts"
)

func decoded(t testing.TB, message string) *pb.StreetForecastResponse {
	t.Helper()
	r := new(pb.StreetForecastResponse)
	require.NoError(t, proto.Unmarshal([]byte(message), r))
	return r
}

// temporary returns the path of a file in a directory that is removed after the test.
func temporary(t testing.TB, name string) string { return filepath.Join(t.TempDir(), name) }

// TestForecastGenerate checks that generated forecasts are valid in every format, and the same
// flags produce the same bytes.
func TestForecastGenerate(t *testing.T) {
	f := func(name string, args ...string) {
		t.Helper()
		path := temporary(t, name)
		args = append([]string{"forecast", "generate", "--streets", "101", "--periods", "5", "--from", "2026-11-20T18:00:00Z", "--output", path}, args...)
		requireSuccess(t, "", args...)
		first := textOf(t, path)
		requireSuccess(t, "", args...)
		require.Equal(t, first, textOf(t, path))

		built := requireSuccess(t, "", "forecast", "build", path)
		layer := decoded(t, built.out)
		require.Len(t, layer.StreetForecast, 101)
		for _, s := range layer.StreetForecast {
			normal := proto.CloneOf(s)
			_, err := forecasts.Normalise(normal, forecasts.MaxSpeed)
			require.NoError(t, err)
			require.True(t, proto.Equal(normal, s))
			require.Len(t, s.Forecast, 5)
			require.Equal(t, "2026-11-20T19:00:00Z", s.Forecast[4].Start)
			_, err = openlr.Decode(s.OpenLRcode)
			require.NoError(t, err)
		}
	}
	f("f.pb")
	f("f.json")
	f("f.ndjson.gz")
	f("f.json.gz", "--seed", "2")

	a := runWith(t, "", "forecast", "generate", "--streets", "3", "--from", "2026-11-20", "--seed", "1").out
	b := runWith(t, "", "forecast", "generate", "--streets", "3", "--from", "2026-11-20", "--seed", "2").out
	require.NotEqual(t, a, b)
	today := func() string { return `"start":"` + time.Now().UTC().Format(time.DateOnly) }
	before := today()
	now := runWith(t, "", "forecast", "generate", "--streets", "1", "--periods", "1", "--step", "24h").out
	require.True(t, strings.Contains(now, before) || strings.Contains(now, today()), "the first period must start today: %s", now)
}

func TestForecastGenerateRejects(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		require.Empty(t, requireFailure(t, "", want, append([]string{"forecast", "generate"}, args...)...).out)
	}
	f("--streets 0", "--streets", "0")
	f("--periods 0", "--periods", "0")
	f("--step 0s", "--step", "0s")
	f("--step 1.5s", "--step", "1.5s")
	f("--from", "--from", "yesterday")
	f("--from", "--from", "2261-12-31T23:00:00Z")
	f("must be protobuf, json or ndjson", "--format", "xml")
}

// TestForecastBuildReportsFaults checks that valid records are written, invalid ones reported, and
// the exit code is 2 if there are any.
func TestForecastBuildReportsFaults(t *testing.T) {
	good := `{"street":1,"fromnode":1,"forecast":[{"start":"2026-11-20T18:00Z","end":"2026-11-20T19:15:00+01:00","speed_valid":true,"speed":50}]}`
	r := runWith(t, good+"\n{}\n{\"street\":2147483648,\"fromnode\":1}\n"+strings.Repeat("no\n", 29), "forecast", "build", "-", "--format", "json")
	require.Equal(t, exitRejected, r.code)
	require.Contains(t, r.err, "line 2 skipped: missing street identity: street and fromnode are both 0")
	require.Contains(t, r.err, "line 3 skipped: street and fromnode must be 32-bit integers: street 2147483648, fromnode 1")
	require.Contains(t, r.err, "… and 11 more")
	require.Contains(t, r.err, "31 records skipped, 0 parts omitted or corrected")
	var layer pb.StreetForecastResponse
	require.NoError(t, protojson.Unmarshal([]byte(r.out), &layer))
	require.Len(t, layer.StreetForecast, 1)
	require.Equal(t, "2026-11-20T18:15:00Z", layer.StreetForecast[0].Forecast[0].End)

	requireFailure(t, "{}\n", "it contains no valid forecast", "forecast", "build", "-")
	r = requireSuccess(t, good+"\n"+good, "forecast", "build", "-")
	require.Len(t, decoded(t, r.out).StreetForecast, 1)

	fast := strings.ReplaceAll(good, `"speed":50`, `"speed":600`)
	requireSuccess(t, fast, "forecast", "build", "-", "--max-speed", "700")
}

// TestForecastSpeedValid checks that like the daemon, build and get treat a period without
// speed_valid as valid. They also show periods with invalid speeds.
func TestForecastSpeedValid(t *testing.T) {
	start := time.Now().UTC().Truncate(time.Hour)
	f := func(member string, want bool) {
		t.Helper()
		in := fmt.Sprintf(`{"street":1,"fromnode":1,"forecast":[{"start":%q,"end":%q,"speed":50%s}]}`,
			start.Format(time.RFC3339), start.Add(6*time.Hour).Format(time.RFC3339), member)
		built := requireSuccess(t, in, "forecast", "build", "-")
		p := decoded(t, built.out).StreetForecast[0].Forecast[0]
		require.NotNil(t, p.SpeedValid)
		require.Equal(t, want, p.GetSpeedValid())

		layer := serveLayer(t)
		layer.Put(decoded(t, built.out).StreetForecast[0])
		layer.Publish(time.Now())
		waitForStreets(t, layer.Layer, 1)
		got := layer.get(t, "--format", "csv")
		require.Contains(t, got.out, fmt.Sprintf(",false,%t,50,0,", want))
		got = layer.get(t, "--format", "json")
		require.Contains(t, got.out, fmt.Sprintf(`"speed_valid":%t`, want))
	}
	f("", true)
	f(`,"speed_valid":false`, false)
}

// served is a layer behind the daemon's HTTP server.
type served struct {
	*layers.Layer
	url string
}

func serveLayer(t *testing.T) served {
	t.Helper()
	layer := layers.New(layers.DefaultConfig(), zerolog.New(zerolog.NewTestWriter(t)))
	zone, err := time.LoadLocation("Europe/Copenhagen")
	require.NoError(t, err)
	layer.Start()
	t.Cleanup(layer.Stop)
	layer.Prepare([]*contract.Client{{Rights: contract.RightForecast, Zone: zone}})
	url := serve(t, "forecast", "ingest", api.Route{Path: layers.Path, Methods: layers.Methods, Right: contract.RightForecast, Endpoint: layer})
	return served{layer, url + basePath}
}

// args returns the arguments of forecast get.
func (s served) args(more ...string) []string {
	return append([]string{"forecast", "get", "--url", s.url, "--key", testKey}, more...)
}

func (s served) get(t *testing.T, args ...string) result {
	t.Helper()
	return requireSuccess(t, "", s.args(args...)...)
}

// TestForecastEndToEnd checks that forecasts are generated, published to a real broker, read by
// the feed, served as a layer and fetched in every format.
func TestForecastEndToEnd(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("forecasts", 3))
	file := temporary(t, "f.ndjson.gz")
	start := time.Now().UTC().Truncate(time.Hour) // with periods that do not end during the test
	requireSuccess(t, "", "forecast", "generate", "--streets", "50", "--periods", "8", "--step", "6h", "--from", start.Format(time.RFC3339), "--output", file)
	r := requireSuccess(t, "", "forecast", "publish", file, "--brokers", k.Brokers[0])
	require.Contains(t, r.err, "50 streets published, 0 removed")
	requireFailure(t, "", `--topic: topic "none" does not exist: create it with cleanup.policy compact`,
		"forecast", "publish", file, "--brokers", k.Brokers[0], "--topic", "none")
	for _, record := range k.Records(t, "forecasts") {
		var f pb.StreetForecast
		require.NoError(t, proto.Unmarshal(record.Value, &f))
		require.Equal(t, strconv.Itoa(int(f.Street))+":"+strconv.Itoa(int(f.Fromnode)), string(record.Key))
	}

	s := serveLayer(t)
	feed := feedOf(t, k.Brokers, s.Layer)
	waitForStreets(t, s.Layer, 50)
	require.Zero(t, feed.Status().Skipped)
	r = s.get(t, "--format", "protobuf")
	require.Contains(t, r.err, " as ")
	first := decoded(t, r.out)
	require.Len(t, first.StreetForecast, 50)
	require.Equal(t, "Europe/Copenhagen", first.StreetForecast[0].Forecast[0].Timezone)
	checkFormats(t, s)

	// Half of the streets are missing: the topic gets tombstones and the layer removes the streets.
	requireSuccess(t, "", "forecast", "generate", "--streets", "25", "--periods", "8", "--step", "6h", "--from", start.Format(time.RFC3339), "--output", file)
	r = requireSuccess(t, "", "forecast", "publish", file, "--brokers", k.Brokers[0], "--tombstone-missing")
	require.Contains(t, r.err, "25 streets published, 25 removed")
	waitForStreets(t, s.Layer, 25)
	tombstones := 0
	for _, record := range k.Records(t, "forecasts") {
		if record.Value == nil {
			tombstones++
		}
	}
	require.Equal(t, 25, tombstones)
}

func feedOf(t *testing.T, brokers []string, layer *layers.Layer) *forecasts.Forecasts {
	t.Helper()
	cfg := forecasts.DefaultConfig()
	cfg.Feed, cfg.Kafka.Brokers, cfg.Kafka.Interval = forecasts.FeedKafka, brokers, 20*time.Millisecond
	feed, err := forecasts.New(cfg, layer, zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	feed.Start(context.Background())
	t.Cleanup(feed.Close)
	return feed
}

func waitForStreets(t *testing.T, layer *layers.Layer, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return layer.Status(time.Now()).Streets == n }, time.Minute, 10*time.Millisecond)
}

func checkFormats(t *testing.T, s served) {
	t.Helper()
	r := s.get(t, "--format", "json")
	var layer pb.StreetForecastResponse
	require.NoError(t, protojson.Unmarshal([]byte(r.out), &layer))
	require.Len(t, layer.StreetForecast, 50)
	require.Contains(t, r.err, "50 streets")

	rows, err := csv.NewReader(strings.NewReader(s.get(t, "--format", "csv").out)).ReadAll()
	require.NoError(t, err)
	periods := 0
	for _, f := range layer.StreetForecast {
		periods += len(f.Forecast)
	}
	require.Len(t, rows, 1+periods)
	require.Equal(t, "fromnode", rows[0][1])
	table := s.get(t, "--format", "table", "--quiet")
	require.Equal(t, 1+periods, strings.Count(table.out, "\n"))
	require.Empty(t, table.err)

	var map30 struct {
		Features []struct {
			Geometry   struct{ Coordinates [][2]float64 }
			Properties map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.get(t, "--format", "geojson", "--horizon", "30").out), &map30))
	require.Len(t, map30.Features, 50)
	for i, f := range map30.Features {
		require.Len(t, f.Geometry.Coordinates, 2)
		require.InDelta(t, 50, f.Geometry.Coordinates[0][1], 3, "latitude")
		require.InDelta(t, 10, f.Geometry.Coordinates[0][0], 3, "longitude")
		require.Contains(t, f.Properties, "speed")
		require.EqualValues(t, layer.StreetForecast[i].Fromnode, f.Properties["fromnode"])
	}
}

func TestForecastGetRejected(t *testing.T) {
	s := serveLayer(t)
	f := func(want string, args ...string) {
		t.Helper()
		require.Empty(t, requireFailure(t, "", want, s.args(args...)...).out)
	}
	f("the daemon responded with 503 GENERAL_SERVICE_UNAVAILABLE") // no layer yet
	f("; try again after ")                                        // 10 to 20 s
	f("401 GENERAL_UNAUTHENTICATED", "--key", "wrong")
	f("--url", "--url", "localhost:8080")
	f("--format", "--format", "xml")
	f("--horizon -7", "--horizon", "-7")
	f("cannot get the forecasts", "--url", "http://127.0.0.1:1")
}

// TestForecastPublishRejects checks that publish rejects flags that could do harm, and names the
// broker that it cannot reach.
func TestForecastPublishRejects(t *testing.T) {
	good := `{"street":1,"fromnode":1}`
	f := func(want, stdin string, args ...string) {
		t.Helper()
		requireFailure(t, stdin, want, append([]string{"forecast", "publish", "-"}, args...)...)
	}
	f("whose streets would be removed", good+"\n{}", "--tombstone-missing")
	f("it contains no valid forecast", "{}")
	f("--topic must be", good, "--topic", "a b")
	f("--sasl-user and "+envPassword+" must be set", good, "--sasl", "plain")
	f("--sasl must be set", good, "--sasl-user", "maps")
	f("--tls must be set", good, "--tls-ca", "ca.pem")
	f("--timeout is 0s", good, "--timeout", "0")
	f("--transaction-timeout 0s must be at least 1s", good, "--transaction-timeout", "0")
	f("--max-speed 0 must be", good, "--max-speed", "0")
	f(`cannot write to topic "forecasts"`, good, "--brokers", "127.0.0.1:1", "--timeout", "200ms")
	f("\n--brokers: cannot connect to 127.0.0.1:1", good, "--brokers", "127.0.0.1:1", "--timeout", "200ms")
	f(`cannot read topic "forecasts"`, good, "--brokers", "127.0.0.1:1", "--tombstone-missing", "--read-within", "500ms")
}
