package main

import (
	"context"
	"time"
)

// liveStep is the time between two measurements of each detector, in whole seconds.
const liveStep = 5 * time.Second

// live sends the measurements of the last seconds until ctx ends. It prints each error once and
// retries.
func (q *quickstart) live(ctx context.Context) {
	tick := time.NewTicker(liveStep)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := q.sendLive(ctx, time.Now().UTC().Truncate(liveStep).Add(-liveStep))
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			say("live traffic: %v; will retry", err)
		}
	}
}

// sendLive sends the measurements of the interval that starts at from, in small batches.
func (q *quickstart) sendLive(ctx context.Context, from time.Time) error {
	args, err := q.source.live(from)
	if err == nil {
		args = append(args, "--url", "http://"+q.daemon.API, "--key-file", q.path(keyFile), "--quiet", "--batch", "250")
		_, _, err = q.trafficctl(ctx, nil, args...)
	}
	return err
}
