// Package feedloop keeps content that another system provides up to date: it loads the content when
// it has changed or an interval has passed, keeps the last good content after an error, tries again
// soon, logs the error once, and records the outcome.
package feedloop

import (
	"context"
	"errors"
	"sync"
	"time"

	"trafficd/pipeline/lib/watch"
)

// RetryAfter is the delay before a failed check is repeated, unless the loop has a shorter
// interval.
const RetryAfter = 5 * time.Second

// Refused is the reason why content is not used although it could be read.
type Refused struct{ Reason string }

// Error implements error.
func (r *Refused) Error() string { return r.Reason }

// Loop repeats the check of one content.
type Loop[T any] struct {
	// Load reads the content. It returns watch.ErrUnchanged if the content in use is still current,
	// and watch.ErrUnsettled while it is being written.
	Load func(context.Context) (T, error)
	// Use puts the content into use, or returns the reason why the last good one stays in use.
	Use func(T) error
	// Status, if it is not nil, records the outcome of each check.
	Status *Status

	Changes  <-chan struct{} // receives a value when there may be new content; may be nil
	Interval time.Duration   // between checks
	Settle   time.Duration   // between a change and the check, and between checks of unsettled content
	Retry    time.Duration   // after an error, at most Interval; 0: RetryAfter
	Confirm  time.Duration   // after refused content, at most Interval and at least RetryAfter
}

// Run checks the content immediately and then repeatedly until ctx is done.
func (l *Loop[T]) Run(ctx context.Context) { rounds(ctx, l.Changes, l.Settle, l.Check) }

// Start runs the loop in a goroutine until stop is called, which waits for its end.
func (l *Loop[T]) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// Check loads and uses the content once, and returns the time until the next check.
func (l *Loop[T]) Check(ctx context.Context) (next time.Duration) {
	content, err := l.Load(ctx)
	if ctx.Err() != nil {
		return l.Interval // the daemon is stopping; the feed has not failed
	}
	if err == nil {
		err = l.Use(content)
	}
	if l.Status != nil {
		l.Status.Conclude(err)
	}
	retry := l.Retry
	switch {
	case err == nil, errors.Is(err, watch.ErrUnchanged):
		return l.Interval
	case errors.Is(err, watch.ErrUnsettled):
		return l.Settle
	case errors.As(err, new(*Refused)):
		retry = max(l.Confirm, RetryAfter)
	case retry == 0:
		retry = RetryAfter
	}
	return min(l.Interval, retry)
}

// rounds calls check immediately, and then repeatedly until ctx is done: when the duration returned
// by the last check has passed, or when settle has passed after a change. changes may be nil.
func rounds(ctx context.Context, changes <-chan struct{}, settle time.Duration, check func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	armed := false // a check is scheduled after a change; further changes do not delay it
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			if !armed {
				armed = true
				timer.Reset(settle)
			}
		case <-timer.C:
			armed = false
			timer.Reset(check(ctx))
		}
	}
}
