package registry

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	"trafficd/sources/internal/shrink"
)

// feed reads the list of one product instance, or a shared list of many product instances.
type feed struct {
	cfg      Config
	instance string // empty if the list is shared
	kind     string
	entry    string   // what the list consists of: line, entry or row
	warned   doubtful // what was logged last
	source   source
	interval time.Duration // time between checks
	settle   time.Duration // delay between a change and the check
	log      zerolog.Logger
	onList   func(batch.DetectorList) // may be nil; see Registry.OnList

	lists  atomic.Pointer[map[string]*list] // the map is immutable
	shared *sharedList                      // nil: the list has one product instance
}

// sharedList is the state of a list of many product instances.
type sharedList struct {
	*list                    // without detectors; its product instance is everyInstance
	read     atomic.Bool     // set after the first successful read
	excluded map[string]bool // product instances with a separate feed
}

// everyInstance is the product instance of a shared list in Status and metrics.
const everyInstance = "*"

func newFeed(cfg Config, fc FeedConfig, log zerolog.Logger) *feed {
	f := &feed{cfg: cfg, instance: fc.ProductInstance, settle: watch.Settle, entry: "entry"}
	switch {
	case fc.File != nil:
		f.kind, f.interval, f.source = "file", watch.Recheck, newFileSource(*fc.File, fc.InstanceColumn, watch.Settle, cfg.MaxBytes)
		if fc.File.format() == FormatCSV {
			f.entry = "line"
		}
	case fc.HTTP != nil:
		f.kind, f.interval, f.source = "http", fc.HTTP.Interval, newHTTPSource(*fc.HTTP, fc.InstanceColumn, cfg.MaxBytes)
	default:
		f.entry = "row"
		f.kind, f.interval, f.source = "clickhouse", fc.ClickHouse.Interval, &clickHouseSource{
			dial.Poller{ClickHouseQuery: *fc.ClickHouse}, fc.InstanceColumn, cfg.MaxBytes,
		}
	}
	f.log = log.With().Str("feed", f.kind).Logger()
	lists := map[string]*list{}
	if f.instance != "" {
		lists[f.instance] = f.newList(f.instance)
	} else {
		f.shared = &sharedList{list: newList(cfg, everyInstance, f.kind, f.log), excluded: map[string]bool{everyInstance: true}}
		f.shared.guard.Entries = "product instances"
		for _, other := range cfg.Feeds {
			f.shared.excluded[other.ProductInstance] = true
		}
	}
	f.lists.Store(&lists)
	return f
}

// newList returns a list without detectors. If the feed is shared, the list logs only warnings and
// errors, because there may be thousands of product instances.
func (f *feed) newList(instance string) *list {
	log := f.log
	if f.instance == "" {
		log = log.Level(zerolog.WarnLevel)
	}
	return newList(f.cfg, instance, f.kind, log)
}

// adopt copies the lists of the previous feeds. before is keyed by product instance. adopt must be
// called before run.
func (f *feed) adopt(before map[string]*list) {
	if f.shared == nil {
		if l := before[f.instance]; l != nil {
			(*f.lists.Load())[f.instance].adopt(l)
		}
		return
	}
	if l := before[everyInstance]; l != nil {
		f.shared.adopt(l)
	}
	for instance, l := range before {
		if !f.shared.excluded[instance] && l.current.Load() != nil {
			next := f.newList(instance)
			next.adopt(l)
			(*f.lists.Load())[instance] = next
		}
	}
}

func (f *feed) run(ctx context.Context) {
	defer f.source.close()
	f.restore(time.Now())
	metrics.Register(f.gauges()...)
	defer func() { metrics.Unregister(f.gauges()...) }()
	f.loop().Run(ctx)
}

// restore loads the lists that an earlier process saved, which are used until the feed is read.
func (f *feed) restore(now time.Time) {
	lists := *f.lists.Load()
	if l := lists[f.instance]; f.shared == nil && l.current.Load() == nil {
		l.restore(now)
	}
	if f.shared == nil || len(lists) > 0 {
		return
	}
	lists = map[string]*list{}
	for _, instance := range cachedInstances(f.cfg) {
		if l := f.newList(instance); !f.shared.excluded[instance] && l.restore(now) {
			l.Set(feedloop.State{InUse: true, Confirmed: l.Get().Confirmed}) // the status of the shared list reports that it has not been read
			lists[instance] = l
		}
	}
	f.lists.Store(&lists)
}

// read returns the list of each product instance, with attributes only if they are used. In a
// shared list, it ignores product instances that are invalid or have a separate feed.
func (f *feed) read(ctx context.Context) (map[string]*examined, error) {
	newList := func(instance string) *examined {
		return &examined{DetectorList: batch.DetectorList{ProductInstance: instance}, entry: f.entry}
	}
	last := newList(f.instance)
	lists := map[string]*examined{f.instance: last}
	err := f.source.read(ctx, func(at int, instance, code string, others ...batch.Attribute) {
		if instance = cmp.Or(f.instance, instance); instance != last.ProductInstance {
			if last = lists[instance]; last == nil {
				last = newList(strings.Clone(instance))
				lists[last.ProductInstance] = last
			}
		}
		last.examine(at, code, others)
		last.Codes = append(last.Codes, code)
		if f.onList != nil {
			last.Attributes = append(last.Attributes, append([]batch.Attribute(nil), others...))
		}
	})
	if f.shared != nil {
		maps.DeleteFunc(lists, func(instance string, _ *examined) bool {
			return !validInstance(instance) || f.shared.excluded[instance]
		})
	}
	for _, l := range lists {
		l.compare()
	}
	if f.shared == nil {
		return lists, err
	}
	if err == nil && len(lists) == 0 {
		err = &feedloop.Refused{Reason: "the list has no product instance: an empty list is never used"}
	}
	return lists, err
}

// If new lists have at least manyDetectors detectors in total, the memory used for reading them,
// several times that of the lists, is returned to the operating system immediately.
const manyDetectors = 10_000

func (f *feed) loop() *feedloop.Loop[map[string]*examined] {
	return &feedloop.Loop[map[string]*examined]{
		Load: f.load, Use: f.use, Changes: f.source.changes(), Interval: f.interval, Settle: f.settle, Confirm: f.cfg.ShrinkConfirm,
	}
}

// load reads the feed once. The outcome, if there are no lists to use, is that of each list or, for
// an error of a shared list, that of the list as a whole.
func (f *feed) load(ctx context.Context) (map[string]*examined, error) {
	lists, err := f.read(ctx)
	if err == nil || ctx.Err() != nil {
		return lists, err
	}
	if f.shared == nil || errors.Is(err, watch.ErrUnchanged) {
		now := time.Now()
		for _, l := range *f.lists.Load() {
			l.conclude(err)
			l.save(err, now)
		}
	}
	if f.shared != nil {
		f.shared.conclude(err)
	}
	return nil, err
}

// use puts the lists into use that the guard accepts, and returns the error of one that it refuses.
// The source is told whether it may return the same content again.
func (f *feed) use(read map[string]*examined) (refused error) {
	now, inUse := time.Now(), *f.lists.Load()
	if f.shared != nil {
		var err error
		if inUse, err = f.admit(inUse, read, now); err != nil {
			f.shared.conclude(err)
			f.source.forget()
			return err
		}
	}
	loaded := 0 // number of detectors in new lists
	for instance, l := range inUse {
		read := read[instance]
		err := l.replace(read.Codes, now)
		if err == nil {
			loaded += len(read.Codes)
		}
		if err == nil || errors.Is(err, watch.ErrUnchanged) { // other columns may have changed even if the codes have not
			l.setDoubtful(read.doubtful)
			if f.onList != nil {
				f.onList(read.DetectorList)
			}
		}
		l.conclude(err)
		l.save(err, now)
		if errors.As(err, new(*feedloop.Refused)) {
			refused = err
		}
	}
	f.lists.Store(&inUse)
	if f.shared != nil { // after its lists can be found
		f.shared.conclude(nil)
		f.shared.read.Store(true)
	}
	f.warn()
	if loaded >= manyDetectors {
		debug.FreeOSMemory()
	}
	switch {
	case refused == nil:
		f.source.keep()
	case f.shared != nil: // the list may be in use in part
		f.source.forget()
	}
	return refused
}

// admit returns a list for each product instance in a shared list that was read. The lists still
// contain the previous codes. If too many product instances are missing, admit returns before and
// an error.
func (f *feed) admit(before map[string]*list, lists map[string]*examined, now time.Time) (map[string]*list, error) {
	if err := shrink.AdmitKeys(&f.shared.guard, before, lists, now); err != nil {
		return before, err
	}
	next := make(map[string]*list, len(lists))
	for instance := range lists {
		if next[instance] = before[instance]; next[instance] == nil {
			next[instance] = f.newList(instance)
			metrics.Register(gauges(instance, next[instance].status)...)
		}
	}
	for instance, l := range before {
		if next[instance] == nil {
			metrics.Unregister(gauges(instance, l.status)...)
			_ = os.Remove(l.cache.path) // a file that cannot be removed expires
			f.log.Info().Str("product_instance", instance).Msg("the shared detector list no longer contains the product instance")
		}
	}
	return next, nil
}

// status returns the state of each list. For a shared list, the first one describes the list as a
// whole.
func (f *feed) status(now time.Time) []Status {
	lists := *f.lists.Load()
	all := make([]Status, 0, len(lists)+1)
	if f.shared != nil {
		all = append(all, f.sharedStatus(now))
	}
	for _, instance := range slices.Sorted(maps.Keys(lists)) {
		all = append(all, lists[instance].status(now))
	}
	return all
}

// doubtful returns the doubtful entries of all lists.
func (f *feed) doubtful() (all doubtful) {
	lists := *f.lists.Load()
	for _, instance := range slices.Sorted(maps.Keys(lists)) {
		d := lists[instance].getDoubtful()
		if f.shared != nil {
			d.warnings = slices.Clone(d.warnings)
			for i, w := range d.warnings {
				d.warnings[i] = instance + ": " + w
			}
		}
		all.add(d.entries, d.warnings...)
	}
	return all
}

// warn logs the doubtful entries if they have changed.
func (f *feed) warn() {
	d := f.doubtful()
	if d.entries > 0 && (d.entries != f.warned.entries || !slices.Equal(d.warnings, f.warned.warnings)) {
		f.log.Warn().Str("product_instance", cmp.Or(f.instance, everyInstance)).Int("entries", d.entries).Strs("first", d.warnings).
			Msg("the detector list has doubtful entries")
	}
	f.warned = d
}

func (f *feed) sharedStatus(now time.Time) Status {
	s := f.shared.status(now)
	d := f.doubtful()
	s.Doubtful, s.Warnings = d.entries, d.warnings
	for _, l := range *f.lists.Load() {
		if set := l.current.Load(); set != nil {
			s.Detectors += set.Len()
		}
	}
	return s
}

func (f *feed) gauges() (all []metrics.Collector) {
	if f.shared != nil {
		all = gauges(everyInstance, f.sharedStatus)
	}
	for instance, l := range *f.lists.Load() {
		all = append(all, gauges(instance, l.status)...)
	}
	return all
}
