package forecasts

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
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

// Forecasts keeps a layer up to date.
type Forecasts struct {
	kind   string
	feed   feed // nil if none is configured
	loop   feedloop.Loop[time.Time]
	faults *faults
	log    zerolog.Logger
	newest atomic.Pointer[time.Time] // time of the data in the layer; nil before the first one

	stop func()
}

// New returns a Forecasts for the feed in cfg, which must be valid. It reads the TLS files, but no
// forecasts.
func New(cfg Config, layer Layer, log zerolog.Logger) (*Forecasts, error) {
	f := &Forecasts{kind: cfg.Feed, log: log.With().Str("feed", cfg.Feed).Logger()}
	f.faults = &faults{log: f.log}
	interval, settle := watch.Recheck, watch.Settle
	var err error
	switch cfg.Feed {
	case FeedKafka:
		interval, settle = topicInterval, topicInterval
		f.feed, err = newTopicFeed(cfg, layer, f.faults)
	case FeedFile:
		f.feed = newFileFeed(cfg, layer, f.faults)
	case FeedClickHouse:
		interval, f.feed = cfg.ClickHouse.Interval, newQueryFeed(cfg, layer, f.faults)
	default:
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.setLoop(interval, settle, cfg.ShrinkConfirm)
	return f, nil
}

func (f *Forecasts) setLoop(interval, settle, confirm time.Duration) {
	f.loop = feedloop.Loop[time.Time]{
		Load: f.load, Use: f.use, Status: feedloop.NewStatus("the forecast layer", checks, f.log),
		Changes: f.feed.changes(), Interval: interval, Settle: settle, Confirm: confirm,
	}
}

// Start reads the feed in the background until ctx is done or Close is called. Call it only once.
func (f *Forecasts) Start(ctx context.Context) {
	if f.feed == nil {
		return
	}
	metrics.Register(gauges(f)...)
	f.stop = f.loop.Start(ctx)
}

// Close stops reading the feed and waits for the goroutine to exit. The layer keeps its forecasts.
func (f *Forecasts) Close() {
	if f.stop == nil {
		return
	}
	f.stop()
	f.feed.close()
	metrics.Unregister(gauges(f)...)
	f.stop = nil
}

// load brings the layer up to date. The feeds also publish it, because they pass each forecast to
// the layer as soon as it is decoded.
func (f *Forecasts) load(ctx context.Context) (newest time.Time, err error) {
	defer metrics.Since(checkSeconds, time.Now())
	newest, err = f.feed.check(ctx)
	if errors.Is(err, watch.ErrUnchanged) {
		_ = f.use(newest)
	}
	return newest, err
}

func (f *Forecasts) use(newest time.Time) error {
	f.newest.Store(&newest)
	return nil
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

// Status returns the state of the feed, for the readiness check.
func (f *Forecasts) Status() Status {
	if f.feed == nil {
		return Status{}
	}
	state := f.loop.Status.Get()
	s := Status{Feed: f.kind, Published: state.InUse}
	s.Skipped, s.Remarks, s.Faults = f.faults.report()
	since := state.Confirmed
	if newest := f.newest.Load(); newest != nil {
		since = *newest
	}
	s.AgeSeconds = max(0, time.Since(since).Seconds())
	if state.Err != nil {
		s.Error = state.Err.Error()
	}
	return s
}
