package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/streets"
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
		var unread error // does not keep days from being learned
		if f.migrated.Load() && time.Since(looked) >= recently {
			var uncovered []string
			if uncovered, unread = f.source.Uncovered(ctx, time.Now().Add(-recently)); unread == nil {
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
		if failed := unread != nil || err != nil && !errors.Is(err, archive.ErrEmpty); failed && ctx.Err() == nil {
			failures.WithLabelValues("learn").Inc()
			f.log.Warn().Err(errors.Join(err, unread)).Msg("cannot learn all of the archive; retrying")
		}
		f.state.Update(func(s *status) { s.learn = errors.Join(err, unread) })
		sleep(ctx, time.Now().Add(time.Minute))
	}
}

// refresh reads the learned tables and the detectors if they changed.
func (f *forecaster) refresh(ctx context.Context, origin time.Time) error {
	if fresh := f.fresh.Swap(false); fresh || f.learned == nil || f.learned.Pool == nil || !f.source.Day(origin, 0).Equal(f.learned.Day) {
		l, err := f.source.Load(ctx, origin)
		if err != nil {
			f.fresh.Store(true)
			return err
		}
		// Until a day has been learned, its tables are those of the day before: adapt need not begin again.
		if fresh || f.learned == nil || !l.Same(f.learned) {
			f.learned = l
		}
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
// the learned tables: all instances have the same bounds, however long they have run. It repeats
// the steps that it has not added, all of them if the tables are new. If they cannot be read, the
// step uses the bounds as adapted before.
func (f *forecaster) adapt(ctx context.Context, s *model.Step) {
	until := s.Origin.Truncate(s.Interval)
	if s.Pool == nil { // nothing has been learned
		return
	}
	var err error
	switch same := f.tracked == s.Learned && !until.Before(f.tracker.Until); {
	case same && until.Equal(f.tracker.Until):
	case same && s.Origin.Equal(f.tracker.Until.Add(s.Interval)):
		f.tracker.Add(s)
	case same:
		err = repeat(ctx, f.source, &f.tracker, s.Learned, f.tracker.Until, until)
	default:
		var tracker model.Tracker
		if tracker, err = track(ctx, f.source, s.Learned, until); err == nil {
			f.tracker, f.tracked = tracker, s.Learned
		}
	}
	if err != nil {
		err = fmt.Errorf("cannot adapt the bounds of the forecasts, which are as wide as before: %w", err)
		failures.WithLabelValues("bounds").Inc()
		f.log.Warn().Err(err).Time("origin", s.Origin).Msg("publishing with earlier bounds; retrying for the next interval")
	}
	f.state.Update(func(s *status) { s.bounds = err })
	f.tracker.Use(s)
}

// track returns a tracker with the steps since the start of the day before the learned tables.
func track(ctx context.Context, source *archive.Source, l *model.Learned, until time.Time) (t model.Tracker, err error) {
	err = repeat(ctx, source, &t, l, source.Day(l.Day, -1), until)
	return t, err
}

// repeat adds the steps after from, up to an origin, to a tracker: those of the last two days at
// most. The tracker remains valid after an error.
func repeat(ctx context.Context, source *archive.Source, t *model.Tracker, l *model.Learned, from, until time.Time) error {
	if late := until.Add(-2 * 24 * time.Hour); from.Before(late) {
		from = late
	}
	before := l
	if from.Before(l.Day) {
		var err error
		if before, err = source.Load(ctx, from); err != nil {
			return err
		}
	}
	for from.Before(until) {
		all, last, err := source.Repeat(ctx, from, until, len(l.Detectors))
		if err != nil {
			return err
		}
		for n := 0; from.Before(last); n++ {
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
	return nil
}
