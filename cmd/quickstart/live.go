package main

import (
	"context"
	"time"
)

// liveStep is the time between two publications of forecasts, and between two messages of all detectors. A round number of
// seconds.
const liveStep = 5 * time.Second

// live publishes forecasts that begin now and, once the report is printed, sends the measurements of the last seconds, until
// ctx ends. It prints each error once and tries again.
func (q *quickstart) live(ctx context.Context) {
	tick := time.NewTicker(liveStep)
	defer tick.Stop()
	last := ""
	try := func(err error) {
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			say("live traffic: %v; will retry", err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now().UTC().Truncate(liveStep)
		try(q.publishForecasts(ctx, time.Now()))
		select {
		case <-q.counted:
			try(q.sendLive(ctx, now.Add(-liveStep)))
		default:
		}
	}
}

// sendLive sends the measurements of the interval that starts at from, in small batches.
func (q *quickstart) sendLive(ctx context.Context, from time.Time) error {
	args, err := q.source.live(from)
	if err == nil {
		_, _, err = q.trafficctl(ctx, nil, append(args, "--url", "http://"+q.daemon.API, "--key-file", q.path(keyFile), "--quiet", "--batch", "250")...)
	}
	return err
}
