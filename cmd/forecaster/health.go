package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"trafficd/cmd/forecaster/internal/health"
	"trafficd/pipeline/lib/metrics"
)

var sickDetectors = metrics.NewGauges("trafficd_forecaster_sick_detectors",
	"Detectors whose measurements mislead, by the test that they fail at its latest check.", "product_instance", "state")

// watchHealth tests the detectors after each interval, once the archive's hours are complete, until
// ctx is done.
func (f *forecaster) watchHealth(ctx context.Context) {
	s := f.source
	source := &health.Source{
		Conn: s.Conn, Database: s.Database, Table: s.Table, Cluster: f.cfg.ClickHouse.Cluster, Instance: s.Instance,
		Location: s.Location, Holidays: s.Holidays, Enabled: f.cfg.Model.DetectorTests,
	}
	tests := slices.DeleteFunc(slices.Clone(health.Tests), func(t health.Test) bool { return !source.Runs(t) })
	for _, test := range tests {
		sickDetectors.WithLabelValues(s.Instance, test.Name)
	}
	for ctx.Err() == nil && !f.migrated.Load() {
		sleep(ctx, time.Now().Add(time.Second))
	}
	var incomplete time.Time // since when; zero: it is not
	for ctx.Err() == nil {
		at := time.Now().Add(-f.cfg.Forecasts.Grace).Truncate(f.cfg.Model.Interval)
		next := at.Add(f.cfg.Model.Interval + f.cfg.Forecasts.Grace)
		sick, err := source.CheckAll(ctx, at)
		if !errors.Is(err, health.ErrIncomplete) {
			incomplete = time.Time{}
		} else if incomplete.IsZero() {
			incomplete = time.Now()
		}
		switch {
		case !incomplete.IsZero() && time.Since(incomplete) < deriveTime: // as on the first start, too
			next, err = time.Now().Add(retryAfter), nil
		case err != nil && ctx.Err() == nil:
			failures.WithLabelValues("health").Inc()
			f.log.Warn().Err(err).Msg("cannot test the detectors' health; retrying")
			next = time.Now().Add(time.Minute)
		}
		for _, test := range tests {
			if err == nil && sick != nil {
				sickDetectors.WithLabelValues(s.Instance, test.Name).Set(float64(sick[test.Name]))
			}
		}
		f.state.Update(func(s *status) { s.sick, s.health = sick, err })
		sleep(ctx, next)
	}
}
