package api

import (
	"sync"
	"sync/atomic"
	"time"
)

// limits are the rate limits of one key. They outlive a reload of the keys.
type limits struct{ requests, items bucket }

func newLimits(e KeyEntry) *limits {
	l := &limits{}
	l.set(e)
	return l
}

func (l *limits) set(e KeyEntry) {
	l.requests.set(e.RequestsPerSecond)
	l.items.set(e.ItemsPerSecond)
}

// admit takes one request. Where it may not come now, it says how long to wait.
func (l *limits) admit() (wait time.Duration, what string) {
	if wait := l.requests.take(1, 1); wait > 0 {
		return wait, "requests"
	}
	// How many items a request brings is known only at its end, so it needs but one, and
	// the bucket is charged afterwards and may go far below zero.
	if wait := l.items.take(1, 0); wait > 0 {
		return wait, "items"
	}
	return 0, ""
}

// bucket is a token bucket that holds one second's worth, or one token if that
// is less. Its rate 0 means no limit.
type bucket struct {
	limited atomic.Bool // whether rate is more than 0: most keys have no limit, and then nobody locks

	mu    sync.Mutex
	rate  float64 // tokens per second
	level float64
	last  time.Time
}

// set changes the rate. The level is kept, so that a reload forgives nothing; a
// bucket without a limit before starts full.
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

// take asks for need tokens and takes cost of them. If they are not there it
// takes nothing and says when they will be.
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

// charge takes n tokens that were used already.
func (b *bucket) charge(n int) {
	if !b.limited.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rate > 0 {
		b.refill()
		b.level -= float64(n)
	}
}

func (b *bucket) refill() {
	now := time.Now()
	b.level = min(size(b.rate), b.level+b.rate*now.Sub(b.last).Seconds())
	b.last = now
}

func size(rate float64) float64 { return max(1, rate) }
