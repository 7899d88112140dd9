package forecasts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/shrink"
)

// Layer receives normalised forecasts and takes ownership of them. Readers see updates only after
// Publish. A single goroutine calls the methods.
type Layer interface {
	// Put adds or replaces the forecast of a street.
	Put(f *pb.StreetForecast)
	// Remove removes the forecast of a street.
	Remove(street, fromnode int32)
	// Clear removes all forecasts, including those put since the last Publish.
	Clear()
	// Publish makes all updates so far visible. dataTime is the time of the newest data.
	Publish(dataTime time.Time)
	// Confirm records that the forecasts have not changed up to dataTime.
	Confirm(dataTime time.Time)
}

// feed is a source of forecasts. Only one goroutine calls its methods.
type feed interface {
	// check brings the layer up to date and returns the time of the data. The error is nil if it
	// published a change, watch.ErrUnchanged if there was none, and watch.ErrUnsettled while the
	// data is being written.
	check(ctx context.Context) (confirmed time.Time, err error)
	// changes returns a channel that receives a value when there may be new data, or nil if the feed
	// is only polled.
	changes() <-chan struct{}
	close()
}

var errNotRead = errors.New("the forecasts have not been read yet")

// Forecasts keeps a layer up to date.
type Forecasts struct {
	kind     string
	feed     feed          // nil if none is configured
	interval time.Duration // time between checks
	settle   time.Duration // delay between a change and the check for it, and between checks while data is being written
	confirm  time.Duration // shrink.Limits.ShrinkConfirm
	faults   *faults
	log      zerolog.Logger

	mu        sync.Mutex
	condition condition

	stop    context.CancelFunc
	running sync.WaitGroup
}

// New returns a Forecasts for the feed in cfg, which must be valid. It reads the TLS files, but no
// forecasts.
func New(cfg Config, layer Layer, log zerolog.Logger) (*Forecasts, error) {
	f := &Forecasts{kind: cfg.Feed, settle: watch.Settle, confirm: cfg.ShrinkConfirm}
	f.log = log.With().Str("feed", f.kind).Logger()
	f.faults = &faults{log: f.log}
	var err error
	switch cfg.Feed {
	case FeedKafka:
		f.interval, f.settle = topicInterval, topicInterval
		f.feed, err = newTopicFeed(cfg, layer, f.faults)
	case FeedFile:
		f.interval, f.feed = watch.Recheck, newFileFeed(cfg, layer, f.faults)
	case FeedClickHouse:
		f.interval, f.feed = cfg.ClickHouse.Interval, newQueryFeed(cfg, layer, f.faults)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Start reads the feed in the background until ctx is done or Close is called. Call it only once.
func (f *Forecasts) Start(ctx context.Context) {
	if f.feed == nil {
		return
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.mu.Lock()
	f.condition = condition{confirmed: time.Now(), err: errNotRead}
	f.mu.Unlock()
	metrics.Register(gauges(f)...)
	f.running.Go(func() {
		defer f.feed.close()
		watch.Rounds(ctx, f.feed.changes(), f.settle, f.check)
	})
}

// Close stops reading the feed and waits for the goroutine to exit. The layer keeps its forecasts.
func (f *Forecasts) Close() {
	if f.stop == nil {
		return
	}
	f.stop()
	f.running.Wait()
	metrics.Unregister(gauges(f)...)
}

// check checks the feed once and returns the time until the next check.
func (f *Forecasts) check(ctx context.Context) time.Duration {
	start := time.Now()
	confirmed, err := f.feed.check(ctx)
	if ctx.Err() != nil {
		return f.interval // the daemon is shutting down; the feed has not failed
	}
	metrics.Since(checkSeconds, start)
	return f.conclude(confirmed, err)
}

// conclude counts, logs and records the outcome of a check, and returns the time to the next check.
func (f *Forecasts) conclude(confirmed time.Time, err error) (next time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &f.condition
	switch {
	case err == nil:
		checksPublished.Inc()
	case errors.Is(err, watch.ErrUnchanged):
		checksUnchanged.Inc()
	case errors.Is(err, watch.ErrUnsettled):
		checksUnsettled.Inc()
		if !c.published {
			c.err = err
		}
		return f.settle
	default:
		next = min(f.interval, watch.RetryAfter)
		reason := fmt.Errorf("cannot read the forecasts: %w", err)
		if errors.As(err, new(*shrink.Error)) {
			checksRefused.Inc()
			reason, next = err, min(f.interval, max(f.confirm, watch.RetryAfter))
		} else {
			checksFailed.Inc()
		}
		// Polls fail at different partitions in turn, so errors may alternate.
		if c.logged.Allow(reason) {
			f.log.Warn().Err(err).Msg("cannot update the forecasts; keeping the current layer")
		}
		c.err = reason
		return next
	}
	if c.err != nil {
		f.log.Info().Msg("forecasts loaded")
	}
	*c = condition{published: true, confirmed: confirmed}
	return f.interval
}

// Status describes the feed. Without a feed it is the zero value.
type Status struct {
	Feed       string  `json:"feed"`             // kafka, file or clickhouse
	Published  bool    `json:"published"`        // a layer has been published
	AgeSeconds float64 `json:"age_seconds"`      // age of the data or, before the first layer, the time since Start
	Error      string  `json:"error,omitempty"`  // error of the last check
	Skipped    uint64  `json:"skipped"`          // records skipped since the beginning of the topic, or in the last file or query result
	Remarks    uint64  `json:"remarks"`          // defects in the records that were not skipped
	Faults     []Fault `json:"faults,omitempty"` // the latest skipped records and remarks, in order
}

// condition is the outcome of the checks so far.
type condition struct {
	published bool
	confirmed time.Time
	err       error
	logged    watch.ErrorLog
}

// Status returns the state of the feed, for the readiness check.
func (f *Forecasts) Status() Status {
	if f.feed == nil {
		return Status{}
	}
	f.mu.Lock()
	c := f.condition
	f.mu.Unlock()
	s := Status{Feed: f.kind, Published: c.published}
	s.Skipped, s.Remarks, s.Faults = f.faults.report()
	if !c.confirmed.IsZero() {
		s.AgeSeconds = max(0, time.Since(c.confirmed).Seconds())
	}
	if c.err != nil {
		s.Error = c.err.Error()
	}
	return s
}
