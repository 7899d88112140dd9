package forecasts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/rs/zerolog"

	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/internal/watch"
)

// Layer takes the forecasts. One goroutine calls it. What it is given is
// normalised and belongs to it from then on; nothing of it is visible to
// readers before Publish.
type Layer interface {
	// Put replaces the earlier forecast of the same street and fromnode.
	Put(f *pb.StreetForecast)
	// Remove takes a street's forecast away.
	Remove(street, fromnode int32)
	// Replace swaps everything for the feed's whole content: each street once.
	Replace(all []*pb.StreetForecast)
	// Publish makes what was put so far visible. The first call ever is the
	// first layer that may be seen.
	Publish(confirmed time.Time)
	// Confirm says that the feed stands by its data at that time, unchanged.
	Confirm(at time.Time)
}

// feed is where forecasts come from. One goroutine calls it.
type feed interface {
	// check brings the layer up to date. It gives the time at which the feed
	// confirmed its data, and no error if it published a change; watch.ErrUnchanged
	// if there was none; watch.ErrUnsettled if the data is being written just now.
	check(ctx context.Context) (confirmed time.Time, err error)
	// changes yields when there may be new data; nil: only asking tells.
	changes() <-chan struct{}
	close()
}

var errNotYet = errors.New("the forecasts have not been read yet")

// Forecasts keeps a layer up to date.
type Forecasts struct {
	kind     string
	feed     feed          // nil: there is none
	interval time.Duration // between checks
	settle   time.Duration // from a change to its check
	faults   *faults
	log      zerolog.Logger
	gauges   *metrics.Set

	mu        sync.Mutex
	condition condition

	stop    context.CancelFunc
	running sync.WaitGroup
}

// New makes the feed of a valid configuration. It reads the files of TLS, but
// no forecasts, and starts nothing: that is for Start.
func New(cfg Config, layer Layer, log zerolog.Logger) (*Forecasts, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cannot use the configuration of forecasts: %w", err)
	}
	f := &Forecasts{kind: cfg.Feed, settle: cfg.File.Settle, gauges: metrics.NewSet()}
	f.log = log.With().Str("feed", f.kind).Logger()
	f.faults = &faults{log: f.log}
	var err error
	switch cfg.Feed {
	case FeedKafka:
		f.interval = cfg.Kafka.Interval
		f.feed, err = newTopicFeed(cfg.Kafka, cfg.MaxBytes, layer, f.faults)
	case FeedFile:
		f.interval, f.feed = cfg.File.Recheck, newFileFeed(cfg.File, cfg.MaxBytes, layer, f.faults)
	case FeedClickHouse:
		f.interval, f.feed = cfg.ClickHouse.Interval, newQueryFeed(cfg.ClickHouse, cfg.MaxBytes, layer, f.faults)
	}
	if err != nil {
		return nil, err
	}
	addGauges(f.gauges, f)
	return f, nil
}

// Start begins to read the feed and returns at once. The goroutine ends with
// ctx or Close, and only Close waits for it. Start is called once.
func (f *Forecasts) Start(ctx context.Context) {
	if f.feed == nil {
		return
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.begin(time.Now())
	metrics.RegisterSet(f.gauges)
	f.running.Go(func() { f.run(ctx) })
}

// Close ends the feed and waits for it. The layer keeps what it has.
func (f *Forecasts) Close() {
	if f.stop == nil {
		return
	}
	f.stop()
	f.running.Wait()
	metrics.UnregisterSet(f.gauges, false)
}

// run checks the feed at once, after every change and whenever the interval is
// over, until ctx ends.
func (f *Forecasts) run(ctx context.Context) {
	defer f.feed.close()
	watch.Rounds(ctx, f.feed.changes(), f.settle, f.check)
}

// check asks the feed once and tells when to do so again.
func (f *Forecasts) check(ctx context.Context) time.Duration {
	start := time.Now()
	confirmed, err := f.feed.check(ctx)
	if ctx.Err() != nil {
		return f.interval // it was cut off by the end of the daemon, which says nothing about the feed
	}
	checkSeconds.UpdateDuration(start)
	return f.conclude(confirmed, err)
}

// conclude counts and records the outcome of a check.
func (f *Forecasts) conclude(confirmed time.Time, err error) time.Duration {
	switch {
	case err == nil:
		checksPublished.Inc()
	case errors.Is(err, watch.ErrUnchanged):
		checksUnchanged.Inc()
	case errors.Is(err, watch.ErrUnsettled):
		checksUnsettled.Inc()
		f.unsettled(err)
		return f.settle
	default:
		checksFailed.Inc()
		if f.failed(fmt.Errorf("cannot read the forecasts: %w", err), time.Now()) {
			f.log.Warn().Err(err).Msg("forecasts not taken; the layer stays as it is")
		}
		return min(f.interval, watch.RetryAfter)
	}
	if f.well(confirmed) {
		f.log.Info().Msg("forecasts are read")
	}
	return f.interval
}
