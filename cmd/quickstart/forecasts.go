package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/internal/launch"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

const (
	forecastTopic = "forecasts"
	forecastsFile = "forecasts.pb"

	// New forecasts are published every period, for two hours.
	forecastStep    = 15 * time.Minute
	forecastPeriods = 8
)

// makeForecasts publishes forecasts to a compacted topic, which the daemon reads from its start.
func (q *quickstart) makeForecasts(ctx context.Context) error {
	say("publishing forecasts of %s", q.source.streets())
	compacted := map[string]*string{"cleanup.policy": new("compact")}
	if err := launch.CreateTopic(ctx, q.stores.Kafka.Brokers, forecastTopic, 1, compacted); err != nil {
		return err
	}
	return q.publishForecasts(ctx)
}

// publishForecasts replaces all forecasts by new ones that begin now.
func (q *quickstart) publishForecasts(ctx context.Context) error {
	q.forecast = time.Now()
	generate := []string{
		"forecast", "generate", "--periods", strconv.Itoa(forecastPeriods), "--step", forecastStep.String(),
		"--output", q.path(forecastsFile),
	}
	if q.source.codes != "" {
		generate = append(generate, "--codes", q.source.codes)
	}
	if _, err := q.trafficctl(ctx, generate...); err != nil {
		return err
	}
	_, err := q.trafficctl(ctx, "forecast", "publish", q.path(forecastsFile), "--quiet", "--tombstone-missing",
		"--brokers", q.stores.Kafka.Brokers[0], "--topic", forecastTopic)
	return err
}

// keepForecasts publishes new forecasts every period, because old ones expire. It only prints errors.
func (q *quickstart) keepForecasts(ctx context.Context) {
	if time.Since(q.forecast) < forecastStep {
		return
	}
	if err := q.publishForecasts(ctx); err != nil && ctx.Err() == nil {
		say("cannot publish new forecasts, will retry in %s: %v", forecastStep, err)
	}
}

// served describes the layer that a map client gets.
type served struct {
	streets, plain, packed uint64 // plain and packed are sizes in bytes
	age                    string
}

func (s served) String() string {
	return fmt.Sprintf("%s streets, %s bytes (%s as gzip), %s s old",
		thousands(s.streets), thousands(s.plain), thousands(s.packed), s.age)
}

// awaitLayer waits until the layer is served.
func (q *quickstart) awaitLayer(ctx context.Context) (found served, err error) {
	err = q.within(ctx, 30*time.Second, "the forecast layer is not available", func() (err error) {
		found, err = layer(ctx, "http://"+q.daemon.API+forecastPath, q.key)
		return err
	})
	return found, err
}

// layer gets the layer and decodes it, then gets it as gzip, as browsers do.
func layer(ctx context.Context, url, key string) (served, error) {
	plain, header, err := get(ctx, url, key, "identity")
	if err != nil {
		return served{}, err
	}
	packed, _, err := get(ctx, url, key, "gzip")
	if err != nil {
		return served{}, err
	}
	var response trafficdv1.StreetForecastResponse
	if err := proto.Unmarshal(plain, &response); err != nil {
		return served{}, fmt.Errorf("cannot decode the forecast layer: %w", err)
	}
	return served{uint64(len(response.StreetForecast)), uint64(len(plain)), uint64(len(packed)), header.Get("Forecast-Age")}, nil
}

func get(ctx context.Context, url, key, encoding string) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "apiKey "+key)
	req.Header.Set("Accept-Encoding", encoding)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s returned %s: %.200s", url, r.Status, body)
	}
	return body, r.Header, err
}
