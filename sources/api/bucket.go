package api

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// limits are the rate limits of one key. They survive a reload of the keys.
type limits struct{ requests, items bucket }

func (l *limits) set(e KeyEntry) {
	l.requests.set(e.RequestsPerSecond)
	l.items.set(e.ItemsPerSecond)
}

// admit takes one request. If it exceeds a limit, wait is the time until it does not.
func (l *limits) admit() (wait time.Duration, what string) {
	if wait := l.requests.take(1, 1); wait > 0 {
		return wait, "requests"
	}
	// The number of items is known at the end of the request only: it needs one now, and the bucket is
	// charged later, perhaps far below zero.
	if wait := l.items.take(1, 0); wait > 0 {
		return wait, "items"
	}
	return 0, ""
}

// bucket is a token bucket that holds the tokens of one second, at least one. A rate of 0 is no limit.
type bucket struct {
	limited atomic.Bool // rate > 0: most keys have no limit, and need no lock

	mu    sync.Mutex
	rate  float64 // tokens per second
	level float64
	last  time.Time
}

// set changes the rate. It keeps the level, so that a reload refills nothing; a bucket that had no
// limit starts full.
func (b *bucket) set(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.rate == 0 {
		b.level = size(rate)
	}
	b.rate = rate
	b.limited.Store(rate > 0)
	b.level = min(b.level, size(rate))
}

// take takes cost tokens if there are need of them. Otherwise it returns when there will be.
func (b *bucket) take(need, cost float64) (wait time.Duration) {
	if !b.limited.Load() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate == 0 {
		return 0
	}
	b.refill()
	if b.level < need {
		return max(1, time.Duration((need-b.level)/b.rate*float64(time.Second)))
	}
	b.level -= cost
	return 0
}

// charge takes n tokens, below zero if necessary.
func (b *bucket) charge(n int) {
	b.take(math.Inf(-1), float64(n))
}

func (b *bucket) refill() {
	now := time.Now()
	b.level = min(size(b.rate), b.level+b.rate*now.Sub(b.last).Seconds())
	b.last = now
}

func size(rate float64) float64 { return max(1, rate) }
