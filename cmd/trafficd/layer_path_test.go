package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
)

// layerServer is the way of a layer's readers as the daemon wires it, in this process.
func layerServer(t *testing.T) (*layers.Layer, net.Addr) {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Listen, cfg.DrainGrace = "127.0.0.1:0", 0
	cfg.Keys = []api.KeyEntry{{Name: "map", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("map-key"))), ProductInstance: "city", Rights: []string{"forecast"}}}
	keys, err := api.OpenKeyring(cfg, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(keys.Close)
	layer := layers.New(layers.DefaultConfig(), zerolog.Nop())
	keys.BeforeUse(layer.Prepare)
	server, err := api.New(cfg, keys, []api.Route{{Path: layers.Path, Methods: layers.Methods, Right: batch.RightForecast, Endpoint: layer}}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, server.Start())
	layer.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
		layer.Stop()
	})
	return layer, server.Addr()
}

// streetsAt is a layer's worth of streets that all have this speed from now on.
func streetsAt(n int, speed float64) []*pb.StreetForecast {
	list := make([]*pb.StreetForecast, 0, n)
	for street := range int32(n) {
		f := &pb.StreetForecast{Street: street + 1, Fromnode: 1, OpenLRcode: "CwOiYCUMnQkJAP+/ABQBCg=="}
		from := time.Now().UTC().Truncate(15 * time.Minute)
		for range 6 {
			to := from.Add(15 * time.Minute)
			f.Forecast = append(f.Forecast, &pb.ForecastPeriod{Start: from.Format(time.RFC3339), End: to.Format(time.RFC3339), SpeedValid: true, Speed: speed})
			from = to
		}
		list = append(list, f)
	}
	return list
}

// A GET of the layer allocates nothing, from the socket to the socket: key, rates, negotiation,
// headers and all.
func TestLayerPathAllocatesNothing(t *testing.T) {
	layer, addr := layerServer(t)
	layer.Replace(streetsAt(5000, 50)) // several pages
	layer.Publish(time.Now())
	require.Eventually(t, func() bool { return layer.Status(time.Now()).Published }, time.Minute, time.Millisecond)
	conn, err := net.Dial("tcp", addr.String())
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
		const n = 1000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			get()
		}
		runtime.ReadMemStats(&after)
		allocs := float64(after.Mallocs-before.Mallocs) / n
		t.Logf("%d %q: %.3f allocations", status, headers, allocs)
		require.Less(t, allocs, 0.5, "%d %q", status, headers)
	}
	f("Accept-Encoding: gzip, deflate, br, zstd\r\n", 200)
	f("Accept: application/json\r\n", 200)
	f("Range: bytes=100-100000\r\n", 206)
	f("If-None-Match: *\r\n", 304)
}
