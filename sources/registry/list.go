package registry

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/watch"
	"trafficd/sources/internal/shrink"
)

// list is the detector list in use for a product instance, and the outcome of the last check.
type list struct {
	*feedloop.Status
	instance string
	kind     string
	guard    shrink.Guard
	cache    cache
	log      zerolog.Logger

	current atomic.Pointer[batch.Detectors]
	mark    shrink.Mark // of current; used only by the feed's goroutine, like the next field
	cached  bool        // the cache contains current

	mu       sync.Mutex // guards the fields below
	loaded   time.Time  // when current was read from the feed, or last confirmed before a restart
	leftOut  int        // number of entries that are not valid codes
	doubtful doubtful   // entries of current
}

func newList(cfg Config, instance, kind string, log zerolog.Logger) *list {
	log = log.With().Str("product_instance", instance).Logger()
	return &list{
		instance: instance, kind: kind, cache: newCache(cfg, instance), log: log,
		Status: feedloop.NewStatus("the detector list of "+instance, reloads, log),
		guard: shrink.Guard{
			Limits: cfg.Limits, Content: "the list", Entries: "detectors",
			Hint: "to use it immediately, set registry.max_shrink to 1 and send SIGHUP",
		},
	}
}

// adopt copies the state of another list, so that the wait for confirmation of a suspect list
// does not start again. It must be called before l is used.
func (l *list) adopt(before *list) {
	limits := l.guard.Limits
	l.guard, l.guard.Limits = before.guard, limits
	l.current.Store(before.current.Load())
	l.cached = before.cached && before.cache.path == l.cache.path
	l.mark, l.leftOut, l.loaded, l.doubtful = before.mark, before.leftOut, before.loaded, before.doubtful
	l.Set(before.Get())
}

// restore uses the list that an earlier process has cached, and reports whether there is one.
func (l *list) restore(now time.Time) bool {
	codes, at, err := l.cache.load(now)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.log.Warn().Err(err).Msg("cannot use the cached detector list")
		}
		return false
	}
	set, leftOut := batch.NewDetectors(codes)
	if set.Len() == 0 {
		return false
	}
	l.mark, l.cached = markOf(codes), true
	l.current.Store(set)
	l.mu.Lock()
	l.leftOut, l.loaded = leftOut, at
	l.mu.Unlock()
	l.Set(feedloop.State{InUse: true, Confirmed: at, Err: l.Get().Err})
	l.log.Info().Int("detectors", set.Len()).Time("confirmed", at).Msg("using the cached detector list until the feed is read")
	return true
}

// replace puts codes into use. It returns watch.ErrUnchanged if they are already in use, and a
// *feedloop.Refused if there are none or too many are missing.
func (l *list) replace(codes []string, now time.Time) error {
	mark := markOf(codes)
	if l.current.Load() != nil && mark == l.mark {
		return watch.ErrUnchanged
	}
	set, leftOut := batch.NewDetectors(codes)
	if err := admit(&l.guard, l.current.Load(), set, mark, now); err != nil {
		return err
	}
	before := 0
	if old := l.current.Load(); old != nil {
		before = old.Len()
	}
	l.mark = mark
	l.current.Store(set)
	l.mu.Lock()
	l.leftOut, l.loaded = leftOut, now
	l.mu.Unlock()
	level, message := zerolog.InfoLevel, "detector list loaded"
	if errors.As(l.Get().Err, new(*feedloop.Refused)) {
		level, message = zerolog.WarnLevel, "detector list loaded although it was refused at first: it has not changed since then"
	}
	l.log.WithLevel(level).Int("detectors", set.Len()).Int("detectors_before", before).Int("left_out", leftOut).
		Str("version", set.Version()).Msg(message)
	return nil
}

// save updates the cached list according to taken, the result of take, or of reading the feed. A
// list that could not be saved is saved by a later call.
func (l *list) save(taken error, now time.Time) {
	unchanged := errors.Is(taken, watch.ErrUnchanged)
	if taken != nil && !unchanged {
		return
	}
	var err error
	if unchanged && l.cached {
		err = l.cache.confirm(now)
	} else {
		err = l.cache.save(l.current.Load())
		l.cached = err == nil
	}
	if err != nil {
		l.log.Warn().Err(err).Msg("cannot save the detector list for a restart (registry.cache_dir)")
	}
}

// conclude records the outcome of a check.
func (l *list) conclude(err error) {
	if errors.Is(err, watch.ErrUnchanged) {
		l.guard.Reset()
	}
	l.Conclude(err)
}

// Status is the state of a list. Its product instance cannot be served while Detectors is 0.
type Status struct {
	ProductInstance string   `json:"product_instance"`
	Kind            string   `json:"kind"`               // file, http or clickhouse
	Detectors       int      `json:"detectors"`          // number of detectors in use; 0 before the first list
	Version         string   `json:"version"`            // of the list in use; depends only on the set of codes
	LoadedAt        string   `json:"loaded_at"`          // when the list was read, RFC 3339; empty before the first list
	LeftOut         int      `json:"left_out"`           // number of entries that are empty or too long for a code
	Doubtful        int      `json:"doubtful"`           // number of entries whose code or position seems wrong, or that were left out
	Warnings        []string `json:"warnings,omitempty"` // about the first of them
	AgeSeconds      float64  `json:"age_seconds"`        // time since the feed last confirmed the list in use, or since New
	Error           string   `json:"error,omitempty"`    // error of the last check; empty if it succeeded
	Pending         bool     `json:"-"`                  // no list has been read yet, or the file is being written
}

func (l *list) status(now time.Time) Status {
	state := l.Get()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{
		ProductInstance: l.instance, Kind: l.kind, LeftOut: l.leftOut, Doubtful: l.doubtful.entries, Warnings: l.doubtful.warnings,
		AgeSeconds: now.Sub(state.Confirmed).Seconds(),
		Pending:    errors.Is(state.Err, feedloop.ErrNotRead) || errors.Is(state.Err, watch.ErrUnsettled),
	}
	if set := l.current.Load(); set != nil {
		s.Detectors, s.Version, s.LoadedAt = set.Len(), set.Version(), l.loaded.UTC().Format(time.RFC3339)
	}
	if state.Err != nil {
		s.Error = state.Err.Error()
	}
	return s
}

func (l *list) setDoubtful(d doubtful) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = d
}

func (l *list) getDoubtful() doubtful {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubtful
}

// admit returns nil if next may replace current, which is nil at first. It never accepts an empty
// list, because every measurement would then be rejected as UNKNOWN_DETECTOR.
func admit(g *shrink.Guard, current, next *batch.Detectors, mark shrink.Mark, now time.Time) error {
	if next.Len() == 0 {
		return &feedloop.Refused{Reason: "the list has no detector codes: an empty list is never used"}
	}
	if current == nil {
		return nil
	}
	missing := 0
	for i := range current.Len() {
		if !next.Has(current.Code(i)) {
			missing++
		}
	}
	return g.Admit(missing, current.Len(), mark, now)
}

func markOf(codes []string) (m shrink.Mark) {
	for _, c := range codes {
		m.Add(xxhash.Sum64String(c))
	}
	return m
}
