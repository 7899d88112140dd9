package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/launch"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sinks/layers"
)

const (
	mixedReads   = 10_000 // for each number of partitions
	mixedStreets = 600
)

// layerMixed counts the reads that return streets of two publications while trafficctl publishes to
// a topic with one partition, and to one with six.
func (o options) layerMixed(ctx context.Context) error {
	stores, err := launch.StartStores(ctx, launch.Options{Only: "kafka", Topics: map[string]int{"one": 1, "six": 6}, Stderr: io.Discard})
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	mixed, publications := 0, 0
	for _, topic := range []string{"one", "six"} {
		m, p, err := o.mixedReads(ctx, stores.Kafka.Brokers[0], topic)
		if err != nil {
			return err
		}
		mixed, publications = mixed+m, publications+p
	}
	o.line("layer_mixed_publications", float64(publications), "publications")
	o.line("layer_mixed_reads", float64(mixed), "reads")
	return nil
}

func (o options) mixedReads(ctx context.Context, broker, topic string) (mixed, publications int, err error) {
	d, err := newDaemon(o.daemon, []string{"A"})
	if err != nil {
		return 0, 0, err
	}
	defer d.stop()
	d.Set("forecasts.feed=kafka", "forecasts.kafka.brokers="+broker, "forecasts.kafka.topic="+topic, "forecasts.kafka.interval=50ms")
	if err := o.publishGeneration(ctx, d.Dir, broker, topic, 1); err != nil {
		return 0, 0, err
	}
	if err := d.start(ctx); err != nil {
		return 0, 0, err
	}
	if err := d.served(ctx, 0); err != nil {
		return 0, 0, err
	}
	publishing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var generation atomic.Int64
	generation.Store(1)
	go func() {
		for publishing.Err() == nil {
			if err := o.publishGeneration(publishing, d.Dir, broker, topic, generation.Add(1)); err != nil && publishing.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for range mixedReads {
		whole, err := d.readWhole(ctx)
		if err != nil {
			stop()
			return 0, 0, errors.Join(err, <-ended)
		}
		if !whole {
			mixed++
		}
		time.Sleep(time.Millisecond) // so that the reads see many layers
	}
	stop()
	return mixed, int(generation.Load()), <-ended
}

// publishGeneration publishes forecasts with the number of the generation as the speed.
func (o options) publishGeneration(ctx context.Context, dir, broker, topic string, generation int64) error {
	hour := time.Now().UTC().Truncate(time.Hour)
	var all pb.StreetForecastResponse
	for i := range int32(mixedStreets) {
		all.StreetForecast = append(all.StreetForecast, &pb.StreetForecast{Street: i + 1, Fromnode: 1, Forecast: []*pb.ForecastPeriod{{
			Start: hour.Format(time.RFC3339), End: hour.Add(24 * time.Hour).Format(time.RFC3339),
			SpeedValid: proto.Bool(true), Speed: float64(generation % 500),
		}}})
	}
	text, err := proto.Marshal(&all)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "generation-"+strconv.FormatInt(generation, 10)+".pb")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	publish := exec.CommandContext(ctx, o.trafficctl, "forecast", "publish", file, "--quiet", "--brokers", broker, "--topic", topic)
	if out, err := publish.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot publish forecasts with %s: %w: %s", o.trafficctl, err, out)
	}
	return nil
}

// readWhole gets the layer and reports whether it has all streets of one generation.
func (d *daemon) readWhole(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.API+layers.Path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "apiKey "+benchKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("cannot get the layer: %s: %.300s", resp.Status, text)
	}
	var all pb.StreetForecastResponse
	if err == nil {
		err = proto.Unmarshal(text, &all)
	}
	if err != nil {
		return false, err
	}
	whole := len(all.StreetForecast) == mixedStreets
	for _, f := range all.StreetForecast {
		whole = whole && f.Forecast[0].Speed == all.StreetForecast[0].Forecast[0].Speed
	}
	return whole, nil
}
