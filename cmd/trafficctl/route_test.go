package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/trafficctl/internal/route"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// routeMatches writes matches of three streets; that of street 3 is ambiguous.
func routeMatches(t *testing.T) (path string) {
	t.Helper()
	var matches []route.Match
	for i := range int64(3) {
		matches = append(matches, route.Match{
			Street: int32(i + 1), FromNode: 7, State: route.Matched, Ways: []int64{100 + i}, Nodes: []int64{10 * i, 10*i + 1},
			Coordinates: [][2]float64{{10, 56}, {10.001, 56}},
		})
	}
	matches[2].State, matches[2].Reason = route.Ambiguous, "two roads"
	var text bytes.Buffer
	require.NoError(t, route.WriteMatches(&text, matches))
	return file(t, "city.ndjson", text.String())
}

// put publishes speeds of streets from 1; 0 closes a street.
func (s served) put(kmh ...float64) {
	start := time.Now().UTC().Truncate(time.Hour)
	for i, v := range kmh {
		s.Put(&pb.StreetForecast{Street: int32(i + 1), Fromnode: 7, Forecast: []*pb.ForecastPeriod{{
			Start: start.Format(time.RFC3339), End: start.Add(6 * time.Hour).Format(time.RFC3339), SpeedValid: proto.Bool(true),
			Speed: v, Closed: proto.Bool(v == 0),
		}}})
	}
	s.Publish(time.Now())
}

// TestRouteFollow checks that the speeds of the real layer reach the file of an engine, and its
// command, as they are published.
func TestRouteFollow(t *testing.T) {
	layer, dir := serveLayer(t), t.TempDir()
	layer.put(50, 0, 30)
	waitForStreets(t, layer.Layer, 3)
	output, runs := filepath.Join(dir, "speeds.csv"), filepath.Join(dir, "runs")
	args := []string{
		"route", "follow", routeMatches(t), "--url", layer.url, "--key", testKey, "--for", "osrm", "--output", output,
		"--run", "cat " + output + " >>" + runs, "--every", "1s", "--timeout", "2s", // the server waits for its last request
	}
	r := requireSuccess(t, "", append(args, "--once")...)
	require.Equal(t, "0,1,50.0\n10,11,0\n", textOf(t, output))
	require.Equal(t, textOf(t, output), textOf(t, runs))
	require.Contains(t, r.err, "2 streets matched, 1 without a match or ambiguous")
	require.Contains(t, r.err, "2 of 3 streets of the layer have a match")
	require.Contains(t, r.err, "wrote 2 speeds; 1 streets are closed")
	require.NoError(t, os.Remove(runs))

	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int)
	var errs bytes.Buffer
	go func() { ended <- run(ctx, args, streams{strings.NewReader(""), &bytes.Buffer{}, &errs}) }()
	exists := func(want string) func() bool {
		return func() bool {
			text, _ := os.ReadFile(runs)
			return strings.HasSuffix(string(text), want)
		}
	}
	require.Eventually(t, exists("0,1,50.0\n10,11,0\n"), 30*time.Second, 10*time.Millisecond)
	layer.put(20, 40, 30)
	require.Eventually(t, exists("0,1,20.0\n10,11,40.0\n"), 30*time.Second, 10*time.Millisecond)
	interrupt()
	require.Equal(t, exitDone, <-ended, errs.String())
}

func TestRouteFollowErrors(t *testing.T) {
	layer, matches := serveLayer(t), routeMatches(t)
	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"route", "follow", matches, "--url", layer.url, "--key", testKey}, args...)...)
	}
	output := filepath.Join(t.TempDir(), "out")
	f(`--for "" must be osrm or valhalla`)
	f("--output is missing", "--for", "osrm")
	f("--tiles is required with --for valhalla", "--for", "valhalla", "--output", output)
	f("--tiles is required with --for valhalla, and only there", "--for", "osrm", "--output", output, "--tiles", output)
	f("--stale-after 1s must be at least 1m", "--for", "osrm", "--output", output, "--stale-after", "1s")
	f("--every 0s must be at least 1s", "--for", "osrm", "--output", output, "--every", "0s")
	f("--horizon -1 must be at least 0", "--for", "osrm", "--output", output, "--horizon", "-1")
	f("cannot read --tiles", "--for", "valhalla", "--output", output, "--tiles", output)
	layer.put(50)
	waitForStreets(t, layer.Layer, 1)
	f("INVALID_PARAMETER", "--for", "osrm", "--output", output, "--horizon", "7")
	f(`cannot run --run "echo no; exit 3": exit status 3`+"\nno", "--for", "osrm", "--output", output, "--once", "--run", "echo no; exit 3")
	requireFailure(t, "", "create the file with trafficctl route match", "route", "follow", output+"x", "--url", layer.url, "--key", testKey,
		"--for", "osrm", "--output", output)
}

func TestRouteTypicalErrors(t *testing.T) {
	layer, matches, dir := serveLayer(t), routeMatches(t), t.TempDir()
	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"route", "typical", matches}, args...)...)
	}
	f("--tiles and --output are required", "--output", dir)
	f("cannot read --tiles", "--output", dir, "--tiles", matches, "--url", layer.url)
}
