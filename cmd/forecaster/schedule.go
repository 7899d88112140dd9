package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"trafficd/cmd/internal/publish"
)

// rounds publishes the forecasts of each interval after a grace period for late measurements. After
// an error it retries with the latest origin. An instance whose publication another one has aborted
// waits longer each time, so that the other one can finish.
func (f *forecaster) rounds(ctx context.Context, round func(ctx context.Context, origin time.Time) error) {
	interval, grace := f.interval(), f.cfg.Forecasts.Grace
	fencedRetry := retryAfter
	for ctx.Err() == nil {
		origin := time.Now().Add(-grace).Truncate(interval)
		err := round(ctx, origin)
		next := origin.Add(interval + grace)
		switch {
		case err == nil:
			fencedRetry = retryAfter
		case ctx.Err() != nil:
		case publish.Fenced(err): // usually another instance has published the same forecasts
			f.log.Info().Err(err).Time("origin", origin).Msg("another instance is publishing; comparing its forecasts")
			next, fencedRetry, err = time.Now().Add(fencedRetry), min(2*fencedRetry, transactionTimeout), nil
		default:
			f.log.Warn().Err(err).Time("origin", origin).Msg("cannot publish forecasts; retrying")
			if !errors.Is(err, errNoForecast) {
				next = time.Now().Add(retryAfter)
			}
		}
		f.state.Update(func(s *status) { s.err = err })
		sleep(ctx, next)
	}
}

func (f *forecaster) interval() time.Duration {
	return cmp.Or(f.cfg.Forecasts.Every, f.cfg.Model.Interval)
}

func sleep(ctx context.Context, until time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(until)):
	}
}
