package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/forecaster/internal/streets"
	schema "trafficd/schemas/clickhouse"
)

// learn learns each day once it is over, and retries after an error, until ctx is done.
func (f *forecaster) learn(ctx context.Context) {
	f.migrated.Store(!f.cfg.ClickHouse.Migrate)
	var looked time.Time // at the measure types
	for ctx.Err() == nil {
		var err error
		if c := f.cfg.ClickHouse; !f.migrated.Load() {
			_, err = schema.Migrate(ctx, f.source.Conn, schema.Layout{Database: c.Database, Table: c.Table, Cluster: c.Cluster})
			f.migrated.Store(err == nil)
		}
		if f.migrated.Load() && time.Since(looked) >= recently {
			uncovered, err := f.source.Uncovered(ctx, time.Now().Add(-recently))
			if err == nil {
				looked = time.Now()
				f.state.Update(func(s *status) { s.uncovered = uncovered })
			}
			if len(uncovered) > 0 {
				f.log.Warn().Msg(notCovered(f.cfg.Model, uncovered))
			}
		}
		if err == nil {
			err = f.source.Learn(ctx, time.Now().Add(-f.cfg.Model.LearnAfter), func(day time.Time) error {
				daysLearned.Inc()
				f.fresh.Store(true)
				f.log.Info().Str("day", day.Format(time.DateOnly)).Msg("day learned")
				return nil
			})
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, archive.ErrEmpty) {
			failures.WithLabelValues("learn").Inc()
			f.log.Warn().Err(err).Msg("cannot learn a day; retrying")
		}
		f.state.Update(func(s *status) { s.learn = err })
		sleep(ctx, time.Now().Add(time.Minute))
	}
}

// refresh reads the learned tables and the detectors if they changed.
func (f *forecaster) refresh(ctx context.Context, origin time.Time) error {
	if f.fresh.Swap(false) || f.learned == nil || f.learned.Pool == nil || !f.source.Day(origin, 0).Equal(f.learned.Day) {
		l, err := f.source.Load(ctx, origin)
		if err != nil {
			f.fresh.Store(true)
			return err
		}
		f.learned = l
	}
	var changed time.Time // zero if the file is being replaced
	if info, err := os.Stat(f.cfg.Detectors.Path); err == nil {
		changed = info.ModTime()
		age := time.Since(changed) // negative if the clock was set back
		if changed.Equal(f.changed) || f.content.Streets != nil && age >= 0 && age < settle {
			return nil
		}
	}
	content, err := streets.Read(f.cfg.Detectors)
	if err != nil && f.content.Streets != nil {
		failures.WithLabelValues("detectors").Inc()
		f.log.Warn().Err(err).Msg("cannot read the detectors; the last valid ones remain in use")
		return nil
	}
	if err != nil {
		return err
	}
	if content.Invalid != nil {
		f.log.Warn().Err(content.Invalid).Msg("ignoring invalid detectors")
	}
	if content.Locations != nil {
		f.log.Warn().Err(content.Locations).Int("streets", content.Unlocated).Msg("publishing streets without a location")
	}
	f.content, f.changed = content, changed
	detectors.Set(float64(content.Detectors))
	unplaced.Set(float64(content.Unplaced))
	unlocated.Set(float64(content.Unlocated))
	return nil
}

// adapt makes a step use bounds that are adapted to the misses since the start of the day before
// the learned tables. It repeats the steps since then unless it has added the step before this one:
// all instances have the same bounds, however long they have run.
func (f *forecaster) adapt(ctx context.Context, s *model.Step) error {
	until := s.Origin.Truncate(s.Interval)
	switch same := f.tracked == s.Learned; {
	case s.Pool == nil: // nothing has been learned
		return nil
	case same && until.Equal(f.tracker.Until):
	case same && s.Origin.Equal(f.tracker.Until.Add(s.Interval)):
		f.tracker.Add(s)
	default:
		tracker, err := f.repeat(ctx, s.Learned, until)
		if err != nil {
			return fmt.Errorf("cannot adapt the bounds: %w", err)
		}
		f.tracker, f.tracked = tracker, s.Learned
	}
	f.tracker.Use(s)
	return nil
}

// repeat adds all steps up to an origin to a tracker. If the tables are old, it starts with the
// last two days.
func (f *forecaster) repeat(ctx context.Context, l *model.Learned, until time.Time) (t model.Tracker, err error) {
	from := f.source.Day(l.Day, -1)
	if late := until.Add(-2 * 24 * time.Hour); from.Before(late) {
		from = late
	}
	before, err := f.source.Load(ctx, from)
	for err == nil && from.Before(until) {
		var all []archive.Values
		var last time.Time
		all, last, err = f.source.Repeat(ctx, from, until, len(l.Detectors))
		for n := 0; err == nil && from.Before(last); n++ {
			from = from.Add(l.Interval)
			codes, recent := make([]string, len(all)), make([]model.Recent, len(all))
			for i := range all {
				codes[i], recent[i] = all[i].Code, all[i].Recent(n)
			}
			tables := l
			if from.Before(l.Day) {
				tables = before
			}
			t.Add(model.NewStep(tables, from, codes, recent))
		}
	}
	return t, err
}
