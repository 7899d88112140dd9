package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/config"
	"trafficd/cmd/trafficd/status"
	"trafficd/cmd/trafficd/tracing"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/receipts"
	schema "trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
	"trafficd/sinks/clickhouse"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/forecasts"
	"trafficd/sources/ingest"
	"trafficd/sources/registry"
	"trafficd/sources/routing"
	"trafficd/sources/sites"
)

type daemon struct {
	cfg *config.Config // settings at startup; never modified
	log zerolog.Logger

	ops         *ops.Server
	tracing     *tracing.Tracing // nil: off
	journal     pipeline.Journal
	local       *journal.Journal // the journal if it is on disk, else nil
	shared      *kafkalog.Log    // the journal if it is in Kafka, else nil
	registry    *registry.Registry
	detectors   clickhouse.Detectors // for the archive
	keys        *api.Keyring
	dead        *pipeline.DeadLetters
	deliveries  []*delivery
	table       *clickhouse.Receipts // nil: no archive
	receipts    *receipts.Waiting    // nil: no archive
	idempotency *pipeline.IdempotencyStore
	intake      *pipeline.Intake
	layer       *layers.Layer
	forecasts   *forecasts.Forecasts
	routing     *routing.Service
	sites       *sites.Service // nil: no archive
	health      *sites.Health
	api         *api.Server

	reloads reloads

	viewer atomic.Pointer[contract.Client] // the client whose view of the layer operators see
	status *status.Recorder

	started         atomic.Bool // all parts are running
	registryChecked atomic.Bool // each registry feed has been read or has failed at least once
	draining        atomic.Bool // the shutdown has begun
	failed          chan error  // error of a part that cannot continue
}

// serve runs the daemon until a signal or a failure. It calls load to reload the settings.
func serve(cfg *config.Config, log zerolog.Logger, load func() (*config.Config, error)) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	defer limitMemory(cfg.MemoryLimit)()
	d := &daemon{cfg: cfg, log: log, failed: make(chan error, 1)}
	d.reloads.current = *cfg
	d.reloads.registerMetric()
	log.Info().Str("version", version.Text()).Int("pid", os.Getpid()).Msg("trafficd starts")
	r := runner{
		timeout: cfg.ShutdownTimeout, draining: func() { d.draining.Store(true) }, log: log,
		hangups: hangups, reload: func() { d.reload(load) },
	}
	return r.run(d.steps(), signals, d.failed)
}

// steps lists the parts in the order in which they start; they stop in reverse order. The clients'
// listener starts after and stops before everything that it uses, so that everything acknowledged
// with a 207 is in the journal before the journal closes. /readyz is available throughout.
func (d *daemon) steps() []step {
	cfg, log := d.cfg, d.log
	var stopHealth func()
	return []step{
		{
			"status",
			func() error {
				d.status = status.Start(prometheus.DefaultGatherer, ingest.Path, version.Text(), d.readiness)
				return nil
			},
			func(context.Context) error { d.status.Stop(); return nil },
		},
		{
			"operators' listener",
			func() (err error) {
				if d.sites, err = openSites(cfg.ClickHouse); err != nil {
					return err
				}
				if d.ops, err = ops.Start(cfg.Ops, d.readiness, d.operatorRoutes(), log); err == nil && cfg.Ops.Listen != "" {
					log.Info().Str("url", "http://"+d.ops.Address()+"/").Msg("web page for operators")
				}
				return err
			},
			func(ctx context.Context) error {
				d.ops.Stop(ctx)
				return until(ctx, func() error { d.sites.Close(); return nil })
			},
		},
		{
			"tracing",
			func() (err error) {
				d.tracing, err = tracing.Start(cfg.Tracing, version.Text(), log)
				return err
			},
			func(ctx context.Context) error {
				if d.tracing != nil {
					d.tracing.Stop(ctx)
				}
				return nil
			},
		},
		{
			"journal",
			func() (err error) {
				var consumers []string
				for _, s := range cfg.EnabledSinks() {
					consumers = append(consumers, s.Name)
				}
				if cfg.Journal.Kind == config.KafkaJournal {
					if err := os.MkdirAll(cfg.Journal.Dir, 0o750); err != nil { // for dead letters and caches
						return settingError("journal.dir", err)
					}
					d.shared, err = kafkalog.Open(cfg.Journal.Log, consumers, cfg.Pipeline.Idempotency.Window, log)
					d.journal = d.shared
					return settingError("journal.log", err)
				}
				options := []journal.Option{journal.WithLogger(log)}
				if d.tracing != nil {
					options = append(options, journal.WithCommitHook(d.tracing.Committed))
				}
				d.local, err = journal.Open(cfg.Journal.Config, append(consumers, pipeline.IdempotencyConsumer), options...)
				d.journal = d.local
				return settingError("journal.dir", err)
			},
			func(ctx context.Context) error {
				if d.shared != nil {
					return d.shared.Close(ctx)
				}
				return d.local.Close()
			},
		},
		{
			"registry",
			func() error {
				d.registry = registry.New(cfg.Registry, log)
				if len(cfg.Registry.Feeds) == 0 {
					log.Warn().Msg(noFeeds)
				}
				if cfg.ClickHouse.Enabled && cfg.ClickHouse.DeriveInterval > 0 {
					d.registry.OnList(d.detectors.Put)
				}
				d.registry.Start(context.Background()) // until Close
				return nil
			},
			func(context.Context) error { d.registry.Close(); return nil },
		},
		{
			"health of the detectors",
			func() error {
				d.health = sites.NewHealth(d.sites, d.registry, log)
				stopHealth = d.health.Start(context.Background())
				return nil
			},
			func(ctx context.Context) error { return until(ctx, func() error { stopHealth(); return nil }) },
		},
		{
			"API keys",
			func() (err error) {
				if d.keys, err = api.OpenKeyring(cfg.API, log); err == nil && len(d.keys.Clients()) == 0 {
					log.Warn().Msg(noKeys)
				}
				return settingError("api.keys_file", err)
			},
			func(context.Context) error { d.keys.Close(); return nil },
		},
		{"receipts of batches", d.openReceipts, d.closeReceipts},
		{"deliveries", d.startDeliveries, d.stopDeliveries},
		{
			"idempotency store",
			func() (err error) {
				var source pipeline.Source
				if d.local != nil {
					source = pipeline.Local(d.local, pipeline.IdempotencyConsumer)
				}
				d.idempotency, err = pipeline.OpenIdempotencyStore(cfg.Pipeline.Idempotency, d.journal, source, journal.WithLogger(log))
				return settingError("journal.dir", err)
			},
			func(context.Context) error { return d.idempotency.Close() },
		},
		{
			"pipeline",
			func() (err error) {
				d.intake, err = pipeline.NewIntake(cfg.Pipeline, d.journal, d.registry, d.idempotency, log)
				return err
			},
			func(context.Context) error { d.intake.Close(); return nil },
		},
		{
			"forecasts",
			func() (err error) {
				d.layer = layers.New(cfg.Layers, log)
				if d.forecasts, err = forecasts.New(cfg.Forecasts, d.layer, log); err != nil {
					return err
				}
				d.keys.BeforeUse(func(clients []*contract.Client) { // builds the layer in the new keys' time zones
					// Operators see the layer in the time zone of a client, so that no layer is built only for
					// operators.
					viewer := &contract.Client{Name: "operator", Owner: "operator", Rights: contract.RightForecast, Zone: time.UTC}
					for _, c := range clients {
						if c.May(contract.RightForecast) {
							viewer.Zone = c.Zone
							break
						}
					}
					d.viewer.Store(viewer)
					d.layer.Prepare(append(slices.Clone(clients), viewer))
				})
				d.layer.Start()
				d.forecasts.Start(context.Background()) // until Close
				return nil
			},
			func(context.Context) error { d.forecasts.Close(); d.layer.Stop(); return nil },
		},
		{
			"routing service",
			func() error {
				scheme := "http"
				if cfg.API.TLSCert != "" {
					scheme = "https"
				}
				d.routing = routing.New(cfg.Routing, scheme, log)
				return nil
			},
			func(context.Context) error { d.routing.Stop(); return nil },
		},
		{"clients' listener", d.startAPI, d.stopAPI},
		notifyStep(log, func() { d.readiness() }), // which takes the locks of all parts
	}
}

// openSites returns what the operators' map reads from the archive, nil if there is none.
func openSites(c config.ClickHouse) (*sites.Service, error) {
	if !c.Enabled {
		return nil, nil
	}
	layout := schema.Layout{Database: c.Database, Table: c.Table, Cluster: c.Cluster}
	return sites.New(sites.Archive{Addresses: c.Addresses, Login: c.ClickHouse, Layout: layout})
}

// settingError prefixes an error with the key of the setting that caused it.
func settingError(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

func (d *daemon) startAPI() (err error) {
	if d.api, err = api.New(d.cfg.API, d.keys, d.routes(), d.log); err != nil {
		return err
	}
	if d.tracing != nil {
		d.api.Tracer = d.tracing
	}
	if err := d.api.Start(); err != nil {
		return err
	}
	go func() { // ends with the server, at the latest when stopAPI returns
		if err := <-d.api.Failed(); err != nil && !d.draining.Load() {
			d.failed <- fmt.Errorf("the clients' listener failed: %w", err)
		}
	}()
	d.started.Store(true)
	d.log.Info().Stringer("address", d.api.Addr()).Str("base_path", d.cfg.API.BasePath).Msg("listening for clients")
	return nil
}

func (d *daemon) stopAPI(ctx context.Context) error {
	d.routing.Drain()
	d.layer.Drain()
	err := d.api.Stop(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("requests were aborted at the end of the grace period: %w", err)
	}
	return err
}

// limitMemory sets the soft memory limit, 0 for none, and returns a function that stops adjusting
// it. Other settings bound the live heap, which may exceed the limit, for example with a large
// forecast layer. The garbage collector would then use half of the CPU, so limitMemory keeps the
// limit at 1.5 times the live heap or more.
func limitMemory(limit int64) (stop func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	debug.SetMemoryLimit(limit)
	done, live := make(chan struct{}), []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // in use at the last garbage collection
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				metrics.Read(live)
				debug.SetMemoryLimit(max(limit, int64(live[0].Value.Uint64())*3/2))
			}
		}
	}()
	return func() { close(done) }
}
