package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/launch"
	"trafficd/cmd/internal/must"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	mixedReads   = 10_000 // for each of the two topics
	mixedStreets = 600
)

// layerMixed counts the reads that return streets from more than one publication while trafficctl
// publishes, first to a topic with one partition and then to one with six.
func (o options) layerMixed(ctx context.Context) {
	stores := must.Get(launch.StartStores(ctx, launch.Options{Only: "kafka", Topics: map[string]int{"one": 1, "six": 6}, Stderr: io.Discard}))
	defer func() { _ = stores.Close() }()
	mixed, publications := 0, 0
	for _, topic := range []string{"one", "six"} {
		m, p := o.mixedReads(ctx, stores.Kafka.Brokers[0], topic)
		mixed, publications = mixed+m, publications+p
	}
	o.line("layer_mixed_publications", float64(publications), "publications")
	o.line("layer_mixed_reads", float64(mixed), "reads")
}

// mixedReads reads the layer while trafficctl publishes to the topic. It returns the number of
// reads that mixed two publications, and the number of publications.
func (o options) mixedReads(ctx context.Context, broker, topic string) (mixed, publications int) {
	d := newDaemon(o.daemon, []string{"A"}, "forecasts.feed=kafka", "forecasts.kafka.brokers="+broker,
		"forecasts.kafka.topic="+topic, "forecasts.kafka.interval=50ms")
	defer d.stop()
	must.Do(o.publishGeneration(ctx, d.Dir, broker, topic, 1))
	d.start(ctx)
	d.awaitServed(ctx, 0)
	publications = 1
	var err error // from publishing
	stop := inBackground(ctx, 1, func(ctx context.Context, _ int) {
		for err == nil && ctx.Err() == nil {
			publications++
			err = o.publishGeneration(ctx, d.Dir, broker, topic, publications)
		}
		if ctx.Err() != nil {
			err = nil // stop interrupted it
		}
	})
	defer stop()
	for range mixedReads {
		if !d.readWhole(ctx) {
			mixed++
		}
		time.Sleep(time.Millisecond) // so that the reads see many layers
	}
	stop()
	must.Do(err)
	return mixed, publications
}

// publishGeneration publishes forecasts whose speeds all equal the generation modulo 500.
func (o options) publishGeneration(ctx context.Context, dir, broker, topic string, generation int) (err error) {
	defer must.Return(&err)
	hour := time.Now().UTC().Truncate(time.Hour)
	var all pb.StreetForecastResponse
	for i := range int32(mixedStreets) {
		all.StreetForecast = append(all.StreetForecast, &pb.StreetForecast{Street: i + 1, Fromnode: 1, Forecast: []*pb.ForecastPeriod{{
			Start: hour.Format(time.RFC3339), End: hour.Add(24 * time.Hour).Format(time.RFC3339),
			SpeedValid: proto.Bool(true), Speed: float64(generation % 500),
		}}})
	}
	text := must.Get(proto.Marshal(&all))
	file := filepath.Join(dir, fmt.Sprintf("generation-%d.pb", generation))
	must.Do(os.WriteFile(file, text, 0o600))
	defer os.Remove(file)
	return o.control(ctx, "forecast", "publish", file, "--quiet", "--brokers", broker, "--topic", topic)
}

// readWhole requests the layer and reports whether it contains all streets, from one generation.
func (d *daemon) readWhole(ctx context.Context) bool {
	_, text, err := request(ctx, http.DefaultClient, http.MethodGet, "http://"+d.API+layers.Path, nil, http.StatusOK,
		"Authorization", "apiKey "+benchKey)
	must.Do(err)
	var all pb.StreetForecastResponse
	must.Do(proto.Unmarshal(text, &all))
	whole := len(all.StreetForecast) == mixedStreets
	for _, f := range all.StreetForecast {
		whole = whole && f.Forecast[0].Speed == all.StreetForecast[0].Forecast[0].Speed
	}
	return whole
}
