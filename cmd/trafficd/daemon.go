package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"

	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/config"
	"trafficd/cmd/trafficd/ops"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/schemas/openapi"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
	"trafficd/sources/registry"
	"trafficd/sources/routing"
)

// daemon holds the parts that run, in the order of the data.
type daemon struct {
	cfg *config.Config
	log zerolog.Logger

	journal    *journal.Journal
	registry   *registry.Registry
	keys       *api.Keyring
	deliveries []*delivery
	answers    *pipeline.IdempotencyStore
	intake     *pipeline.Intake
	forecast   forecast
	routing    *routing.Service
	endpoint   *ingest.Endpoint
	api        *api.Server
	ops        *ops.Server

	started  atomic.Bool // everything runs
	draining atomic.Bool // a stop has begun
	failed   chan error  // a part cannot go on
}

// serve runs the daemon until a signal.
func serve(cfg *config.Config, log zerolog.Logger) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	defer limitMemory(cfg.MemoryLimit)()
	d := &daemon{cfg: cfg, log: log, failed: make(chan error, 1)}
	log.Info().Str("version", version.Text()).Int("pid", os.Getpid()).Msg("trafficd starts")
	r := runner{timeout: cfg.ShutdownTimeout, draining: func() { d.draining.Store(true) }, log: log}
	return r.run(d.steps(), signals, d.failed)
}

// steps is the order of start; the stop goes through it from below. So clients are
// the last to come and the first to go, and whatever they were answered 207 for
// is in the journal before that closes. /readyz answers from the first to the
// last moment.
func (d *daemon) steps() []step {
	return []step{
		{"the operators' listener", d.startOps, d.stopOps},
		{"the journal", d.openJournal, d.closeJournal},
		{"the registry", d.startRegistry, d.stopRegistry},
		{"the keys", d.openKeys, d.closeKeys},
		{"the deliveries", d.startDeliveries, d.stopDeliveries},
		{"the remembered answers", d.openAnswers, d.closeAnswers},
		{"the pipeline", d.startIntake, d.stopIntake},
		{"the forecasts", d.startForecast, d.stopForecast},
		{"the routing service", d.startRouting, d.stopRouting},
		{"the listener for clients", d.startAPI, d.stopAPI},
	}
}

func (d *daemon) startOps() (err error) {
	d.ops, err = ops.Start(d.cfg.Ops, d.readiness, openapi.Document, d.log)
	return err
}

func (d *daemon) stopOps(ctx context.Context) error {
	d.ops.Stop(ctx)
	return nil
}

func (d *daemon) openJournal() (err error) {
	consumers := append([]string{pipeline.IdempotencyConsumer}, d.sinkNames()...)
	d.journal, err = journal.Open(d.cfg.Journal, consumers, journal.WithLogger(d.log))
	return err
}

func (d *daemon) closeJournal(context.Context) error { return d.journal.Close() }

func (d *daemon) startRegistry() (err error) {
	if d.registry, err = registry.New(d.cfg.Registry, d.log); err != nil {
		return err
	}
	if len(d.cfg.Registry.Feeds) == 0 {
		d.log.Warn().Msg(noFeeds)
	}
	d.registry.Start(context.Background()) // until stopRegistry
	return nil
}

func (d *daemon) stopRegistry(context.Context) error {
	d.registry.Close()
	return nil
}

func (d *daemon) openKeys() (err error) {
	if d.keys, err = api.OpenKeyring(d.cfg.API, d.log); err == nil && len(d.keys.Clients()) == 0 {
		d.log.Warn().Msg(noKeys)
	}
	return err
}

func (d *daemon) closeKeys(context.Context) error {
	d.keys.Close()
	return nil
}

func (d *daemon) openAnswers() (err error) {
	d.answers, err = pipeline.OpenIdempotencyStore(d.cfg.Pipeline.Idempotency, d.journal, journal.WithLogger(d.log))
	return err
}

func (d *daemon) closeAnswers(context.Context) error { return d.answers.Close() }

func (d *daemon) startIntake() (err error) {
	d.intake, err = pipeline.NewIntake(d.cfg.Pipeline, d.journal, d.registry, d.answers)
	return err
}

func (d *daemon) stopIntake(context.Context) error {
	d.intake.Close()
	return nil
}

func (d *daemon) startAPI() (err error) {
	d.endpoint = ingest.New(d.cfg.Ingest, d.intake, d.log)
	if d.api, err = api.New(d.cfg.API, d.keys, d.routes(), d.log); err != nil {
		return err
	}
	if err := d.api.Start(); err != nil {
		return err
	}
	go func() { // ends with the server, at the latest when stopAPI returns
		if err := <-d.api.Failed(); err != nil && !d.draining.Load() {
			d.failed <- fmt.Errorf("the listener for clients has stopped: %w", err)
		}
	}()
	d.started.Store(true)
	d.log.Info().Stringer("address", d.api.Addr()).Str("base_path", d.cfg.API.BasePath).Msg("listening for clients")
	return nil
}

func (d *daemon) stopAPI(ctx context.Context) error {
	d.routing.Drain()
	err := d.api.Stop(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("requests were cut off at the end of the grace: %w", err)
	}
	return err
}
