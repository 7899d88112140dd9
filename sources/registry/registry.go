package registry

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
)

// Registry holds the latest valid list of each product instance.
type Registry struct {
	log     zerolog.Logger
	onList  func(batch.DetectorList)
	current atomic.Pointer[feeds]

	ctx     context.Context // passed to Start
	stop    context.CancelFunc
	running sync.WaitGroup
}

type feeds struct {
	list       []*feed // in the order of the configuration
	byInstance map[string]*feed
	shared     *feed // the feed with a shared list, or nil
}

// New returns a Registry that reads nothing before Start. cfg must be valid.
func New(cfg Config, log zerolog.Logger) *Registry {
	r := &Registry{log: log}
	r.current.Store(r.newFeeds(cfg))
	return r
}

func (r *Registry) newFeeds(cfg Config) *feeds {
	fs := &feeds{byInstance: make(map[string]*feed)}
	for _, fc := range cfg.Feeds {
		f := newFeed(cfg, fc.withDefaults(), r.log)
		fs.list = append(fs.list, f)
		if f.shared != nil {
			fs.shared = f
		} else {
			fs.byInstance[f.instance] = f
		}
	}
	return fs
}

// OnList sets a function that is called whenever a list in use has been read, even if only columns
// other than the code have changed. It must be called before Start. f may be called concurrently.
func (r *Registry) OnList(f func(batch.DetectorList)) { r.onList = f }

// Start starts goroutines that read the feeds until ctx is done or Close is called. Only Close
// waits for them. Start must be called only once.
func (r *Registry) Start(ctx context.Context) {
	r.ctx = ctx
	r.start(r.current.Load())
}

func (r *Registry) start(fs *feeds) {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(r.ctx)
	for _, f := range fs.list {
		f.onList = r.onList
		r.running.Go(func() { f.run(ctx) })
	}
}

// Reload replaces the feeds and reads them all. A product instance that already has a feed keeps
// its list until the new one is read. cfg must be valid. Reload must not be called concurrently
// with Start, Close or itself.
func (r *Registry) Reload(cfg Config) {
	next := r.newFeeds(cfg)
	r.Close()
	before := map[string]*list{}
	for _, f := range r.current.Load().list {
		maps.Copy(before, *f.lists.Load())
		if f.shared != nil {
			before[everyInstance] = f.shared.list
		}
	}
	for _, f := range next.list {
		f.adopt(before)
	}
	r.current.Store(next)
	r.start(next)
}

// Close stops the feeds and waits until they have stopped. Snapshots remain available.
func (r *Registry) Close() {
	if r.stop == nil {
		return
	}
	r.stop()
	r.running.Wait()
}

// Snapshot returns the latest valid list of a product instance, or nil if there is none. It does
// not allocate.
func (r *Registry) Snapshot(productInstance string) *batch.Detectors {
	l := r.current.Load().find(productInstance)
	if l == nil {
		return nil
	}
	return l.current.Load()
}

func (fs *feeds) find(instance string) *list {
	f := fs.byInstance[instance]
	if f == nil {
		f = fs.shared
	}
	if f == nil {
		return nil
	}
	return (*f.lists.Load())[instance]
}

// HasFeed reports whether a product instance has a feed, or may be in a shared list that has not
// been read yet.
func (r *Registry) HasFeed(productInstance string) bool {
	fs := r.current.Load()
	return fs.find(productInstance) != nil || fs.shared != nil && !fs.shared.shared.read.Load()
}

// Status returns the state of each list, in the order of the feeds in the configuration.
func (r *Registry) Status() []Status {
	var all []Status
	for _, f := range r.current.Load().list {
		all = append(all, f.status(time.Now())...)
	}
	return all
}

var reloads = feedloop.NewResults("trafficd_registry_reloads_total", "Checks of the detector lists", "loaded")

func gauges(instance string, status func(time.Time) Status) []metrics.Collector {
	gauge := func(name, help string, value func(Status) float64) metrics.Collector {
		return metrics.GaugeFunc("trafficd_registry_"+name, help, map[string]string{"product_instance": instance},
			func() float64 { return value(status(time.Now())) })
	}
	return []metrics.Collector{
		gauge("detectors", "Detectors in the list in use.", func(s Status) float64 { return float64(s.Detectors) }),
		gauge("doubtful_entries", "Entries of the detector list in use whose code or position seems to be wrong.",
			func(s Status) float64 { return float64(s.Doubtful) }),
		gauge("age_seconds", "Time since the detector list was last confirmed, in seconds.", func(s Status) float64 { return s.AgeSeconds }),
		gauge("failing", "1 if the last check of the detector list failed, else 0.",
			func(s Status) float64 { return metrics.Bool(s.Error != "") }),
	}
}
