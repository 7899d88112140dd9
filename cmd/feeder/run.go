package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"trafficd/cmd/feeder/config"
	"trafficd/cmd/feeder/internal/spool"
	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/program"
	"trafficd/cmd/internal/version"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/feeds"
)

var (
	values = metrics.NewCounters("trafficd_feeder_values_total",
		"Published values, by outcome: new, repeated, no_vehicle, fault or skipped. Only new ones are sent.", "feed", "outcome")
	totals = metrics.NewCounters("trafficd_feeder_totals_total",
		"Measurements of whole carriageways that were computed from those of lanes, and are sent besides the values.", "feed")
	pulls = metrics.NewCounters("trafficd_feeder_pulls_total",
		"Pulls, by result: new, repeated (a document without a new value), unchanged (no document) or failed.", "feed", "result")
	accepted = metrics.NewCounters("trafficd_feeder_accepted_total", "Measurements that trafficd has accepted.", "feed")
	rejected = metrics.NewCounters("trafficd_feeder_rejected_total", "Measurements that trafficd has rejected, by code.", "feed", "code")
	retries  = metrics.NewCounters("trafficd_feeder_retries_total",
		"POST requests that trafficd did not accept; the batch is sent again.", "feed")
	sites  = metrics.NewGauges("trafficd_feeder_sites", "Sites in the list that trafficd reads.", "feed")
	newest = metrics.NewGauges("trafficd_feeder_newest_timestamp_seconds",
		"End of the newest interval that was published, as Unix time in seconds.", "feed")
)

// staleAfter is the number of pulls without a new value after which a feed is stale.
const staleAfter = 5

// feed pulls and sends one feed.
type feed struct {
	cfg    authority.Feed
	log    zerolog.Logger
	dir    string
	format feeds.Format
	spool  *spool.Spool
	list   *siteList
	sites  *feedSites
	daemon *client.Client
	state  program.Status[status]

	// Used only by pulls.
	options   feeds.Options // with the table
	data      *authority.Source
	table     *authority.Source // nil: none
	nextTable time.Time
	newest    time.Time // end of the newest interval in the previous document
}

// status is the state that the readiness check reports.
type status struct {
	pull, table, unsent error     // of the latest attempts
	advanced            time.Time // when a new value was published last, or the start
}

func newFeed(c *config.Config, cfg authority.Feed, daemon *client.Client, list *siteList, log zerolog.Logger) (f *feed, err error) {
	f = &feed{cfg: cfg, daemon: daemon, list: list, log: log.With().Str("feed", cfg.Name).Logger(), dir: filepath.Join(c.Spool.Dir, cfg.Name)}
	f.format, _ = feeds.Lookup(cfg.Format)
	if f.options, err = cfg.Options(""); err != nil {
		return nil, err
	}
	if f.spool, err = spool.Open(f.dir, c.Spool.MaxBytes); err != nil {
		return nil, err
	}
	if f.data, err = authority.NewSource(cfg, cfg.URL, f.path("download")); err != nil {
		return nil, err
	}
	if cfg.Sites != "" {
		if f.table, err = authority.NewSource(cfg, cfg.Sites, f.path(tableFile+".download")); err != nil {
			return nil, err
		}
	}
	f.state.Store(&status{advanced: time.Now()})
	f.sites = &feedSites{known: map[string]bool{}, seen: map[string]bool{}}
	list.feeds = append(list.feeds, f.sites)
	label := map[string]string{"feed": cfg.Name}
	metrics.Register(
		metrics.GaugeFunc("trafficd_feeder_stale", "1 if nothing new was published for five times feeds[].every, else 0.", label,
			func() float64 { return metrics.Bool(f.stale() != "") }),
		metrics.GaugeFunc("trafficd_feeder_spool_bytes", "Size of the measurements that trafficd has not accepted yet.", label,
			func() float64 { return float64(f.spool.Bytes()) }),
		metrics.GaugeFunc("trafficd_feeder_unsent_seconds", "Age of the oldest measurements that were not accepted yet, in seconds.", label,
			func() float64 { return unsentFor(f.spool).Seconds() }))
	return f, nil
}

// path returns the path of one of the feed's files.
func (f *feed) path(name string) string { return filepath.Join(f.dir, name) }

func unsentFor(s *spool.Spool) time.Duration {
	if oldest := s.Oldest(); !oldest.IsZero() {
		return time.Since(oldest)
	}
	return 0
}

// stale returns why the feed is stale, or "".
func (f *feed) stale() string {
	s := f.state.Load()
	age := time.Since(s.advanced)
	switch {
	case age <= staleAfter*f.cfg.Every:
		return ""
	case s.pull != nil:
		return s.pull.Error()
	}
	return fmt.Sprintf("nothing new was published since %s", s.advanced.UTC().Format(time.RFC3339))
}

// repeat pulls the feed until ctx is done.
func (f *feed) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		next := time.Now().Add(f.cfg.Every)
		err := f.pull(ctx)
		if err != nil && ctx.Err() == nil {
			pulls.WithLabelValues(f.cfg.Name, "failed").Inc()
			if before := f.state.Load().pull; before == nil || before.Error() != err.Error() {
				f.log.Warn().Err(err).Msg("cannot pull the feed; retrying")
			}
		}
		f.state.Update(func(s *status) { s.pull = err })
		sleep(ctx, next)
	}
}

func sleep(ctx context.Context, until time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(until)):
	}
}

// gcPercent is Go's GOGC. With 25 instead of 100, a feed with 97,000 sites in its table takes 58 MB
// instead of 84, and hardly more CPU time, because most of the heap does not change.
const gcPercent = 25

func run(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	debug.SetGCPercent(gcPercent)
	if err := os.MkdirAll(c.Spool.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot create spool.dir: %w", err)
	}
	dir, err := os.Open(c.Spool.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("cannot lock spool.dir %s: %w; another feeder uses it", c.Spool.Dir, err)
	}
	daemon, err := c.Trafficd.Client()
	if err != nil {
		return err
	}
	defer daemon.Close()
	list := &siteList{}
	var all []*feed
	for _, cfg := range c.Feeds {
		f, err := newFeed(c, cfg, daemon, list, log)
		if err != nil {
			return fmt.Errorf("feed %s: %w", cfg.Name, err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		if err := f.recall(); err != nil {
			return err
		}
	}
	routes := map[string]http.Handler{"GET /sites": list}
	return program.Serve(ctx, "feeder", c.Ops, func() ops.Readiness { return readiness(list, all) }, routes, log, func() {
		var running sync.WaitGroup
		for _, f := range all {
			running.Go(func() { f.repeat(ctx) })
			running.Go(func() { f.deliver(ctx) })
		}
		running.Wait()
	})
}

// readiness returns NotReady before the list of sites can be served, and Degraded while a feed is
// stale, a pull fails or batches are not accepted.
func readiness(list *siteList, all []*feed) ops.Readiness {
	components := map[string]ops.Component{}
	own := ops.Component{State: ops.OK, Detail: map[string]any{"version": version.Text()}}
	if !list.isReady() {
		own.Add(ops.NotReady, ops.FeedStale, "no site has been read yet, so that trafficd gets no list")
	}
	components["feeder"] = own
	for _, f := range all {
		s := f.state.Load()
		c := ops.Component{State: ops.OK, Detail: map[string]any{"spool_bytes": f.spool.Bytes(), "new_values": s.advanced}}
		add := func(see ops.Entry, err error) {
			if err != nil && !errors.Is(err, context.Canceled) {
				c.Add(ops.Degraded, see, err.Error())
			}
		}
		add(ops.FeedStale, s.pull)
		add(ops.FeedStale, s.table)
		add(ops.FeedUnsent, s.unsent)
		if why := f.stale(); why != "" && s.pull == nil {
			c.Add(ops.Degraded, ops.FeedStale, why)
		}
		components["feeds."+f.cfg.Name] = c // a feed may be named feeder
	}
	return ops.NewReadiness(components)
}
