package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/trafficctl/internal/forecast"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestForecastWatch checks that watch prints the layer, and then each change, including removed
// streets.
func TestForecastWatch(t *testing.T) {
	s := serveLayer(t)
	street := func(number int32, speed float64) *pb.StreetForecast {
		start := time.Now().UTC().Truncate(time.Hour)
		return &pb.StreetForecast{Street: number, Fromnode: 1, OpenLRcode: fmt.Sprint("code ", number), Forecast: []*pb.ForecastPeriod{{
			Start: start.Format(time.RFC3339), End: start.Add(6 * time.Hour).Format(time.RFC3339), SpeedValid: proto.Bool(true), Speed: speed,
		}}}
	}
	for i := range int32(3) {
		s.Put(street(i+1, float64(10*(i+1))))
	}
	s.Publish(time.Now())
	waitForStreets(t, s.Layer, 3)

	ctx, stop := context.WithCancel(t.Context())
	lines, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"forecast", "watch", "--url", s.url, "--key", testKey, "--part", "street=1,2"}, streams{nil, out, io.Discard})
		out.Close()
	}()
	in := bufio.NewScanner(lines)
	next := func(number int32, speeds ...float64) {
		t.Helper()
		require.True(t, in.Scan())
		var f pb.StreetForecast
		require.NoError(t, protojson.Unmarshal(in.Bytes(), &f), in.Text())
		require.Equal(t, number, f.Street)
		require.Equal(t, fmt.Sprint("code ", number), f.OpenLRcode)
		var got []float64
		for _, p := range f.Forecast {
			got = append(got, p.Speed)
		}
		require.Equal(t, speeds, got)
	}
	next(1, 10)
	next(2, 20)
	s.Put(street(2, 21))
	s.Put(street(3, 31)) // not watched
	s.Publish(time.Now())
	next(2, 21)
	s.Remove(1, 1)
	s.Publish(time.Now())
	next(1)
	stop()
	s.Drain() // what the daemon does before it closes connections
	require.Equal(t, exitDone, <-ended)
}

// TestForecastWatchWholeLayer checks that watch prints the streets that were removed while it could
// not follow the layer, after which it gets the whole layer.
func TestForecastWatchWholeLayer(t *testing.T) {
	response := func(streets ...int32) *forecast.Response {
		r := &forecast.Response{Header: http.Header{"Forecast-Content": {"whole"}}, Layer: &pb.StreetForecastResponse{}}
		for _, street := range streets {
			r.Layer.StreetForecast = append(r.Layer.StreetForecast, &pb.StreetForecast{
				Street: street, Fromnode: 1, OpenLRcode: "code", Forecast: []*pb.ForecastPeriod{{Speed: 1}},
			})
		}
		return r
	}
	known := codes{}
	f := func(want map[int32]bool, streets ...int32) {
		t.Helper()
		r := response(streets...)
		known.complete(r)
		got := map[int32]bool{}
		for _, s := range r.Layer.StreetForecast {
			require.Equal(t, "code", s.OpenLRcode)
			got[s.Street] = len(s.Forecast) > 0
		}
		require.Equal(t, want, got)
	}
	f(map[int32]bool{1: true, 2: true}, 1, 2)
	f(map[int32]bool{1: false, 2: true, 3: true}, 2, 3)
	f(map[int32]bool{2: false, 3: false})
	f(map[int32]bool{})
	require.Empty(t, known)
}

func TestForecastWatchInvalidFlags(t *testing.T) {
	f := func(want string, flags ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"forecast", "watch", "--url", "http://127.0.0.1:1", "--key", "k"}, flags...)...)
	}
	f("--horizon -5 must be", "--horizon", "-5")
	f(`--part "titel=12/2190/1282" must be tile=z/x/y`, "--part", "titel=12/2190/1282")
	f(`--part "%zz" must be tile=z/x/y`, "--part", "%zz")
	f("--timeout at least 2s", "--timeout", "1s")
	f("--wait must be at least 1s", "--wait", "0s")
}

// TestForecastWatchOldDaemon checks that a daemon that does not send Forecast-Version cannot be
// followed.
func TestForecastWatchOldDaemon(t *testing.T) {
	old := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer old.Close()
	requireFailure(t, "", "Forecast-Version", "forecast", "watch", "--url", old.URL, "--key", testKey)
}
