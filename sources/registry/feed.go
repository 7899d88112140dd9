package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/dial"
	"trafficd/sources/internal/shrink"
	"trafficd/sources/internal/watch"
)

// source reads a feed's list. It is used by one goroutine.
type source interface {
	// read returns the whole list, watch.ErrUnchanged if it is known to be the one for which keep
	// was called, or watch.ErrUnsettled if it is being written.
	read(ctx context.Context) ([]string, error)
	// keep reports that the list read last is in use.
	keep()
	// changes receives when there may be a new list; nil: the source must be polled.
	changes() <-chan struct{}
	close()
}

var errNotYet = errors.New("the detector list has not been read yet")

// feed is the list of one product instance and its source.
type feed struct {
	instance string
	kind     string
	source   source
	interval time.Duration // between checks
	settle   time.Duration // from a change to its check
	guard    shrink.Guard
	log      zerolog.Logger

	current atomic.Pointer[batch.Detectors]
	mark    shrink.Mark // of current; the feed's goroutine only

	mu        sync.Mutex // of what follows
	leftOut   int        // entries of current that are not codes
	confirmed time.Time  // the last successful check
	err       error      // of the last check
}

func newFeed(cfg Config, fc FeedConfig, log zerolog.Logger) *feed {
	f := &feed{
		instance: fc.ProductInstance,
		settle:   cfg.Settle,
		guard:    shrink.Guard{Limits: cfg.Limits, Content: "the list", Entries: "detectors", Hint: "to use it at once, set registry.max_shrink to 1 and send SIGHUP"},
	}
	switch {
	case fc.File != nil:
		f.kind, f.interval, f.source = "file", cfg.Recheck, newFileSource(*fc.File, cfg.Settle, cfg.MaxBytes)
	case fc.HTTP != nil:
		f.kind, f.interval, f.source = "http", fc.HTTP.Interval, newHTTPSource(*fc.HTTP, cfg.MaxBytes)
	default:
		f.kind, f.interval, f.source = "clickhouse", fc.ClickHouse.Interval, &clickHouseSource{dial.Poller{ClickHouseQuery: *fc.ClickHouse}, cfg.MaxBytes}
	}
	f.log = log.With().Str("product_instance", f.instance).Str("feed", f.kind).Logger()
	return f
}

// run checks the feed at once, after every change and after every interval, until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.source.close()
	watch.Rounds(ctx, f.source.changes(), f.settle, f.check)
}

// check reads the feed once and returns when to do so again.
func (f *feed) check(ctx context.Context) time.Duration {
	codes, err := f.source.read(ctx)
	if ctx.Err() != nil {
		return f.interval // the daemon is stopping, which says nothing about the feed
	}
	if err == nil {
		err = f.take(codes, time.Now())
	}
	return f.conclude(err)
}

// take puts a list in use unless it already is, or is suspicious.
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
	f.leftOut = leftOut
	f.mu.Unlock()
	f.log.Info().Int("detectors", set.Len()).Int("left_out", leftOut).Msg("detector list loaded")
	return nil
}

// conclude counts and records the outcome of a check.
func (f *feed) conclude(err error) time.Duration {
	var suspect *shrink.Error
	switch {
	case err == nil:
		reloadsLoaded.Inc()
		f.record(nil, time.Now())
		return f.interval
	case errors.Is(err, watch.ErrUnchanged):
		reloadsUnchanged.Inc()
		f.guard.Calm()
		if f.record(nil, time.Now()) {
			f.log.Info().Msg("detector list is readable again, and unchanged")
		}
		return f.interval
	case errors.Is(err, watch.ErrUnsettled):
		reloadsUnsettled.Inc()
		if f.current.Load() == nil {
			f.record(err, time.Now())
		}
		return f.settle
	case errors.As(err, &suspect):
		reloadsRefused.Inc()
		f.complain(err)
		return min(f.interval, max(f.guard.ShrinkConfirm, watch.RetryAfter))
	default:
		reloadsFailed.Inc()
		f.complain(fmt.Errorf("cannot load the detector list of %s: %w", f.instance, err))
		return min(f.interval, watch.RetryAfter)
	}
}

func (f *feed) complain(err error) {
	if f.record(err, time.Now()) {
		f.log.Warn().Err(err).Bool("list_in_use", f.current.Load() != nil).Msg("cannot use the detector list; keeping the last good one")
	}
}
