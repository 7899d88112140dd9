// Package watch reads files that other programs replace, and schedules checks for new versions.
package watch

import (
	"context"
	"sync"
	"time"
)

const (
	// Settle is how long a file must be unmodified before it is read: programs write it in several
	// steps, with pauses on a busy machine.
	Settle = 500 * time.Millisecond
	// Recheck is the time between checks for changes that the operating system does not report, as on
	// network file systems.
	Recheck = time.Minute
)

// RetryAfter is the delay before a failed check is repeated, unless the feed has a shorter
// interval.
const RetryAfter = 5 * time.Second

// Rounds calls check immediately, and then repeatedly until ctx is done: when the duration returned
// by the last check has passed, or when settle has passed after a change. changes may be nil.
func Rounds(ctx context.Context, changes <-chan struct{}, settle time.Duration, check func(context.Context) time.Duration) {
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

// Watch runs Rounds for f in a goroutine until stop is called. stop waits for the goroutine, which
// closes f.
func (f *File) Watch(settle time.Duration, check func(context.Context) time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		defer f.Close()
		Rounds(ctx, f.Changes(), settle, check)
	})
	return func() {
		cancel()
		running.Wait()
	}
}
