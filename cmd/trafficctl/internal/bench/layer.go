package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	layerStreets = 100_000
	layerPeriods = 5
	layerRounds  = 5
)

// RunLayer measures the forecast layer: its updates, its size, its memory, its serving.
func RunLayer(ctx context.Context, o Options) error {
	for _, measure := range []func(context.Context) error{o.layerUpdates, o.layerSizes, o.layerMemory, o.layerServing} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// network makes forecasts for so many streets, from the start of the current period.
func network(streets, periods int) ([]*pb.StreetForecast, error) {
	cfg := forecast.DefaultConfig()
	cfg.Streets, cfg.Periods, cfg.From = streets, periods, time.Now().Truncate(15*time.Minute)
	all, err := forecast.Generate(cfg, nil)
	if err != nil {
		return nil, err
	}
	list := make([]*pb.StreetForecast, 0, streets)
	for f := range all {
		list = append(list, f)
	}
	return list, nil
}

// layer is a forecast layer as the daemon has it, with all its horizons and formats.
type layer struct {
	*layers.Layer
	all    []*pb.StreetForecast
	random *rand.Rand
}

func newLayer() (*layer, error) {
	all, err := network(layerStreets, layerPeriods)
	if err != nil {
		return nil, err
	}
	l := &layer{Layer: layers.New(layers.DefaultConfig(), zerolog.Nop()), all: all, random: rand.New(rand.NewPCG(1, 2))}
	l.Prepare([]*contract.Client{mapClient})
	l.Replace(all)
	l.Start()
	return l, nil
}

var mapClient = &contract.Client{Name: "map", Rights: contract.RightForecast, Zone: time.UTC}

// build publishes what was put, and gives the CPU time of the build in milliseconds.
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

// update gives other speeds to the streets with these numbers, as a feed does, and builds.
func (l *layer) update(ctx context.Context, which func(i int) int) (float64, error) {
	for i := range layerStreets / 100 {
		f := l.all[which(i)]
		next := &pb.StreetForecast{Street: f.Street, Fromnode: f.Fromnode, OpenLRcode: f.OpenLRcode}
		for _, p := range f.Forecast {
			next.Forecast = append(next.Forecast, &pb.ForecastPeriod{Start: p.Start, End: p.End, SpeedValid: true, Speed: float64(100+l.random.IntN(900)) / 10})
		}
		l.Put(next)
	}
	return l.build(ctx)
}

// layerUpdates compares a build of everything with updates of one street in a hundred:
// those of a district, and every hundredth of the whole layer.
func (o Options) layerUpdates(ctx context.Context) error {
	var full, district, scattered []float64
	for range layerRounds {
		l, err := newLayer()
		if err != nil {
			return err
		}
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

// layerSizes compares the compressed bodies with the layer compressed in one go.
func (o Options) layerSizes(ctx context.Context) error {
	l, err := newLayer()
	if err != nil {
		return err
	}
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

// gzipSize is that of gzip's default level.
func gzipSize(plain []byte) int {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain)
	_ = w.Close() // into memory: it cannot fail
	return out.Len()
}

// zstdSize is that of zstd's default level.
func zstdSize(plain []byte) int {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // no settings, nothing to be wrong
	}
	return len(w.EncodeAll(plain, nil))
}
