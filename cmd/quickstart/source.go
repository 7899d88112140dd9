package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// source is the traffic to send, the registry of its detectors, and the forecasts of their streets.
type source struct {
	about          string
	file           string
	make           func(ctx context.Context) error // makes the file; nil: it exists
	flags          []string                        // of trafficctl send
	registry       string                          // CSV file
	column         string                          // of the registry's detector codes
	example        string                          // one of them
	ForecastsAbout string
	forecasts      func(ctx context.Context, from time.Time, file string) error // writes those that begin then
	LiveAbout      string
	live           func(from time.Time) ([]string, error) // the trafficctl command that sends an interval of liveStep
}

// findSource opens the data set, or makes a town.
func (q *quickstart) findSource(ctx context.Context) (err error) {
	if q.data != "" {
		q.source, err = openDataset(q.root, q.data, q.profile, q.path("live.csv"))
		return err
	}
	// Whenever it starts, the morning rush begins in the town: the reader should see one.
	now := time.Now().UTC()
	const clocks = 7.25 // hours
	offset := clocks - now.Sub(now.Truncate(24*time.Hour)).Hours()
	if offset < -12 {
		offset += 24
	}
	common := []string{"--seed", "1", "--utc-offset", strconv.FormatFloat(offset, 'f', 2, 64)}
	generate := append([]string{
		"generate", "--quiet", "--detectors", strconv.Itoa(q.detectors), "--types", "speed,flow", "--all-types",
	}, common...)
	first := now.Truncate(liveStep).AddDate(0, 0, -q.days)
	q.source = source{
		about: fmt.Sprintf("%d × 24 h of a made-up town with %d detectors until now, some items invalid on purpose", q.days, q.detectors),
		file:  q.path("traffic.ndjson.gz"),
		make: func(ctx context.Context) error {
			_, _, err := q.trafficctl(ctx, nil, append(generate, "--from", first.Format(time.RFC3339), "--days", strconv.Itoa(q.days),
				"--interval", "5m", "--error-rate", "0.001", "--output", q.path("traffic.ndjson.gz"))...)
			return err
		},
		registry:       q.path("detectors.csv"),
		column:         "detectorCode",
		example:        "D1-1",
		ForecastsAbout: "what a model of the town's traffic expects for the next two hours",
		forecasts: func(ctx context.Context, from time.Time, file string) error {
			_, _, err := q.trafficctl(ctx, nil, append([]string{
				"forecast", "generate", "--streets", strconv.Itoa(q.detectors), "--from", from.Format(time.RFC3339),
				"--periods", "24", "--step", "5m", "--output", file,
			}, common...)...)
			return err
		},
		LiveAbout: fmt.Sprintf("the town's traffic as time goes by; its clocks showed %s when it was started, so the morning rush begins",
			now.Add(time.Duration(offset*float64(time.Hour))).Format("15:04")),
		live: func(from time.Time) ([]string, error) {
			return append(generate, "--from", from.Format(time.RFC3339), "--interval", liveStep.String(), "--intervals", "1",
				"--error-rate", "0.003", "--send"), nil
		},
	}
	_, _, err = q.trafficctl(ctx, nil, append(generate, "--intervals", "1", "--registry-out", q.source.registry, "--output", os.DevNull)...)
	return err
}

// writeSample writes a batch of a valid item and an invalid one, for a printed command.
func (q *quickstart) writeSample() error {
	hour := time.Now().UTC().Truncate(time.Hour)
	item := func(detector string) string {
		return fmt.Sprintf(`{"detectorCode": %q, "measureTypeCode": "speed", "timestampFrom": %q, "timestampTo": %q, "value": 48.5}`,
			detector, hour.Add(-time.Hour).Format(time.RFC3339), hour.Format(time.RFC3339))
	}
	text := "{\"measurements\": [\n  " + item(q.source.example) + ",\n  " + item("no-such-detector") + "\n]}\n"
	if err := os.WriteFile(q.path(sampleFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write the sample: %w", err)
	}
	return nil
}
