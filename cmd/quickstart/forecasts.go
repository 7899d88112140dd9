package main

import (
	"context"
	"time"

	"trafficd/cmd/internal/launch"
)

const (
	forecastTopic = "forecasts"
	forecastsFile = "forecasts.pb"
)

// startForecasts publishes the first forecasts to a compacted topic, which the daemon reads from its start, and removes the
// streets of another data set.
func (q *quickstart) startForecasts(ctx context.Context) error {
	say("publishing forecasts: %s", q.source.ForecastsAbout)
	compacted := map[string]*string{"cleanup.policy": new("compact")}
	if err := launch.CreateTopic(ctx, q.stores.Kafka.Brokers, forecastTopic, 1, compacted); err != nil {
		return err
	}
	return q.publishForecasts(ctx, time.Now(), "--tombstone-missing")
}

// publishForecasts publishes forecasts in one transaction: map clients see all of them at once. They begin a minute ago, because
// the horizons of the layer are counted from the beginning of the minute.
func (q *quickstart) publishForecasts(ctx context.Context, now time.Time, flags ...string) error {
	file := q.path(forecastsFile)
	if err := q.source.forecasts(ctx, now.UTC().Truncate(time.Second).Add(-time.Minute), file); err != nil {
		return err
	}
	_, _, err := q.trafficctl(ctx, nil, append([]string{
		"forecast", "publish", file, "--quiet", "--brokers", q.stores.Kafka.Brokers[0], "--topic", forecastTopic,
	}, flags...)...)
	return err
}
