package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/metrics"
)

// Registry holds the latest good list of each product instance.
type Registry struct {
	log zerolog.Logger
	now atomic.Pointer[feeds]

	ctx     context.Context // of the feeds' goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

type feeds struct {
	list       []*feed // in the order of the configuration
	byInstance map[string]*feed
	gauges     []metrics.Collector
}

// New returns a registry that reads nothing before Start.
func New(cfg Config, log zerolog.Logger) (*Registry, error) {
	r := &Registry{log: log}
	now, err := r.feeds(cfg)
	r.now.Store(now)
	return r, err
}

func (r *Registry) feeds(cfg Config) (*feeds, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid registry configuration: %w", err)
	}
	fs := &feeds{byInstance: make(map[string]*feed)}
	for _, fc := range cfg.Feeds {
		f := newFeed(cfg, fc.withDefaults(), r.log)
		fs.list = append(fs.list, f)
		fs.byInstance[f.instance] = f
		fs.gauges = append(fs.gauges, gauges(f)...)
	}
	return fs, nil
}

// Start starts reading the feeds and returns at once; until a feed's first list has been read, its
// Snapshot is nil. The goroutines end with ctx or Close, and only Close waits for them. Start is
// called once.
func (r *Registry) Start(ctx context.Context) {
	r.ctx = ctx
	r.start(r.now.Load())
}

func (r *Registry) start(fs *feeds) {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(r.ctx)
	metrics.Show(fs.gauges...)
	for _, f := range fs.list {
		r.running.Go(func() { f.run(ctx) })
	}
}

// Reload replaces the feeds and reads them all. A product instance that had a feed before keeps its
// list until the new one is read. It is not called concurrently with Start, Close or itself.
func (r *Registry) Reload(cfg Config) error {
	next, err := r.feeds(cfg)
	if err != nil {
		return err
	}
	r.Close()
	for _, f := range next.list {
		if before := r.now.Load().byInstance[f.instance]; before != nil {
			f.current.Store(before.current.Load())
			f.mark, f.leftOut, f.loaded, f.confirmed, f.err = before.mark, before.leftOut, before.loaded, before.confirmed, before.err
		}
	}
	r.now.Store(next)
	r.start(next)
	return nil
}

// Close stops the feeds and waits for them. The snapshots remain readable.
func (r *Registry) Close() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.running.Wait()
	metrics.Hide(r.now.Load().gauges...)
}

// Snapshot returns the latest good list of a product instance, which is immutable. It is nil before
// the first good list, and for a product instance without a feed. It does not allocate.
func (r *Registry) Snapshot(productInstance string) *batch.Detectors {
	f, ok := r.now.Load().byInstance[productInstance]
	if !ok {
		return nil
	}
	return f.current.Load()
}

// HasFeed reports whether a product instance has a feed.
func (r *Registry) HasFeed(productInstance string) bool {
	_, ok := r.now.Load().byInstance[productInstance]
	return ok
}

// Status returns the state of each feed, in the order of the configuration.
func (r *Registry) Status() []Status {
	list := r.now.Load().list
	all := make([]Status, len(list))
	for i, f := range list {
		all[i] = f.status(time.Now())
	}
	return all
}

var (
	reloads = metrics.NewCounters("trafficd_registry_reloads_total",
		"Checks of the detector lists, by result: loaded, unchanged, unsettled (still being written), refused (not plausible) or "+
			"failed.", "result")
	reloadsLoaded    = reloads.WithLabelValues("loaded")
	reloadsUnchanged = reloads.WithLabelValues("unchanged")
	reloadsUnsettled = reloads.WithLabelValues("unsettled")
	reloadsRefused   = reloads.WithLabelValues("refused")
	reloadsFailed    = reloads.WithLabelValues("failed")
)

func gauges(f *feed) []metrics.Collector {
	gauge := func(name, help string, value func(Status) float64) metrics.Collector {
		return metrics.GaugeFunc("trafficd_registry_"+name, help, map[string]string{"product_instance": f.instance},
			func() float64 { return value(f.status(time.Now())) })
	}
	return []metrics.Collector{
		gauge("detectors", "Detectors in the list in use.", func(s Status) float64 { return float64(s.Detectors) }),
		gauge("age_seconds", "Time since the detector list was last confirmed, in seconds.", func(s Status) float64 { return s.AgeSeconds }),
		gauge("failing", "1 if the last check of the detector list failed, else 0.",
			func(s Status) float64 { return metrics.Bool(s.Error != "") }),
	}
}
