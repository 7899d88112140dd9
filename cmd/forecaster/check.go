package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/streets"
	"trafficd/sources/forecasts"
)

// check returns the problems that would keep the forecaster from working: those with the files and,
// if deep, those with the stores. It writes what else is wrong with the detectors to w.
func check(ctx context.Context, w io.Writer, c *config.Config, origins conf.Origins, deep bool) error {
	content, err := streets.Read(c.Detectors)
	if warnings := content.Warnings(); err == nil && warnings != nil {
		fmt.Fprintf(w, "warnings about the detectors in %s:\n%v\n", c.Detectors.Path, warnings)
	}
	errs := []error{conf.Absolute(err)}
	if c.Output.Feed == forecasts.FeedFile {
		if err := unix.Access(filepath.Dir(c.Output.File.Path), unix.W_OK); err != nil {
			errs = append(errs, fmt.Errorf("output.file.path: cannot write to its directory: %w", err))
		}
	}
	if c.Output.Feed == forecasts.FeedKafka {
		feed := forecasts.DefaultConfig()
		feed.Feed, feed.Kafka = forecasts.FeedKafka, c.Output.Kafka
		err := feed.Check(ctx, deep)
		errs = append(errs, origins.Section("output", err))
		if deep && err == nil {
			errs = append(errs, checkPublisher(ctx, c.Output, origins))
		}
	}
	conn, err := connect(c)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("clickhouse.%w", err))...)
	}
	defer func() { _ = conn.Close() }()
	if deep {
		err := conn.Exec(ctx, fmt.Sprintf("SELECT * FROM `%s`.`%s` LIMIT 0", c.ClickHouse.Database, c.ClickHouse.Table))
		var uncovered []string
		if err == nil {
			uncovered, err = newSource(c, conn, c.ClickHouse.Database).Uncovered(ctx, time.Now().Add(-recently))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("clickhouse: cannot read the archive at %s: %w", c.ClickHouse.Address, err))
		}
		if len(uncovered) > 0 {
			fmt.Fprintln(w, "warning:", notCovered(c.Model, uncovered))
		}
	}
	return errors.Join(errs...)
}

// recently is the age of the measurements in which measure types are looked for.
const recently = 24 * time.Hour

// notCovered returns a warning about measure types in the archive that are not used.
func notCovered(m config.Model, codes []string) string {
	return fmt.Sprintf("model.measure %s and model.count %q do not cover the measure types %s of the archive: to use lanes, add .* to both",
		m.Measure, m.Count, strings.Join(codes, ", "))
}

func checkPublisher(ctx context.Context, o config.Output, origins conf.Origins) error {
	p, err := newPublisher(o)
	if err != nil {
		return origins.Section("output.kafka", err)
	}
	defer p.Close()
	topic, id := p.CheckPermissions(ctx)
	return errors.Join(origins.Section("output.kafka", topic), origins.Section("output", id))
}
