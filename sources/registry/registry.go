package registry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/metrics"
)

// Registry holds the latest good list of each product instance.
type Registry struct {
	feeds      []*feed // in the order of the configuration
	byInstance map[string]*feed
	gauges     []metrics.Collector

	stop    context.CancelFunc
	running sync.WaitGroup
}

// New returns a registry that reads nothing before Start.
func New(cfg Config, log zerolog.Logger) (*Registry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid registry configuration: %w", err)
	}
	r := &Registry{byInstance: make(map[string]*feed)}
	for _, fc := range cfg.Feeds {
		f := newFeed(cfg, fc.withDefaults(), log)
		r.feeds = append(r.feeds, f)
		r.byInstance[f.instance] = f
		r.gauges = append(r.gauges, gauges(f)...)
	}
	return r, nil
}

// Start starts reading the feeds and returns at once; until a feed's first list has been read, its
// Snapshot is nil. The goroutines end with ctx or Close, and only Close waits for them. Start is
// called once.
func (r *Registry) Start(ctx context.Context) {
	ctx, r.stop = context.WithCancel(ctx)
	metrics.Show(r.gauges...)
	for _, f := range r.feeds {
		f.begin(time.Now())
		r.running.Go(func() { f.run(ctx) })
	}
}

// Close stops the feeds and waits for them. The snapshots remain readable.
func (r *Registry) Close() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.running.Wait()
	metrics.Hide(r.gauges...)
}

// Snapshot returns the latest good list of a product instance, which is immutable. It is nil before
// the first good list, and for a product instance without a feed. It does not allocate.
func (r *Registry) Snapshot(productInstance string) *batch.Detectors {
	f, ok := r.byInstance[productInstance]
	if !ok {
		return nil
	}
	return f.current.Load()
}

// HasFeed reports whether a product instance has a feed.
func (r *Registry) HasFeed(productInstance string) bool {
	_, ok := r.byInstance[productInstance]
	return ok
}

// Status returns the state of each feed, in the order of the configuration.
func (r *Registry) Status() []Status {
	all := make([]Status, len(r.feeds))
	for i, f := range r.feeds {
		all[i] = f.status(time.Now())
	}
	return all
}
