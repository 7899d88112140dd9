package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/dial"
	"trafficd/sources/internal/shrink"
	"trafficd/sources/internal/watch"
)

var errNotYet = errors.New("the detector list has not been read yet")

type feed struct {
	instance string
	kind     string
	source   source
	interval time.Duration // time between checks
	settle   time.Duration // time from a change to the check
	guard    shrink.Guard
	cache    cache
	log      zerolog.Logger

	current atomic.Pointer[batch.Detectors]
	mark    shrink.Mark // of current; used only by the goroutine that calls run

	mu        sync.Mutex // protects the fields below
	loaded    time.Time  // when current was read from the feed, or last confirmed before a restart
	leftOut   int        // entries of the list that are not valid codes
	confirmed time.Time  // the last successful check
	err       error      // of the last check
}

func newFeed(cfg Config, fc FeedConfig, log zerolog.Logger) *feed {
	f := &feed{
		instance: fc.ProductInstance, settle: cfg.Settle,
		guard: shrink.Guard{
			Limits: cfg.Limits, Content: "the list", Entries: "detectors", Hint: "to use it at once, set registry.max_shrink to 1 and send SIGHUP",
		},
		confirmed: time.Now(), err: errNotYet,
	}
	switch {
	case fc.File != nil:
		f.kind, f.interval, f.source = "file", cfg.Recheck, newFileSource(*fc.File, cfg.Settle, cfg.MaxBytes)
	case fc.HTTP != nil:
		f.kind, f.interval, f.source = "http", fc.HTTP.Interval, newHTTPSource(*fc.HTTP, cfg.MaxBytes)
	default:
		f.kind, f.interval, f.source = "clickhouse", fc.ClickHouse.Interval, &clickHouseSource{
			dial.Poller{ClickHouseQuery: *fc.ClickHouse},
			cfg.MaxBytes,
		}
	}
	f.cache = newCache(cfg, f.instance)
	f.log = log.With().Str("product_instance", f.instance).Str("feed", f.kind).Logger()
	return f
}

func (f *feed) run(ctx context.Context) {
	defer f.source.close()
	if f.current.Load() == nil {
		f.restore(time.Now())
	}
	watch.Rounds(ctx, f.source.changes(), f.settle, f.check)
}

func (f *feed) check(ctx context.Context) time.Duration {
	codes, err := f.source.read(ctx)
	if ctx.Err() != nil {
		return f.interval // the daemon is stopping; err is not an error of the feed
	}
	now := time.Now()
	if err == nil {
		err = f.take(codes, now)
	}
	wait := f.conclude(err)
	var failed error
	switch {
	case err == nil:
		failed = f.cache.save(codes)
	case errors.Is(err, watch.ErrUnchanged):
		failed = f.cache.confirm(now)
	}
	if failed != nil {
		f.log.Warn().Err(failed).Msg("cannot keep the detector list for a restart (registry.cache_dir)")
	}
	return wait
}

// restore puts the list of an earlier process in use until the feed is read.
func (f *feed) restore(now time.Time) {
	codes, at, err := f.cache.load(now)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Msg("cannot use the cached detector list")
		}
		return
	}
	set, leftOut := batch.NewDetectors(codes)
	if set.Len() == 0 {
		return
	}
	f.mark = markOf(codes)
	f.current.Store(set)
	f.mu.Lock()
	f.leftOut, f.loaded, f.confirmed = leftOut, at, at
	f.mu.Unlock()
	f.log.Info().Int("detectors", set.Len()).Time("confirmed", at).Msg("using the cached detector list until the feed is read")
}

// take puts a list in use. It returns an error if the list is unchanged or has shrunk too much.
func (f *feed) take(codes []string, now time.Time) error {
	mark := markOf(codes)
	if f.current.Load() != nil && mark == f.mark {
		f.source.keep()
		return watch.ErrUnchanged
	}
	set, leftOut := batch.NewDetectors(codes)
	if err := admit(&f.guard, f.current.Load(), set, mark, now); err != nil {
		return err
	}
	f.mark = mark
	f.current.Store(set)
	f.source.keep()
	f.mu.Lock()
	f.leftOut, f.loaded = leftOut, now
	f.mu.Unlock()
	f.log.Info().Int("detectors", set.Len()).Int("left_out", leftOut).Str("version", set.Version()).Msg("detector list loaded")
	return nil
}

func (f *feed) conclude(err error) time.Duration {
	var suspect *shrink.Error
	switch {
	case err == nil:
		reloadsLoaded.Inc()
		f.record(nil)
		return f.interval
	case errors.Is(err, watch.ErrUnchanged):
		reloadsUnchanged.Inc()
		f.guard.Calm()
		if f.record(nil) {
			f.log.Info().Msg("detector list is readable again and unchanged")
		}
		return f.interval
	case errors.Is(err, watch.ErrUnsettled):
		reloadsUnsettled.Inc()
		if f.current.Load() == nil {
			f.record(err)
		}
		return f.settle
	case errors.As(err, &suspect):
		reloadsRefused.Inc()
		f.keepLast(err)
		return min(f.interval, max(f.guard.ShrinkConfirm, watch.RetryAfter))
	default:
		reloadsFailed.Inc()
		f.keepLast(fmt.Errorf("cannot load the detector list of %s: %w", f.instance, err))
		return min(f.interval, watch.RetryAfter)
	}
}

func (f *feed) keepLast(err error) {
	if f.record(err) {
		f.log.Warn().Err(err).Bool("list_in_use", f.current.Load() != nil).Msg("cannot use the detector list; keeping the last good one")
	}
}

// Status is the state of a feed. Its product instance cannot be served while Detectors is 0.
type Status struct {
	ProductInstance string  `json:"product_instance"`
	Kind            string  `json:"kind"`            // file, http or clickhouse
	Detectors       int     `json:"detectors"`       // number of detectors in use; 0 before the first list
	Version         string  `json:"version"`         // of the list in use: equal for the same codes in any order, on every replica
	LoadedAt        string  `json:"loaded_at"`       // when it was read, RFC 3339; empty before the first list
	LeftOut         int     `json:"left_out"`        // entries of the list that are empty or too long for a code
	AgeSeconds      float64 `json:"age_seconds"`     // since the feed last confirmed the list in use, or since Start
	Error           string  `json:"error,omitempty"` // error of the last check; empty if it succeeded
	Pending         bool    `json:"-"`               // the first list has not been read yet, or the file was written too recently
}

func (f *feed) status(now time.Time) Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{
		ProductInstance: f.instance, Kind: f.kind, LeftOut: f.leftOut, AgeSeconds: now.Sub(f.confirmed).Seconds(),
		Pending: f.err == errNotYet || errors.Is(f.err, watch.ErrUnsettled),
	}
	if set := f.current.Load(); set != nil {
		s.Detectors, s.Version, s.LoadedAt = set.Len(), set.Version(), f.loaded.UTC().Format(time.RFC3339)
	}
	if f.err != nil {
		s.Error = f.err.Error()
	}
	return s
}

// record stores the outcome of a check and reports whether it differs from the previous one, so that
// the caller logs only changes.
func (f *feed) record(err error) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.err
	f.err = err
	if err == nil {
		f.confirmed = time.Now()
		return before != nil
	}
	return before == nil || before.Error() != err.Error()
}
