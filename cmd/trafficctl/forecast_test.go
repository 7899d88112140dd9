package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
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
	"trafficd/cmd/dev/traffic/town"
	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/cmd/trafficctl/internal/route"
	"trafficd/schemas/contract"
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

// writeForecasts writes forecasts of the given number of streets, with periods that do not end
// during the test, to a file.
func writeForecasts(t testing.TB, streets int) (path string) {
	t.Helper()
	cfg := town.DefaultForecastConfig()
	cfg.Streets, cfg.Periods, cfg.Step, cfg.From = streets, 8, 6*time.Hour, time.Now().UTC().Truncate(time.Hour)
	path = filepath.Join(t.TempDir(), "f.pb")
	require.NoError(t, town.WriteForecasts(path, cfg))
	return path
}

// TestForecastFaults checks that valid records are read, invalid ones reported, and the exit code
// is 2 if there are any.
func TestForecastFaults(t *testing.T) {
	good := `{"street":1,"fromnode":1,"forecast":[{"start":"2026-11-20T18:00Z","end":"2026-11-20T19:15:00+01:00","speed_valid":true,"speed":50}]}`
	read := func(text string) (forecast.Content, string, error) {
		t.Helper()
		var errs bytes.Buffer
		content, err := readForecasts(t.Context(), streams{in: strings.NewReader(text), err: &errs}, "-", "", forecasts.MaxSpeed)
		if err == nil {
			err = errIfFaulty(streams{err: &errs}, content)
		}
		return content, errs.String(), err
	}
	content, notes, err := read(good + "\n{}\n{\"street\":2147483648,\"fromnode\":1}\n" + strings.Repeat("no\n", 29))
	require.ErrorIs(t, err, errRejected)
	require.Contains(t, notes, "line 2 skipped: missing street identity: street and fromnode are both 0")
	require.Contains(t, notes, "line 3 skipped: street and fromnode must be 32-bit integers: street 2147483648, fromnode 1")
	require.Contains(t, notes, "… and 11 more")
	require.Contains(t, notes, "31 records skipped, 0 parts omitted or corrected")
	require.Len(t, content.Forecasts, 1)
	require.Equal(t, "2026-11-20T18:15:00Z", content.Forecasts[0].Forecast[0].End)

	_, _, err = read("{}\n")
	require.ErrorContains(t, err, "it contains no valid forecast")
	content, _, err = read(good + "\n" + good)
	require.NoError(t, err)
	require.Len(t, content.Forecasts, 1)
	_, _, err = read(strings.ReplaceAll(good, `"speed":50`, `"speed":600`))
	require.Error(t, err)
}

// TestForecastReadInterrupted checks that an interrupt ends the reading of a file.
func TestForecastReadInterrupted(t *testing.T) {
	input := file(t, "in.ndjson", strings.Repeat(`{"street":1}`+"\n", 10))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, err := readForecasts(ctx, streams{err: io.Discard}, input, "", 500)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "cannot read "+input)
}

// TestForecastSpeedValid checks that get shows periods with invalid speeds.
func TestForecastSpeedValid(t *testing.T) {
	layer := serveLayer(t)
	start := time.Now().UTC().Truncate(time.Hour)
	layer.Put(&pb.StreetForecast{Street: 1, Fromnode: 1, Forecast: []*pb.ForecastPeriod{
		{Start: start.Format(time.RFC3339), End: start.Add(6 * time.Hour).Format(time.RFC3339), SpeedValid: proto.Bool(false), Speed: 50},
	}})
	layer.Publish(time.Now())
	waitForStreets(t, layer.Layer, 1)
	require.Contains(t, layer.get(t, "--format", "json").out, `"speed_valid":false`)
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

// TestForecastEndToEnd checks that forecasts are published to a real broker, read by the feed,
// served as a layer and fetched in every format.
func TestForecastEndToEnd(t *testing.T) {
	k := stores.StartKafka(t, stores.Topic("forecasts", 3))
	file := writeForecasts(t, 50)
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
	file = writeForecasts(t, 25)
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
	cfg.Feed, cfg.Kafka.Brokers = forecasts.FeedKafka, brokers
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

	require.Empty(t, s.get(t, "--quiet").err)

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

	// With --match, matched streets follow the road.
	match := func(i int, state route.State) route.Match {
		return route.Match{
			Street: layer.StreetForecast[i].Street, FromNode: layer.StreetForecast[i].Fromnode, State: state,
			Nodes: []int64{1, 2, 3}, Ways: []int64{7, 7}, Coordinates: [][2]float64{{10, 50}, {10.001, 50}, {10.002, 50}}, NegativeOffset: 30,
		}
	}
	var matches bytes.Buffer
	require.NoError(t, route.WriteMatches(&matches, []route.Match{match(4, route.Matched), match(5, route.Ambiguous)}))
	path := file(t, "city.ndjson", matches.String())
	require.NoError(t, json.Unmarshal([]byte(s.get(t, "--format", "geojson", "--horizon", "30", "--match", path).out), &map30))
	require.Equal(t, [][2]float64{{10, 50}, {10.001, 50}, {10.00158, 50}}, map30.Features[4].Geometry.Coordinates)
	require.Len(t, map30.Features[5].Geometry.Coordinates, 2, "an ambiguous street")
	requireFailure(t, "", "--match is for --format geojson", s.args("--match", path)...)
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
	f("403 GENERAL_FORBIDDEN", "--key", noRightKey)
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

// TestCommandWithoutResponse checks that if the daemon does not respond, the command fails after
// the timeout or an interrupt.
func TestCommandWithoutResponse(t *testing.T) {
	asked := make(chan struct{}, 2)
	daemon := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer daemon.Close()
	args := []string{"forecast", "get", "--url", daemon.URL, "--key", testKey}
	requireFailure(t, "", " within --timeout 1s; increase it, or check the daemon and --url", append(args, "--timeout", "1s")...)
	<-asked

	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errors.New("interrupt signal received"))
	}()
	var out, errs strings.Builder
	require.Equal(t, exitFailed, run(ctx, args, streams{nil, &out, &errs}))
	require.Equal(t, "trafficctl: interrupted (interrupt signal received)\n", errs.String())
}
