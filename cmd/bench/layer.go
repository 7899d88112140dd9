package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	layerStreets = 100_000
	layerPeriods = 5
	layerRounds  = 5

	memoryReaders  = 8
	memoryRebuilds = 3
)

// network returns forecasts for the given number of streets, starting with the current period.
func (o options) network(ctx context.Context, streets int) ([]*pb.StreetForecast, error) {
	dir, err := os.MkdirTemp("", "trafficd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "forecasts.pb")
	cmd := exec.CommandContext(ctx, o.trafficctl, "forecast", "generate", "--streets", strconv.Itoa(streets),
		"--periods", strconv.Itoa(layerPeriods), "--from", time.Now().UTC().Truncate(15*time.Minute).Format(time.RFC3339), "--output", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot generate forecasts with %s: %w: %s", o.trafficctl, err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all pb.StreetForecastResponse
	if err := proto.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("cannot decode the generated forecasts: %w", err)
	}
	return all.StreetForecast, nil
}

// layer is a forecast layer as in the daemon, with all horizons and formats.
type layer struct {
	*layers.Layer
	all    []*pb.StreetForecast
	random *rand.Rand
}

func newLayer(all []*pb.StreetForecast) *layer {
	l := &layer{Layer: layers.New(layers.DefaultConfig(), zerolog.Nop()), all: all, random: rand.New(rand.NewPCG(1, 2))}
	l.Prepare([]*contract.Client{mapClient})
	l.Replace(all)
	l.Start()
	return l
}

var mapClient = &contract.Client{Name: "map", Rights: contract.RightForecast, Zone: time.UTC}

// build publishes pending changes and returns the CPU time of the build in milliseconds.
func (l *layer) build(ctx context.Context) (float64, error) {
	wanted := l.Status(time.Now()).Builds + 1
	before := ownCPU()
	l.Publish(time.Now())
	for l.Status(time.Now()).Builds < wanted {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return float64((ownCPU() - before).Microseconds()) / 1000, nil
}

// update changes the speeds of 1 % of the streets, as a feed does, and builds.
func (l *layer) update(ctx context.Context, which func(i int) int) (float64, error) {
	for i := range layerStreets / 100 {
		f := l.all[which(i)]
		next := &pb.StreetForecast{Street: f.Street, Fromnode: f.Fromnode, OpenLRcode: f.OpenLRcode}
		for _, p := range f.Forecast {
			next.Forecast = append(next.Forecast, &pb.ForecastPeriod{Start: p.Start, End: p.End, SpeedValid: proto.Bool(true), Speed: float64(100+l.random.IntN(900)) / 10})
		}
		l.Put(next)
	}
	return l.build(ctx)
}

// layerUpdates compares a full build with updates of 1 % of the streets: a contiguous range, and every hundredth street.
func (o options) layerUpdates(ctx context.Context) error {
	all, err := o.network(ctx, layerStreets)
	if err != nil {
		return err
	}
	var full, district, scattered []float64
	for range layerRounds {
		l := newLayer(all)
		first, err := l.build(ctx)
		if err == nil {
			full = append(full, first)
			err = l.updates(ctx, &district, &scattered)
		}
		l.Stop()
		if err != nil {
			return err
		}
	}
	o.line("layer_full_ms", median(full), "ms")
	o.line("layer_update_1pct_ms", median(district), "ms")
	o.line("layer_update_1pct_over_full", median(district)/median(full), "ratio")
	o.line("layer_update_1pct_scattered_ms", median(scattered), "ms")
	o.line("layer_update_1pct_scattered_over_full", median(scattered)/median(full), "ratio")
	return nil
}

func (l *layer) updates(ctx context.Context, district, scattered *[]float64) error {
	for range 3 {
		from := l.random.IntN(layerStreets * 99 / 100)
		took, err := l.update(ctx, func(i int) int { return from + i })
		if err != nil {
			return err
		}
		*district = append(*district, took)
		if took, err = l.update(ctx, func(i int) int { return i*100 + from%100 }); err != nil {
			return err
		}
		*scattered = append(*scattered, took)
	}
	return nil
}

// layerSizes compares the sizes of the compressed bodies with that of the layer compressed in one piece.
func (o options) layerSizes(ctx context.Context) error {
	all, err := o.network(ctx, layerStreets)
	if err != nil {
		return err
	}
	l := newLayer(all)
	defer l.Stop()
	if _, err := l.build(ctx); err != nil {
		return err
	}
	plain, err := l.get("identity")
	if err != nil {
		return err
	}
	for _, whole := range []struct {
		encoding string
		size     int
	}{{"gzip", gzipSize(plain)}, {"zstd", zstdSize(plain)}} {
		packed, err := l.get(whole.encoding)
		if err != nil {
			return err
		}
		o.line("layer_"+whole.encoding+"_over_whole", float64(len(packed))/float64(whole.size), "ratio")
		o.line("layer_"+whole.encoding+"_over_identity", float64(len(packed))/float64(len(plain)), "ratio")
	}
	return nil
}

func (l *layer) get(encoding string) ([]byte, error) {
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.SetRequestURI(layers.Path)
	ctx.Request.Header.Set(fasthttp.HeaderAcceptEncoding, encoding)
	if _, err := l.Handle(mapClient, ctx); err != nil {
		return nil, fmt.Errorf("cannot get the layer: %w", err)
	}
	return bytes.Clone(ctx.Response.Body()), nil
}

// gzipSize returns the size at gzip's default level.
func gzipSize(plain []byte) int {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain)
	_ = w.Close() // writing to memory cannot fail
	return out.Len()
}

// zstdSize returns the size at zstd's default level.
func zstdSize(plain []byte) int {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are valid
	}
	return len(w.EncodeAll(plain, nil))
}

// layerMemory compares the daemon's peak resident size, while the whole layer changes and clients read it, with the size of
// all bodies.
func (o options) layerMemory(ctx context.Context) error {
	all, err := o.network(ctx, layerStreets)
	if err != nil {
		return err
	}
	d, err := o.layerDaemon(ctx, all)
	if err != nil {
		return err
	}
	defer d.stop()
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for i := range memoryReaders {
		readers.Go(func() { d.read(reading, i) })
	}
	if err := d.rebuild(ctx, all); err != nil {
		return err
	}
	bodies, err := d.metric(ctx, "trafficd_layers_body_bytes")
	if err != nil {
		return err
	}
	peak, err := d.peakMB()
	if err != nil {
		return err
	}
	o.line("layer_bodies_mb", bodies/1e6, "MB")
	o.line("layer_rss_mb", peak, "MB")
	o.line("layer_rss_over_bodies", peak/(bodies/1e6), "ratio")
	return nil
}

// rebuild changes the whole layer several times. It resets the peak resident size first.
func (d *daemon) rebuild(ctx context.Context, all []*pb.StreetForecast) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.PID()), []byte("5"), 0); err != nil {
		return fmt.Errorf("cannot reset the daemon's peak resident size: %w", err)
	}
	for range memoryRebuilds {
		builds, err := d.metric(ctx, "trafficd_layers_builds_total")
		if err != nil {
			return err
		}
		for _, f := range all {
			for _, p := range f.Forecast {
				p.Speed++
			}
		}
		if err := d.publish(all); err != nil {
			return err
		}
		if err := d.served(ctx, builds); err != nil {
			return err
		}
	}
	return nil
}

// read requests the layer repeatedly. The reader's number determines the horizon and the encoding.
func (d *daemon) read(ctx context.Context, reader int) {
	url := "http://" + d.API + layers.Path + []string{"", "?horizon=30"}[reader%2]
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "apiKey "+benchKey)
		req.Header.Set("Accept-Encoding", []string{"identity", "gzip", "zstd"}[reader%3])
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // it may be interrupted
			resp.Body.Close()
		}
		time.Sleep(50 * time.Millisecond) // leave CPU time for the daemon
	}
}
