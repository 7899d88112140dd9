package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	layerStreets = 100_000
	layerPeriods = 12
	layerRounds  = 3

	memoryReaders  = 8
	memoryRebuilds = 3
)

// network returns forecasts for the given number of streets and periods of 15 minutes.
func (o options) network(ctx context.Context, streets, periods int, from time.Time) ([]*pb.StreetForecast, error) {
	dir, err := os.MkdirTemp("", "trafficd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "forecasts.pb")
	cmd := exec.CommandContext(ctx, o.trafficctl, "forecast", "generate", "--streets", strconv.Itoa(streets),
		"--periods", strconv.Itoa(periods), "--from", from.UTC().Format(time.RFC3339), "--output", file)
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

// quarter returns the start of the current period.
func quarter() time.Time { return time.Now().Truncate(15 * time.Minute) }

// layer is a forecast layer with the daemon's defaults.
type layer struct {
	*layers.Layer
	all    []*pb.StreetForecast
	random *rand.Rand
	etag   string // from the last get
}

// newLayer returns a layer for clients that ask for horizons as protobuf in gzip and, if whole,
// also for the whole layer.
func newLayer(ctx context.Context, all []*pb.StreetForecast, whole bool) (*layer, error) {
	l := &layer{Layer: layers.New(layers.DefaultConfig(), zerolog.Nop()), all: all, random: rand.New(rand.NewPCG(1, 2))}
	l.Prepare([]*contract.Client{mapClient})
	l.Start()
	if whole {
		_, err := l.build(ctx) // without streets
		if err == nil {
			_, err = l.get("", "gzip")
		}
		if err != nil {
			l.Stop()
			return nil, err
		}
	}
	for _, f := range all {
		l.Put(f)
	}
	return l, nil
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
			next.Forecast = append(next.Forecast, &pb.ForecastPeriod{
				Start: p.Start, End: p.End, SpeedValid: proto.Bool(true),
				Speed: float64(100+l.random.IntN(900)) / 10,
			})
		}
		l.Put(next)
	}
	return l.build(ctx)
}

// byDistance sorts forecasts by the distance of their first location reference points from that of
// the first forecast.
func byDistance(all []*pb.StreetForecast) {
	type located struct {
		*pb.StreetForecast
		openlr.Point
	}
	list := make([]located, len(all))
	for i, f := range all {
		list[i].StreetForecast = f
		if line, err := openlr.Decode(f.OpenLRcode); err == nil {
			list[i].Point = line.Points[0]
		}
	}
	middle := list[0].Point
	slices.SortFunc(list, func(a, b located) int {
		return cmp.Compare(math.Hypot(a.Lon-middle.Lon, a.Lat-middle.Lat), math.Hypot(b.Lon-middle.Lon, b.Lat-middle.Lat))
	})
	for i := range list {
		all[i] = list[i].StreetForecast
	}
}

// layerUpdates compares a full build with updates of 1 % of the streets: a district, and every
// hundredth street. It also compares the full build with general-purpose compressors, and measures
// the changes that a client receives when it follows the updates.
func (o options) layerUpdates(ctx context.Context) error {
	all, err := o.network(ctx, layerStreets, layerPeriods, quarter())
	if err != nil {
		return err
	}
	byDistance(all)
	var full, district, scattered []float64
	for round := range layerRounds {
		l, err := newLayer(ctx, all, true)
		if err != nil {
			return err
		}
		first, err := l.build(ctx)
		if err == nil {
			full = append(full, first)
			err = l.updates(ctx, &district, &scattered)
		}
		if err == nil && round == layerRounds-1 {
			if err = o.layerFloor(l, median(full)); err == nil {
				err = o.layerSince(ctx, l)
			}
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

// layerFloor compares a full build of the documents that browsers request with the floor. It also
// compares the sizes of the bodies with those of gzip -6.
func (o options) layerFloor(l *layer, full float64) error {
	floor, zipped, err := l.floor(append(horizons, ""))
	if err != nil {
		return err
	}
	for _, document := range []struct{ query, name string }{{"", "layer_"}, {"?horizon=30", "layer_horizon_"}} {
		plain, err := l.get(document.query, "identity")
		if err != nil {
			return err
		}
		for _, encoding := range []string{"gzip", "zstd"} {
			packed, err := l.get(document.query, encoding)
			if err != nil {
				return err
			}
			o.line(document.name+encoding+"_over_gzip6", float64(len(packed))/float64(zipped[document.query]), "ratio")
			o.line(document.name+encoding+"_over_identity", float64(len(packed))/float64(len(plain)), "ratio")
		}
	}
	o.line("layer_floor_ms", floor, "ms")
	o.line("layer_full_over_floor", full/floor, "ratio")
	return nil
}

// floor returns the CPU time in milliseconds to marshal the documents of these queries and to
// compress each with gzip -6, and their compressed sizes.
func (l *layer) floor(queries []string) (total float64, sizes map[string]int, err error) {
	sizes = map[string]int{}
	for _, query := range queries {
		plain, err := l.get(query, "identity")
		if err != nil {
			return 0, nil, err
		}
		var message pb.StreetForecastResponse
		if err := proto.Unmarshal(plain, &message); err != nil {
			return 0, nil, err
		}
		before := ownCPU()
		if _, err := proto.Marshal(&message); err != nil {
			return 0, nil, err
		}
		size, took, err := gzip6(plain)
		if err != nil {
			return 0, nil, err
		}
		sizes[query] = size
		total += float64((ownCPU() - before + took).Microseconds()) / 1000
	}
	return total, sizes, nil
}

// horizons lists the queries for the default horizons.
var horizons = []string{"?horizon=0", "?horizon=15", "?horizon=30", "?horizon=45", "?horizon=60"}

// layerSince prints the size of the changes after an update of scattered streets, for a client that
// follows the whole layer and for one that follows a horizon, as the map does.
func (o options) layerSince(ctx context.Context, l *layer) error {
	scopes := []struct{ query, name string }{{"", "layer_since_1pct"}, {"?horizon=30", "layer_since_1pct_horizon"}}
	var etags []string
	for _, s := range scopes {
		if _, err := l.get(s.query, "gzip"); err != nil {
			return err
		}
		etags = append(etags, l.etag)
	}
	if _, err := l.update(ctx, func(i int) int { return i * 100 }); err != nil {
		return err
	}
	for i, s := range scopes {
		separator := "?"
		if s.query != "" {
			separator = "&"
		}
		for _, encoding := range []string{"gzip", "zstd"} {
			changed, err := l.get(s.query+separator+"since="+url.QueryEscape(etags[i]), encoding)
			if err != nil {
				return err
			}
			name := s.name
			if encoding == "zstd" {
				name += "_zstd"
			}
			o.line(name+"_kb", float64(len(changed))/1000, "kB")
		}
	}
	return nil
}

// gzip6 returns the compressed size and the CPU time of gzip -6.
func gzip6(plain []byte) (size int, took time.Duration, err error) {
	cmd := exec.Command("gzip", "-6", "-c")
	cmd.Stdin = bytes.NewReader(plain)
	var out counter
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("gzip -6: %w", err)
	}
	return int(out), cmd.ProcessState.UserTime(), nil
}

// counter counts the bytes written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// layerTurns measures the turns for clients that ask for horizons only, and for those that also ask
// for the whole layer.
func (o options) layerTurns(ctx context.Context) error {
	if err := o.layerTurn(ctx, "layer_", false); err != nil {
		return err
	}
	return o.layerTurn(ctx, "layer_whole_", true)
}

// layerTurn measures the CPU time of a minute in which nothing changes and of one in which a period
// ends, including the work done in advance.
func (o options) layerTurn(ctx context.Context, prefix string, whole bool) error {
	turn := time.Now().Truncate(time.Minute).Add(3 * time.Minute) // when a period ends
	if time.Until(turn) < 140*time.Second {                       // leave time for the full build and its garbage collection
		turn = turn.Add(time.Minute)
	}
	all, err := o.network(ctx, layerStreets, layerPeriods, turn.Add(-15*time.Minute))
	if err != nil {
		return err
	}
	l, err := newLayer(ctx, all, whole)
	if err != nil {
		return err
	}
	defer l.Stop()
	full, err := l.build(ctx)
	if err != nil {
		return err
	}
	l.all = nil // a million small objects, which the garbage collector would mark and which a daemon does not have
	for _, name := range []string{"minute_turn", "quarter_turn"} {
		if name == "minute_turn" {
			if err := pause(ctx, time.Until(turn.Add(-time.Minute-40*time.Second))); err != nil {
				return err
			}
			debug.FreeOSMemory() // otherwise Go returns the garbage of this program's earlier work during one of the minutes
		}
		before := ownCPU()
		if err := pause(ctx, time.Until(turn.Add(-40*time.Second))); err != nil {
			return err
		}
		if name == "quarter_turn" {
			if err := pause(ctx, time.Until(turn.Add(15*time.Second))); err != nil {
				return err
			}
		}
		took := float64((ownCPU() - before).Microseconds()) / 1000
		o.line(prefix+name+"_ms", took, "ms")
		o.line(prefix+name+"_over_full", took/full, "ratio")
		if name == "quarter_turn" {
			queries := horizons
			if whole {
				queries = append(queries, "")
			}
			floor, _, err := l.floor(queries)
			if err != nil {
				return err
			}
			o.line(prefix+name+"_over_floor", took/floor, "ratio")
		}
	}
	return nil
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (l *layer) updates(ctx context.Context, district, scattered *[]float64) error {
	for round := range 3 {
		took, err := l.update(ctx, func(i int) int { return i })
		if err != nil {
			return err
		}
		*district = append(*district, took)
		if took, err = l.update(ctx, func(i int) int { return i*100 + round }); err != nil {
			return err
		}
		*scattered = append(*scattered, took)
	}
	return nil
}

func (l *layer) get(query, encoding string) ([]byte, error) {
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.SetRequestURI(layers.Path + query)
	ctx.Request.Header.Set(fasthttp.HeaderAcceptEncoding, encoding)
	if _, err := l.Handle(mapClient, ctx); err != nil {
		return nil, fmt.Errorf("cannot get the layer: %w", err)
	}
	for name, value := range ctx.Response.Header.All() {
		if string(name) == fasthttp.HeaderETag { // Peek looks for Etag
			l.etag = string(value)
		}
	}
	return bytes.Clone(ctx.Response.Body()), nil
}

// layerMemory compares the daemon's peak resident size, while the whole layer changes and clients
// read it, with the size of all bodies.
func (o options) layerMemory(ctx context.Context) error {
	all, err := o.network(ctx, layerStreets, layerPeriods, quarter())
	if err != nil {
		return err
	}
	d, err := o.layerDaemon(ctx, all)
	if err != nil {
		return err
	}
	defer d.stop()
	for _, query := range append([]string{""}, horizons...) {
		if err := d.get(ctx, query); err != nil {
			return err
		}
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	steady, err := d.rssMB()
	if err != nil {
		return err
	}
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
	o.line("layer_rss_steady_mb", steady, "MB")
	o.line("layer_rss_peak_mb", peak, "MB")
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

// get requests the layer as browsers do.
func (d *daemon) get(ctx context.Context, query string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.API+layers.Path+query, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "apiKey "+benchKey)
	req.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// read requests the layer repeatedly. The reader's number determines the horizon.
func (d *daemon) read(ctx context.Context, reader int) {
	for ctx.Err() == nil {
		_ = d.get(ctx, []string{"", "?horizon=30"}[reader%2]) // it may be interrupted
		time.Sleep(50 * time.Millisecond)                     // leave CPU time for the daemon
	}
}
