package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/forecaster/internal/streets"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/must"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/internal/version"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/replace"
	schema "trafficd/schemas/clickhouse"
	pb "trafficd/schemas/proto/trafficd/v1"
	"trafficd/sources/forecasts"
)

var (
	streetsByBasis = metrics.NewGauges("trafficd_forecaster_streets",
		"Streets, by the basis of their forecasts: own, pool, last (the last value) or nothing.", "basis")
	published = metrics.NewCounter("trafficd_forecaster_published_total", "Forecasts of streets that were published.")
	removed   = metrics.NewCounter("trafficd_forecaster_removed_total", "Streets that were removed from the topic.")
	failures  = metrics.NewCounters("trafficd_forecaster_failures_total",
		"Failures, by step: learn, detectors, forecast or publish.", "step")
	daysLearned = metrics.NewCounter("trafficd_forecaster_days_learned_total", "Days that were learned.")
	stepSeconds = metrics.NewSeconds("trafficd_forecaster_step_seconds",
		"Time to compute the forecasts of an interval, excluding the query, in seconds.")
	roundSeconds = metrics.NewSeconds("trafficd_forecaster_round_seconds",
		"Time from the query to the end of the publication, in seconds.")
	originGauge = metrics.NewGauge("trafficd_forecaster_origin_timestamp_seconds",
		"End of the last interval before the published forecasts, as Unix time in seconds.")
	unplaced  = metrics.NewGauge("trafficd_forecaster_unplaced_detectors", "Detectors without a street.")
	unlocated = metrics.NewGauge("trafficd_forecaster_unlocated_streets",
		"Streets without a location, or with one that cannot be encoded: no map shows their forecasts.")
)

const (
	retryAfter = 5 * time.Second // delay before a failed round is retried

	transactionTimeout = time.Minute // brokers abort a publication that takes longer

	// settle is the time for which a new version of the detectors file must be unmodified before it is
	// used: forecasts would be removed for the streets that a half-written file lacks.
	settle = time.Second

	// renewAfter is the time without a publication after which a forecast is published although it has
	// not changed: the daemon takes the time of the latest record as the time of the data.
	renewAfter = 10 * time.Minute
)

// forecaster publishes forecasts of the streets of a product instance.
type forecaster struct {
	cfg    *config.Config
	log    zerolog.Logger
	source *archive.Source
	out    output

	learned *model.Learned
	fresh   atomic.Bool // a day has been learned but not loaded yet
	content streets.Content
	changed time.Time         // modification time of the detectors file
	sent    map[string]uint64 // digests of the published forecasts by key; nil: unknown
	written time.Time         // origin of the latest publication or, if there was none since, when sent was read
	state   atomic.Pointer[status]
	latest  atomic.Pointer[snapshot]
}

// status is the state that the readiness check reports.
type status struct {
	origin  time.Time // of the published forecasts; zero before the first publication
	err     error     // of the latest round
	learn   error     // of the latest attempt to learn
	invalid error     // the ignored detectors
	streets map[model.Basis]int

	uncovered []string // measure types in the archive that are not used, although Measure or Count is above them
}

type output interface {
	// Digests returns the digests of the published forecasts by key.
	Digests(ctx context.Context, timeout time.Duration) (map[string]uint64, error)
	// put publishes the changed forecasts and removes the keys in remove. all contains every forecast.
	put(ctx context.Context, all, changed []*pb.StreetForecast, remove []string) error
	Close()
}

func newOutput(o config.Output) (output, error) {
	if o.Feed == forecasts.FeedFile {
		return fileOutput{o.File}, nil
	}
	p, err := newPublisher(o)
	return topicOutput{p}, err
}

func newPublisher(o config.Output) (*publish.Publisher, error) {
	return publish.NewPublisher(o.Kafka, publish.Options{ID: o.TransactionalID, Timeout: transactionTimeout})
}

type topicOutput struct{ *publish.Publisher }

func (t topicOutput) put(ctx context.Context, _, changed []*pb.StreetForecast, remove []string) error {
	return t.Publish(ctx, changed, remove, func(int) {})
}

type fileOutput struct{ config.OutputFile }

// Digests returns a key that no street has, so that the first publication always replaces the file.
func (f fileOutput) Digests(context.Context, time.Duration) (map[string]uint64, error) {
	return map[string]uint64{"": 0}, nil
}
func (f fileOutput) Close() {}
func (f fileOutput) put(_ context.Context, all, _ []*pb.StreetForecast, _ []string) error {
	format := cmp.Or(f.Format, forecasts.FormatOf(f.Path))
	return replace.File(f.Path, 0o644, func(w io.Writer) error {
		if !strings.HasSuffix(strings.ToLower(f.Path), ".gz") {
			_, err := publish.Write(w, format, slices.Values(all))
			return err
		}
		z := gzip.NewWriter(w)
		_, err := publish.Write(z, format, slices.Values(all))
		return errors.Join(err, z.Close())
	})
}

// check returns the problems that would keep the forecaster from working: those with the files and,
// if deep, those with the stores. It writes what else is wrong with the detectors to w.
func check(ctx context.Context, w io.Writer, c *config.Config, origins conf.Origins, deep bool) error {
	content, err := streets.Read(c.Detectors)
	if warnings := content.Warnings(); err == nil && warnings != nil {
		fmt.Fprintf(w, "warnings about the detectors in %s:\n%v\n", c.Detectors.Path, warnings)
	}
	errs := []error{conf.Absolute(err)}
	if c.Output.Feed == forecasts.FeedFile {
		if err := unix.Access(filepath.Dir(c.Output.File.Path), unix.W_OK); err != nil {
			errs = append(errs, fmt.Errorf("output.file.path: cannot write to its directory: %w", err))
		}
	}
	if c.Output.Feed == forecasts.FeedKafka {
		feed := forecasts.DefaultConfig()
		feed.Feed, feed.Kafka = forecasts.FeedKafka, c.Output.Kafka
		err := feed.Check(ctx, deep)
		errs = append(errs, origins.Section("output", err))
		if deep && err == nil {
			errs = append(errs, checkPublisher(ctx, c.Output, origins))
		}
	}
	conn, err := connect(c)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("clickhouse.%w", err))...)
	}
	defer func() { _ = conn.Close() }()
	if deep {
		err := conn.Exec(ctx, fmt.Sprintf("SELECT * FROM `%s`.`%s` LIMIT 0", c.ClickHouse.Database, c.ClickHouse.Table))
		var uncovered []string
		if err == nil {
			uncovered, err = newSource(c, conn, c.ClickHouse.Database).Uncovered(ctx, time.Now().Add(-recently))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("clickhouse: cannot read the archive at %s: %w", c.ClickHouse.Address, err))
		}
		if len(uncovered) > 0 {
			fmt.Fprintln(w, "warning:", notCovered(c.Model, uncovered))
		}
	}
	return errors.Join(errs...)
}

// recently is the age of the measurements in which measure types are looked for.
const recently = 24 * time.Hour

// notCovered returns a warning about measure types in the archive that are not used.
func notCovered(m config.Model, codes []string) string {
	return fmt.Sprintf("model.measure %s and model.count %q do not cover the measure types %s of the archive: to use lanes, add .* to both",
		m.Measure, m.Count, strings.Join(codes, ", "))
}

func checkPublisher(ctx context.Context, o config.Output, origins conf.Origins) error {
	p, err := newPublisher(o)
	if err != nil {
		return origins.Section("output.kafka", err)
	}
	defer p.Close()
	topic, id := p.CheckPermissions(ctx)
	return errors.Join(origins.Section("output.kafka", topic), origins.Section("output", id))
}

// stopTime is the time limit for operators' requests after the context of run is done.
const stopTime = 5 * time.Second

func run(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	conn, err := connect(c)
	if err != nil {
		return fmt.Errorf("clickhouse.%w", err)
	}
	defer func() { _ = conn.Close() }()
	out, err := newOutput(c.Output)
	if err != nil {
		return fmt.Errorf("output.%w", err)
	}
	defer out.Close()
	f := &forecaster{cfg: c, log: log, source: newSource(c, conn, c.ClickHouse.Database), out: out}
	f.state.Store(&status{})
	o, err := ops.Start(c.Ops, f.readiness, map[string]http.Handler{"GET /street": http.HandlerFunc(f.serveStreet)}, log)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		o.Stop(stopping)
	}()
	log.Info().Str("version", version.Text()).Int("pid", os.Getpid()).Msg("forecaster starts")
	var learning sync.WaitGroup
	learning.Go(func() { f.learn(ctx) }) // until ctx is done
	f.rounds(ctx, f.round)
	learning.Wait()
	log.Info().Msg("forecaster stopped")
	return nil
}

// learn learns each day once it is over, and retries after an error, until ctx is done.
func (f *forecaster) learn(ctx context.Context) {
	migrated := !f.cfg.ClickHouse.Migrate
	var looked time.Time // at the measure types
	for ctx.Err() == nil {
		var err error
		if c := f.cfg.ClickHouse; !migrated {
			_, err = schema.Migrate(ctx, f.source.Conn, schema.Layout{Database: c.Database, Table: c.Table, Cluster: c.Cluster})
			migrated = err == nil
		}
		if migrated && time.Since(looked) >= recently {
			uncovered, err := f.source.Uncovered(ctx, time.Now().Add(-recently))
			if err == nil {
				looked = time.Now()
				f.update(func(s *status) { s.uncovered = uncovered })
			}
			if len(uncovered) > 0 {
				f.log.Warn().Msg(notCovered(f.cfg.Model, uncovered))
			}
		}
		if err == nil {
			err = f.source.Learn(ctx, time.Now().Add(-f.cfg.Model.LearnAfter), func(day time.Time) error {
				daysLearned.Inc()
				f.fresh.Store(true)
				f.log.Info().Str("day", day.Format(time.DateOnly)).Msg("day learned")
				return nil
			})
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, archive.ErrEmpty) {
			failures.WithLabelValues("learn").Inc()
			f.log.Warn().Err(err).Msg("cannot learn a day; retrying")
		}
		f.update(func(s *status) { s.learn = err })
		sleep(ctx, time.Now().Add(time.Minute))
	}
}

// update changes the status. It is safe for concurrent use.
func (f *forecaster) update(change func(*status)) {
	for {
		before := f.state.Load()
		after := *before
		change(&after)
		if f.state.CompareAndSwap(before, &after) {
			return
		}
	}
}

// rounds publishes the forecasts of each interval after a grace period for late measurements. After
// an error it retries with the latest origin. An instance whose publication another one has aborted
// waits longer each time, so that the other one can finish.
func (f *forecaster) rounds(ctx context.Context, round func(ctx context.Context, origin time.Time) error) {
	interval, grace := f.interval(), f.cfg.Forecasts.Grace
	fencedRetry := retryAfter
	for ctx.Err() == nil {
		origin := time.Now().Add(-grace).Truncate(interval)
		err := round(ctx, origin)
		next := origin.Add(interval + grace)
		switch {
		case err == nil:
			fencedRetry = retryAfter
		case ctx.Err() != nil:
		case publish.Fenced(err): // usually another instance has published the same forecasts
			f.log.Info().Err(err).Time("origin", origin).Msg("another instance is publishing; comparing its forecasts")
			next, fencedRetry, err = time.Now().Add(fencedRetry), min(2*fencedRetry, transactionTimeout), nil
		default:
			f.log.Warn().Err(err).Time("origin", origin).Msg("cannot publish forecasts; retrying")
			if !errors.Is(err, errNoForecast) {
				next = time.Now().Add(retryAfter)
			}
		}
		f.update(func(s *status) { s.err = err })
		sleep(ctx, next)
	}
}

func (f *forecaster) interval() time.Duration {
	return cmp.Or(f.cfg.Forecasts.Every, f.cfg.Model.Interval)
}

func sleep(ctx context.Context, until time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(until)):
	}
}

// errNoForecast means that nothing is published: it would remove all streets because the archive is
// empty or not the right one, or because no measurements arrive.
var errNoForecast = errors.New("no street has a forecast, so the published ones remain until their periods end: check whether " +
	"measurements arrive, and clickhouse.database, clickhouse.table, model.product_instance, model.measure and detectors.path")

// round publishes the forecasts for an origin that differ from the published ones.
func (f *forecaster) round(ctx context.Context, origin time.Time) error {
	start := time.Now()
	all, basis, err := f.forecast(ctx, origin)
	if err != nil {
		failures.WithLabelValues("forecast").Inc()
		return err
	}
	for _, b := range model.Bases {
		streetsByBasis.WithLabelValues(string(b)).Set(float64(basis[b]))
	}
	if len(all) == 0 {
		failures.WithLabelValues("forecast").Inc()
		return errNoForecast
	}
	if origin.Sub(f.state.Load().origin) > f.interval() {
		f.sent = nil // another instance may have published in an interval that this one has missed
	}
	if err := f.publish(ctx, origin, all); err != nil {
		f.sent = nil // it is unknown whether the transaction was committed
		if !publish.Fenced(err) {
			failures.WithLabelValues("publish").Inc()
		}
		return err
	}
	originGauge.Set(float64(origin.Unix()))
	f.update(func(s *status) { s.origin, s.streets, s.invalid = origin, basis, f.content.Invalid })
	metrics.Since(roundSeconds, start)
	f.log.Debug().Time("origin", origin).Int("streets", len(all)).Msg("forecasts published")
	return nil
}

// forecast computes the forecasts for an origin. They depend only on the archive, the learned
// tables and the detectors file.
func (f *forecaster) forecast(ctx context.Context, origin time.Time) (all []*pb.StreetForecast, basis map[model.Basis]int, err error) {
	defer must.Return(&err)
	must.Do(f.refresh(ctx, origin))
	codes, recent, err := f.source.Recent(ctx, origin)
	must.Do(err)
	start := time.Now()
	defer func() { metrics.Since(stepSeconds, start) }()
	s := model.NewStep(f.learned, origin, codes, recent)
	all, basis = build(f.cfg.Forecasts, s, f.content.Streets)
	f.latest.Store(&snapshot{s, f.content.Streets})
	return all, basis, nil
}

// refresh reads the learned tables and the detectors if they changed.
func (f *forecaster) refresh(ctx context.Context, origin time.Time) error {
	if f.fresh.Swap(false) || f.learned == nil || f.learned.Pool == nil || !f.source.Day(origin, 0).Equal(f.learned.Day) {
		l, err := f.source.Load(ctx, origin)
		if err != nil {
			f.fresh.Store(true)
			return err
		}
		f.learned = l
	}
	var changed time.Time // zero if the file is being replaced
	if info, err := os.Stat(f.cfg.Detectors.Path); err == nil {
		changed = info.ModTime()
		age := time.Since(changed) // negative if the clock was set back
		if changed.Equal(f.changed) || f.content.Streets != nil && age >= 0 && age < settle {
			return nil
		}
	}
	content, err := streets.Read(f.cfg.Detectors)
	if err != nil && f.content.Streets != nil {
		failures.WithLabelValues("detectors").Inc()
		f.log.Warn().Err(err).Msg("cannot read the detectors; the last valid ones remain in use")
		return nil
	}
	if err != nil {
		return err
	}
	if content.Invalid != nil {
		f.log.Warn().Err(content.Invalid).Msg("ignoring invalid detectors")
	}
	if content.Locations != nil {
		f.log.Warn().Err(content.Locations).Int("streets", content.Unlocated).Msg("publishing streets without a location")
	}
	f.content, f.changed = content, changed
	unplaced.Set(float64(content.Unplaced))
	unlocated.Set(float64(content.Unlocated))
	return nil
}

// periods returns the forecast periods, and a target in the middle of each. The first period
// contains the origin.
func periods(c config.Forecasts, s *model.Step) (list []*pb.ForecastPeriod, targets []model.Target) {
	first := s.Origin.Truncate(c.Step)
	for i := range c.Periods {
		start := first.Add(time.Duration(i) * c.Step)
		list = append(list, &pb.ForecastPeriod{
			Start: start.UTC().Format(time.RFC3339), End: start.Add(c.Step).UTC().Format(time.RFC3339), SpeedValid: new(true),
		})
		middle := start.Add((c.Step - 1) / 2).Truncate(s.Interval)
		targets = append(targets, s.TargetOf(max(middle.Add(s.Interval).Sub(s.Origin), s.Interval)))
	}
	return list, targets
}

// round returns the speed to publish: a multiple of the tolerance, but not 0.
func round(c config.Forecasts, speed float64) float64 {
	return max(math.Round(speed/c.Tolerance), 1) * c.Tolerance
}

// build returns the forecasts of the streets, omitting periods without a forecast. basis counts the
// streets by the worst basis among their detectors' forecasts.
func build(c config.Forecasts, s *model.Step, list []streets.Street) (all []*pb.StreetForecast, basis map[model.Basis]int) {
	times, targets := periods(c, s)
	out := make([]model.Forecast, len(targets))
	basis = make(map[model.Basis]int)
	var speeds [][]float64
	for i := range list {
		street := &list[i]
		speeds = speeds[:0]
		worst := model.None // no forecast yet
		for _, code := range street.Detectors {
			values := slices.Repeat([]float64{math.NaN()}, len(targets))
			speeds = append(speeds, values)
			r := s.Recent(code, c.MaxAge)
			if r == nil {
				continue
			}
			s.Forecast(code, r, targets, out, nil)
			for n, f := range out {
				if f.Basis != model.None {
					values[n], worst = f.Value, worst.Add(f.Basis)
				}
			}
		}
		basis[worst]++
		if worst == model.None {
			continue
		}
		f := &pb.StreetForecast{Street: street.Street, Fromnode: street.FromNode, OpenLRcode: street.OpenLR}
		at := make([]float64, len(street.Detectors))
		for n, period := range times {
			for d := range at {
				at[d] = speeds[d][n]
			}
			if speed := s.KMH(street.Speed(at)); !math.IsNaN(speed) {
				p := &pb.ForecastPeriod{Start: period.Start, End: period.End, SpeedValid: period.SpeedValid, Speed: round(c, speed)}
				f.Forecast = append(f.Forecast, p)
			}
		}
		all = append(all, f)
	}
	return all, basis
}

// publish publishes the forecasts whose records have changed, and removes the streets that no
// longer have a forecast. There must be at least one forecast.
func (f *forecaster) publish(ctx context.Context, origin time.Time, all []*pb.StreetForecast) (err error) {
	defer must.Return(&err)
	if f.sent == nil {
		f.sent, f.written = must.Get(f.out.Digests(ctx, time.Minute)), origin
	}
	next := make(map[string]uint64, len(all))
	var changed []*pb.StreetForecast
	for _, forecast := range all {
		key := string(forecasts.Key(forecast))
		if next[key] = publish.Digest(forecast); f.sent[key] != next[key] {
			changed = append(changed, forecast)
		}
	}
	var remove []string
	for key := range f.sent {
		if _, ok := next[key]; !ok {
			remove = append(remove, key)
		}
	}
	slices.Sort(remove)
	if len(changed)+len(remove) == 0 && origin.Sub(f.written) >= renewAfter {
		changed = all[:1]
	}
	if len(changed)+len(remove) > 0 {
		must.Do(f.out.put(ctx, all, changed, remove))
		f.written = origin
	}
	f.sent = next
	published.Add(float64(len(changed)))
	removed.Add(float64(len(remove)))
	return nil
}

// readiness returns NotReady before the first publication. It returns Degraded while the forecasts
// are old, a step fails, or streets have too little history.
func (f *forecaster) readiness() ops.Readiness {
	s := f.state.Load()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"version": version.Text(), "streets": s.streets}}
	if s.origin.IsZero() {
		c.Add(ops.NotReady, "no forecasts have been published yet")
	} else {
		c.Detail["origin"] = s.origin
	}
	if age := time.Since(s.origin); !s.origin.IsZero() && age > 2*f.cfg.Model.Interval+f.cfg.Forecasts.Grace {
		c.Add(ops.Degraded, fmt.Sprintf("the published forecasts are from %s", s.origin.UTC().Format(time.RFC3339)))
	}
	for _, err := range []error{s.err, s.learn, s.invalid} {
		if err != nil {
			c.Add(ops.Degraded, err.Error())
		}
	}
	if len(s.uncovered) > 0 {
		c.Detail["uncovered_measure_types"] = s.uncovered
	}
	if n := s.streets[model.Pooled] + s.streets[model.Persist]; n > 0 {
		c.Add(ops.Degraded, fmt.Sprintf("streets with too little history: %d", n))
	}
	return ops.NewReadiness(map[string]ops.Component{"forecaster": c})
}
