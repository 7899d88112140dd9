package watch

import (
	"context"
	"time"
)

// RetryAfter is how soon a check that failed is worth repeating; no feed does
// so more often than it is asked to.
const RetryAfter = 5 * time.Second

// Rounds calls check at once, settle after a change, and whenever the time that
// the last check gave is over, until ctx ends. changes may be nil: only asking
// tells then.
func Rounds(ctx context.Context, changes <-chan struct{}, settle time.Duration, check func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	armed := false // a check is due soon; further changes do not put it off
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
