// Package watch reads files that others replace, and paces the checks for new versions. The feeds
// of registry and forecasts and the keys file use it.
package watch

import (
	"context"
	"time"
)

// RetryAfter is how soon a failed check is worth repeating. A feed with a longer interval waits for
// that.
const RetryAfter = 5 * time.Second

// Rounds calls check at once, settle after a change, and after the time that the last check
// returned, until ctx ends. changes may be nil.
func Rounds(ctx context.Context, changes <-chan struct{}, settle time.Duration, check func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	armed := false // a check is due after a change: further changes do not delay it
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

// Watch runs Rounds with the changes of f on a goroutine, until stop is called, which waits for it
// and closes f.
func (f *File) Watch(settle time.Duration, check func(context.Context) time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.Close()
		Rounds(ctx, f.Changes(), settle, check)
	}()
	return func() {
		cancel()
		<-done
	}
}
