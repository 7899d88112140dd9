package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/program"
	"trafficd/cmd/internal/streets"
	"trafficd/cmd/internal/version"
	"trafficd/pipeline/lib/metrics"
)

var (
	streetsByBasis = metrics.NewGauges("trafficd_forecaster_streets",
		"Streets, by the basis of their forecasts: own, neighbours, profile, pool, last (the last value) or nothing.", "basis")
	published = metrics.NewCounter("trafficd_forecaster_published_total", "Forecasts of streets that were published.")
	removed   = metrics.NewCounter("trafficd_forecaster_removed_total", "Streets that were removed from the topic.")
	failures  = metrics.NewCounters("trafficd_forecaster_failures_total",
		"Failures, by step: learn, detectors, forecast, bounds, publish or health.", "step")
	daysLearned = metrics.NewCounter("trafficd_forecaster_days_learned_total", "Days that were learned.")
	stepSeconds = metrics.NewSeconds("trafficd_forecaster_step_seconds",
		"Time to compute the forecasts of an interval, excluding the query, in seconds.")
	roundSeconds = metrics.NewSeconds("trafficd_forecaster_round_seconds",
		"Time from the query to the end of the publication, in seconds.")
	originGauge = metrics.NewGauge("trafficd_forecaster_origin_timestamp_seconds",
		"End of the last interval before the published forecasts, as Unix time in seconds.")
	detectors = metrics.NewGauge("trafficd_forecaster_detectors", "Detectors in the file.")
	unplaced  = metrics.NewGauge("trafficd_forecaster_unplaced_detectors", "Detectors without a street.")
	unlocated = metrics.NewGauge("trafficd_forecaster_unlocated_streets",
		"Streets without a location, or with one that cannot be encoded: no map shows their forecasts.")
)

const (
	retryAfter = 5 * time.Second  // delay before a failed round is retried
	deriveTime = 10 * time.Minute // for which the daemons may take to derive the hours of the archive

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
	tracker model.Tracker  // adapts the bounds
	tracked *model.Learned // tables of the tracker
	fresh   atomic.Bool    // a day has been learned but not loaded yet

	migrated atomic.Bool // the tables exist, or another program creates them
	content  streets.Content
	changed  time.Time         // modification time of the detectors file
	sent     map[string]uint64 // digests of the published forecasts by key; nil: unknown
	written  time.Time         // origin of the latest publication or, if there was none since, when sent was read
	state    program.Status[status]
	latest   atomic.Pointer[snapshot]
}

// status is the state that the readiness check reports.
type status struct {
	origin  time.Time // of the published forecasts; zero before the first publication
	err     error     // of the latest round
	learn   error     // of the latest attempt to learn
	bounds  error     // of the latest attempt to adapt the bounds
	health  error     // of the last tests of the detectors
	invalid error     // the ignored detectors
	streets map[model.Basis]int
	sick    map[string]uint64 // number of detectors in each state of health

	uncovered []string // measure types in the archive that are not used, although Measure or Count is above them
}

func run(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	for _, step := range []string{"learn", "detectors", "forecast", "bounds", "publish", "health"} {
		failures.WithLabelValues(step) // Prometheus does not see the first failure if the counter appears with it
	}
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
	routes := map[string]http.Handler{
		"GET /street": http.HandlerFunc(f.serveStreet), "GET /streets": http.HandlerFunc(f.serveStreets),
	}
	return program.Serve(ctx, "forecaster", c.Ops, f.readiness, routes, log, func() {
		var learning sync.WaitGroup
		learning.Go(func() { f.learn(ctx) }) // until ctx is done
		learning.Go(func() { f.watchHealth(ctx) })
		f.rounds(ctx, f.round)
		learning.Wait()
	})
}

// readiness returns NotReady before the first publication. It returns Degraded while the forecasts
// are old, a step fails, or streets have too little history.
func (f *forecaster) readiness() ops.Readiness {
	s := f.state.Load()
	c := ops.Component{State: ops.OK, Detail: map[string]any{"version": version.Text(), "streets": s.streets, "sick_detectors": s.sick}}
	if s.origin.IsZero() {
		c.Add(ops.NotReady, ops.ForecasterFailing, "no forecasts have been published yet")
	} else {
		c.Detail["origin"] = s.origin
	}
	if age := time.Since(s.origin); !s.origin.IsZero() && age > 2*f.cfg.Model.Interval+f.cfg.Forecasts.Grace {
		c.Add(ops.Degraded, ops.ForecasterFailing, fmt.Sprintf("the published forecasts are from %s", s.origin.UTC().Format(time.RFC3339)))
	}
	for _, err := range []error{s.err, s.learn, s.bounds, s.health} {
		if err != nil {
			c.Add(ops.Degraded, ops.ForecasterFailing, err.Error())
		}
	}
	if s.invalid != nil {
		c.Add(ops.Degraded, ops.PlacesMissing, s.invalid.Error())
	}
	if len(s.uncovered) > 0 {
		c.Detail["uncovered_measure_types"] = s.uncovered
	}
	if n := s.streets[model.Pooled] + s.streets[model.Persist]; n > 0 {
		c.Add(ops.Degraded, ops.ForecasterFailing, fmt.Sprintf("streets with too little history: %d", n))
	}
	return ops.NewReadiness(map[string]ops.Component{"forecaster": c})
}
