package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
)

// layerServer serves a layer in this process, wired as in the daemon.
func layerServer(t *testing.T, layerConfig layers.Config) (*layers.Layer, string) {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Listen, cfg.DrainGrace = "127.0.0.1:0", 0
	cfg.Keys = []api.KeyEntry{{Name: "map", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("map-key"))), ProductInstance: "city", Rights: []string{"forecast"}}}
	keys, err := api.OpenKeyring(cfg, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(keys.Close)
	layer := layers.New(layerConfig, zerolog.Nop())
	keys.BeforeUse(layer.Prepare)
	server, err := api.New(cfg, keys, []api.Route{{Path: layers.Path, Methods: layers.Methods, Right: contract.RightForecast, Endpoint: layer}}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, server.Start())
	layer.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
		layer.Stop()
	})
	return layer, server.Addr().String()
}

// streetsAt returns streets that all have this speed from now on.
func streetsAt(n int, speed float64) []*pb.StreetForecast {
	list := make([]*pb.StreetForecast, 0, n)
	for street := range int32(n) {
		f := &pb.StreetForecast{Street: street + 1, Fromnode: 1, OpenLRcode: "CwOiYCUMnQkJAP+/ABQBCg=="}
		from := time.Now().UTC().Truncate(15 * time.Minute)
		for range 12 {
			to := from.Add(15 * time.Minute)
			f.Forecast = append(f.Forecast, &pb.ForecastPeriod{Start: from.Format(time.RFC3339), End: to.Format(time.RFC3339), SpeedValid: proto.Bool(true), Speed: speed})
			from = to
		}
		list = append(list, f)
	}
	return list
}

// TestReadersDuringRebuilds checks that while the layer is rebuilt hundreds of times, readers of
// all its forms get complete responses of one generation (its speeds all equal its number), and
// never an older generation than before.
func TestReadersDuringRebuilds(t *testing.T) {
	f := func(streets, rebuilds int) {
		t.Helper()
		cfg := layers.DefaultConfig()
		cfg.BuildInterval = 0 // immediately
		layer, addr := layerServer(t, cfg)
		build := func(generation int) {
			builds := layer.Status(time.Now()).Builds
			layer.Clear()
			for _, f := range streetsAt(streets, float64(generation)) {
				layer.Put(f)
			}
			layer.Publish(time.Now())
			require.Eventually(t, func() bool { return layer.Status(time.Now()).Builds > builds }, time.Minute, 100*time.Microsecond)
		}
		build(1)
		done := make(chan struct{})
		var readers sync.WaitGroup
		responses := make([]atomic.Int64, 6)
		for reader := range responses {
			readers.Go(func() { readLayer(t, addr, reader, streets, &responses[reader], done) })
		}
		fewest := func() int64 {
			n := int64(math.MaxInt64)
			for i := range responses {
				n = min(n, responses[i].Load())
			}
			return n
		}
		generation := 1
		for (generation < rebuilds || fewest() <= 10) && !t.Failed() { // a reader may have to wait on a busy machine
			generation++
			build(generation)
		}
		close(done)
		readers.Wait()
		t.Logf("%d streets, %d rebuilds, at least %d responses to each reader", streets, generation, fewest())
	}
	f(20, 200)
	f(2000, 10) // several pieces
}

// readLayer requests one form after the other until done, or until a response is wrong, and counts
// the responses. Even readers ask for protobuf, odd ones for JSON.
func readLayer(t *testing.T, addr string, reader, streets int, responses *atomic.Int64, done <-chan struct{}) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	accept := []string{"application/x-protobuf", "application/json"}[reader%2]
	latest := map[string]float64{}
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond): // leave time for the builds
		}
		query := []string{"", "?horizon=0", "?horizon=15", "?horizon=30", "?horizon=45", "?horizon=60"}[(n+reader)%6]
		encoding := []string{"identity", "gzip"}[n%2]
		generation, err := generationOf(client, "http://"+addr+layers.Path+query, accept, encoding, streets)
		if form := query + encoding; err != nil || generation < latest[form] {
			t.Errorf("%s %s %s: got generation %v after %v: %v", query, accept, encoding, generation, latest[form], err)
			return
		}
		latest[query+encoding] = generation
		responses.Add(1)
	}
}

// generationOf returns the speed of all streets in a layer.
func generationOf(client *http.Client, url, accept, encoding string, streets int) (float64, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "apiKey map-key")
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", encoding)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := unpacked(resp)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %.200s: %w", resp.Status, body, err)
	}
	var layer pb.StreetForecastResponse
	if accept == "application/json" {
		err = protojson.Unmarshal(body, &layer)
	} else {
		err = proto.Unmarshal(body, &layer)
	}
	if err != nil || len(layer.StreetForecast) != streets {
		return 0, fmt.Errorf("got %d streets, want %d: %w", len(layer.StreetForecast), streets, err)
	}
	generation := layer.StreetForecast[0].Forecast[0].Speed
	for _, s := range layer.StreetForecast {
		for _, p := range s.Forecast {
			if p.Speed != generation {
				return 0, fmt.Errorf("speeds of the generations %v and %v in one layer", generation, p.Speed)
			}
		}
	}
	return generation, nil
}

func unpacked(resp *http.Response) ([]byte, error) {
	packed, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return packed, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return io.ReadAll(z)
}

// TestLayerPathAllocatesNothing checks that a GET of the layer allocates nothing, from socket to
// socket, including the key check, rate limits, negotiation and headers.
func TestLayerPathAllocatesNothing(t *testing.T) {
	layer, addr := layerServer(t, layers.DefaultConfig())
	for _, f := range streetsAt(5000, 50) { // several pages
		layer.Put(f)
	}
	layer.Publish(time.Now())
	require.Eventually(t, func() bool { return layer.Status(time.Now()).Published }, time.Minute, time.Millisecond)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	f := func(headers string, status int) {
		t.Helper()
		request := []byte("GET " + layers.Path + " HTTP/1.1\r\nHost: h\r\nAuthorization: apiKey map-key\r\n" + headers + "\r\n")
		var h fasthttp.ResponseHeader
		get := func() {
			_, err := conn.Write(request)
			require.NoError(t, err)
			require.NoError(t, h.Read(in))
			_, err = in.Discard(max(0, h.ContentLength()))
			require.NoError(t, err)
		}
		for range 100 {
			get()
		}
		require.Equal(t, status, h.StatusCode())
		const n = 200
		allocs := math.Inf(1)
		for range 5 { // a build at the turn of a minute allocates
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range n {
				get()
			}
			runtime.ReadMemStats(&after)
			allocs = min(allocs, float64(after.Mallocs-before.Mallocs)/n)
		}
		t.Logf("%d %q: %.3f allocations", status, headers, allocs)
		require.Less(t, allocs, 0.5, "%d %q", status, headers)
	}
	f("Accept-Encoding: gzip, deflate, br, zstd\r\n", 200)
	f("Accept: application/json\r\n", 200)
	f("Range: bytes=100-100000\r\n", 206)
	f("If-None-Match: *\r\n", 304)
}
