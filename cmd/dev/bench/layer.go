package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/cmd/dev/traffic/town"
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

// network generates forecasts for the given number of streets, each with the given number of
// 15-minute periods.
func network(streets, periods int, from time.Time) []*pb.StreetForecast {
	c := town.DefaultForecastConfig()
	c.Streets, c.Periods, c.From = streets, periods, from.UTC()
	return slices.Collect(must.Get(town.Forecasts(c)))
}

// quarter returns the start of the current period.
func quarter() time.Time { return time.Now().Truncate(15 * time.Minute) }

// layer is a forecast layer with the default configuration.
type layer struct {
	*layers.Layer
	all    []*pb.StreetForecast
	random *rand.Rand
	etag   string // from the last response to get
}

// newLayer returns a running layer to which all forecasts are added, but not published. It builds
// the horizons as protobuf in gzip and, if whole is true, the whole layer too.
func newLayer(ctx context.Context, all []*pb.StreetForecast, whole bool) *layer {
	l := &layer{Layer: layers.New(layers.DefaultConfig(), zerolog.Nop()), all: all, random: rand.New(rand.NewPCG(1, 2))}
	l.Prepare([]*contract.Client{mapClient})
	l.Start()
	if whole {
		l.build(ctx) // an empty layer
		l.get("", "gzip")
	}
	for _, f := range all {
		l.Put(f)
	}
	return l
}

var mapClient = &contract.Client{Name: "map", Rights: contract.RightForecast, Zone: time.UTC}

// build publishes pending changes and returns the CPU time of the build in milliseconds.
func (l *layer) build(ctx context.Context) float64 {
	wanted := l.Status(time.Now()).Builds + 1
	before := ownCPU()
	l.Publish(time.Now())
	for l.Status(time.Now()).Builds < wanted {
		pause(ctx, time.Millisecond)
	}
	return milliseconds(ownCPU() - before)
}

// update changes the speeds of 1% of the streets, those with the indexes first, first+step and so
// on, and returns the CPU time of the build in milliseconds.
func (l *layer) update(ctx context.Context, first, step int) float64 {
	for i := range layerStreets / 100 {
		f := l.all[first+i*step]
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

// sortByDistance sorts forecasts by the distance of their first location reference point from that
// of the first forecast.
func sortByDistance(all []*pb.StreetForecast) {
	points := make(map[*pb.StreetForecast]openlr.Point, len(all))
	for _, f := range all {
		if line, err := openlr.Decode(f.OpenLRcode); err == nil {
			points[f] = line.Points[0]
		}
	}
	middle := points[all[0]]
	distance := func(f *pb.StreetForecast) float64 {
		return math.Hypot(points[f].Lon-middle.Lon, points[f].Lat-middle.Lat)
	}
	slices.SortFunc(all, func(a, b *pb.StreetForecast) int { return cmp.Compare(distance(a), distance(b)) })
}

// layerUpdates compares a full build with updates of 1% of the streets: of neighbouring streets and
// of every hundredth street. It also compares the full build with gzip -6, and measures the size of
// the changes that a client receives if it follows the layer.
func (o options) layerUpdates(ctx context.Context) {
	all := network(layerStreets, layerPeriods, quarter())
	sortByDistance(all)
	var full, district, scattered []float64
	for round := range layerRounds {
		l := newLayer(ctx, all, true)
		full = append(full, l.build(ctx))
		for i := range 3 {
			district = append(district, l.update(ctx, 0, 1))
			scattered = append(scattered, l.update(ctx, i, 100))
		}
		if round == layerRounds-1 {
			o.layerFloor(l, median(full))
			o.layerSince(ctx, l)
		}
		l.Stop()
	}
	o.line("layer_full_ms", median(full), "ms")
	o.line("layer_update_1pct_ms", median(district), "ms")
	o.line("layer_update_1pct_over_full", median(district)/median(full), "ratio")
	o.line("layer_update_1pct_scattered_ms", median(scattered), "ms")
	o.line("layer_update_1pct_scattered_over_full", median(scattered)/median(full), "ratio")
}

// layerFloor compares full, the CPU time of a full build in milliseconds, with the floor for the
// documents that browsers request, and the sizes of the bodies with those that gzip -6 produces.
func (o options) layerFloor(l *layer, full float64) {
	floor, zipped := l.floor(append(horizons, ""))
	for _, document := range []struct{ query, name string }{{"", "layer_"}, {"?horizon=30", "layer_horizon_"}} {
		plain, packed := l.get(document.query, "identity"), l.get(document.query, "gzip")
		o.line(document.name+"gzip_over_gzip6", float64(len(packed))/float64(zipped[document.query]), "ratio")
		o.line(document.name+"gzip_over_identity", float64(len(packed))/float64(len(plain)), "ratio")
	}
	o.line("layer_floor_ms", floor, "ms")
	o.line("layer_full_over_floor", full/floor, "ratio")
}

// floor returns the CPU time in milliseconds to marshal the documents for the given queries and to
// compress each with gzip -6. It also returns the compressed size of each, by query.
func (l *layer) floor(queries []string) (total float64, sizes map[string]int) {
	sizes = map[string]int{}
	for _, query := range queries {
		plain := l.get(query, "identity")
		var message pb.StreetForecastResponse
		must.Do(proto.Unmarshal(plain, &message))
		before := ownCPU()
		must.Get(proto.Marshal(&message))
		size, took := gzip6(plain)
		sizes[query] = size
		total += milliseconds(ownCPU() - before + took)
	}
	return total, sizes
}

var horizons = []string{"?horizon=0", "?horizon=15", "?horizon=30", "?horizon=45", "?horizon=60"}

// layerSince prints the size of the changes after an update of scattered streets, for a client that
// follows the whole layer and for one that follows a horizon, as the map does.
func (o options) layerSince(ctx context.Context, l *layer) {
	scopes := []struct{ query, name string }{{"?", "layer_since_1pct"}, {"?horizon=30&", "layer_since_1pct_horizon"}}
	var etags []string
	for _, s := range scopes {
		l.get(s.query, "gzip")
		etags = append(etags, l.etag)
	}
	l.update(ctx, 0, 100)
	for i, s := range scopes {
		query := s.query + "since=" + url.QueryEscape(etags[i])
		o.line(s.name+"_kb", float64(len(l.get(query, "gzip")))/1000, "kB")
	}
}

func gzip6(plain []byte) (size int, took time.Duration) {
	cmd := exec.Command("gzip", "-6", "-c")
	cmd.Stdin = bytes.NewReader(plain)
	packed, err := cmd.Output()
	if err != nil {
		must.Do(fmt.Errorf("cannot run gzip -6: %w", err))
	}
	return len(packed), cmd.ProcessState.UserTime()
}

// layerTurns measures the CPU time at the ends of minutes and periods, first for clients that
// request only horizons, and then for clients that also request the whole layer.
func (o options) layerTurns(ctx context.Context) {
	o.layerTurn(ctx, "layer_", horizons)
	o.layerTurn(ctx, "layer_whole_", append(horizons, ""))
}

// layerTurn measures the CPU time of a minute without changes and of one in which a period ends.
// Clients request the documents for the given queries.
func (o options) layerTurn(ctx context.Context, prefix string, queries []string) {
	turn := time.Now().Truncate(time.Minute).Add(3 * time.Minute) // the end of a period
	if time.Until(turn) < 140*time.Second {                       // leave time for the full build and its garbage collection
		turn = turn.Add(time.Minute)
	}
	all := network(layerStreets, layerPeriods, turn.Add(-15*time.Minute))
	l := newLayer(ctx, all, slices.Contains(queries, ""))
	defer l.Stop()
	full := l.build(ctx)
	l.all = nil // spares the garbage collector a million small objects that a daemon does not have
	pause(ctx, time.Until(turn.Add(-time.Minute-40*time.Second)))
	debug.FreeOSMemory() // Go would return the memory of earlier benchmarks during one of the minutes
	measure := func(name string, until time.Time) (took float64) {
		before := ownCPU()
		pause(ctx, time.Until(until))
		took = milliseconds(ownCPU() - before)
		o.line(prefix+name+"_ms", took, "ms")
		o.line(prefix+name+"_over_full", took/full, "ratio")
		return took
	}
	measure("minute_turn", turn.Add(-40*time.Second))
	took := measure("quarter_turn", turn.Add(15*time.Second))
	floor, _ := l.floor(queries)
	o.line(prefix+"quarter_turn_over_floor", took/floor, "ratio")
}

// pause waits for d. If ctx is done first, it reports the cause through package must.
func pause(ctx context.Context, d time.Duration) {
	if !launch.Sleep(ctx, d) {
		must.Do(context.Cause(ctx))
	}
}

// get returns the response body of a request to the layer, and sets l.etag.
func (l *layer) get(query, encoding string) []byte {
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.SetRequestURI(layers.Path + query)
	ctx.Request.Header.Set(fasthttp.HeaderAcceptEncoding, encoding)
	must.Get(l.Handle(mapClient, ctx))
	for name, value := range ctx.Response.Header.All() {
		if string(name) == fasthttp.HeaderETag { // Peek looks for Etag
			l.etag = string(value)
		}
	}
	return bytes.Clone(ctx.Response.Body())
}

// layerMemory measures the daemon's resident size when idle, and its peak while clients read the
// layer and all streets change.
func (o options) layerMemory(ctx context.Context) {
	all := network(layerStreets, layerPeriods, quarter())
	d := o.layerDaemon(ctx, all)
	defer d.stop()
	for _, query := range append(horizons, "") {
		must.Do(d.get(ctx, query))
	}
	pause(ctx, 10*time.Second)
	steady := d.rssMB()
	defer inBackground(ctx, memoryReaders, func(ctx context.Context, i int) {
		for ctx.Err() == nil {
			_ = d.get(ctx, []string{"", "?horizon=30"}[i%2]) // fails when ctx is done
			time.Sleep(50 * time.Millisecond)                // leave CPU time for the daemon
		}
	})()
	d.rebuild(ctx, all)
	o.line("layer_bodies_mb", must.Get(d.metric(ctx, "trafficd_layers_body_bytes"))/1e6, "MB")
	o.line("layer_rss_steady_mb", steady, "MB")
	o.line("layer_rss_peak_mb", d.peakMB(), "MB")
}

// rebuild resets the peak resident size, and then changes all streets several times.
func (d *daemon) rebuild(ctx context.Context, all []*pb.StreetForecast) {
	must.Do(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.PID()), []byte("5"), 0)) // see proc(5)
	for range memoryRebuilds {
		builds := must.Get(d.metric(ctx, "trafficd_layers_builds_total"))
		for _, f := range all {
			for _, p := range f.Forecast {
				p.Speed++
			}
		}
		d.publish(all)
		d.awaitServed(ctx, builds)
	}
}

// get requests the layer as browsers do and discards the body.
func (d *daemon) get(ctx context.Context, query string) error {
	_, _, err := request(ctx, http.DefaultClient, http.MethodGet, "http://"+d.API+layers.Path+query, nil, http.StatusOK,
		"Authorization", "apiKey "+benchKey, "Accept-Encoding", "gzip, deflate, br, zstd")
	return err
}
