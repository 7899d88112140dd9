// Package config holds the daemon's settings. Most sections are the Config of the package that they
// configure. Package conf loads them.
package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/trafficd/tracing"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/settings"
	"trafficd/sinks/clickhouse"
	"trafficd/sinks/kafka"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/forecasts"
	"trafficd/sources/ingest"
	"trafficd/sources/page"
	"trafficd/sources/registry"
	"trafficd/sources/routing"
)

// Config holds the daemon's settings, grouped into sections.
type Config struct {
	// Time limit for shutting down after SIGTERM. The graceful phase takes at most the first three
	// quarters of it. Raise the limit together with the platform's grace period.
	ShutdownTimeout time.Duration `setting:"shutdown_timeout"`
	// Soft memory limit of the process. The limit rises to 1.5 times the live heap if that is higher.
	// GOMEMLIMIT takes precedence. Raise it for layers with more than 100,000 streets.
	MemoryLimit int64    `setting:"memory_limit"`
	DeadLetters string   `setting:"dead_letters"` // file for measurements that a store permanently rejects; empty: in the journal's directory
	Log         conf.Log `setting:"log"`          // Level and format of the log, which is written to standard error.
	// The listener for operators: web page, /metrics, /status, /healthz and /readyz. It has no
	// authentication.
	Ops ops.Config `setting:"ops"`
	// The listener for clients: address, TLS, limits and keys. The limits keep clients from starving
	// one another.
	API api.Config `setting:"api"`
	// Limits for receiving batches. A client may use at most half of what other clients leave of
	// admission_requests and admission_bytes.
	Ingest     ingest.Config    `setting:"ingest"`
	Registry   registry.Config  `setting:"registry"`   // The lists of detectors whose measurements are accepted.
	Pipeline   pipeline.Config  `setting:"pipeline"`   // Decoding and validation of batches, and the idempotency store.
	Journal    Journal          `setting:"journal"`    // Keeps accepted measurements until both stores have them.
	ClickHouse ClickHouse       `setting:"clickhouse"` // The archive.
	Kafka      Kafka            `setting:"kafka"`      // The Kafka topic that measurements are forwarded to.
	Forecasts  forecasts.Config `setting:"forecasts"`  // The source of street forecasts.
	Layers     layers.Config    `setting:"layers"`     // The layer of street forecasts for map clients.
	Routing    routing.Config   `setting:"routing"`    // The SOAP service that converts geometries.
	UI         page.Config      `setting:"ui"`         // The web page.
	// OpenTelemetry traces: a span for each client request, each commit to the journal and each block
	// sent to a store. Disabled by default.
	Tracing tracing.Config `setting:"tracing"`
}

// Journal configures where accepted measurements are kept until both stores have them.
type Journal struct {
	// local: on a local disk; kafka: in a topic that all replicas share, so that losing a replica and
	// its disk loses no measurements
	Kind           string `setting:"kind"`
	journal.Config `setting:",squash"`
	Log            kafkalog.Config `setting:"log"` // The journal's topic, if kind is kafka.
}

// The kinds of journal.
const (
	LocalJournal = "local"
	KafkaJournal = "kafka"
)

// ClickHouse configures the archive and the delivery to it.
type ClickHouse struct {
	Enabled           bool `setting:"enabled"` // false: measurements are not archived, and pending ones are discarded
	clickhouse.Config `setting:",squash"`
	Delivery          pipeline.DeliveryConfig `setting:"delivery"` // block size and retries
}

// Kafka configures the topic that measurements are forwarded to, and the delivery to it.
type Kafka struct {
	Enabled      bool `setting:"enabled"` // false: measurements are not forwarded, and pending ones are discarded
	kafka.Config `setting:",squash"`
	Delivery     pipeline.DeliveryConfig `setting:"delivery"` // block size and retries
}

// Default returns the default settings. With these, the daemon listens on loopback only. It starts
// without API keys or a detector registry; the readiness check reports both as missing.
func Default() Config {
	delivery := pipeline.DeliveryConfig{
		MaxRows: 100_000, MinRows: 1, RetryMin: 100 * time.Millisecond, RetryMax: 10 * time.Second,
	}
	// Each insert creates a part to merge; ClickHouse recommends at most one or two per second.
	archive := delivery
	// Blocks are larger than Kafka's because each month in a block becomes a separate part.
	archive.MaxRows, archive.MinRows, archive.Linger = 400_000, 50_000, time.Second
	c := Config{
		ShutdownTimeout: 30 * time.Second,
		// Twice what 64 concurrent full batches need. Without a limit, the heap would grow to 300 MiB and
		// CPU time would fall by 4%.
		MemoryLimit: 200 << 20,
		Log:         conf.Log{Level: "info", Format: "auto"},
		Ops:         ops.DefaultConfig(),
		API:         api.DefaultConfig(),
		Ingest:      ingest.DefaultConfig(),
		Registry:    registry.DefaultConfig(),
		Pipeline:    pipeline.DefaultConfig(),
		Journal:     Journal{Kind: LocalJournal, Config: journal.DefaultConfig(), Log: kafkalog.DefaultConfig()},
		ClickHouse:  ClickHouse{Enabled: true, Config: clickhouse.DefaultConfig(), Delivery: archive},
		Kafka:       Kafka{Enabled: true, Config: kafka.DefaultConfig(), Delivery: delivery},
		Forecasts:   forecasts.DefaultConfig(),
		Layers:      layers.DefaultConfig(),
		Routing:     routing.DefaultConfig(),
		UI:          page.DefaultConfig(),
		Tracing:     tracing.DefaultConfig(),
	}
	c.API.Listen = "127.0.0.1:8080" // reachable from other machines only if configured
	c.Journal.Dir = "trafficd-data/journal"
	return c
}

// Load returns the effective configuration, even if it also returns an error. Values that cannot be
// parsed have no effect.
func Load(o conf.Options) (*Config, conf.Origins, error) {
	c := Default()
	origins, err := conf.Load(&c, o)
	c.complete()
	return &c, origins, errors.Join(err, c.validate(origins))
}

// complete sets the defaults that depend on other settings. The default paths are in the journal's
// directory.
func (c *Config) complete() {
	if c.DeadLetters == "" {
		c.DeadLetters = filepath.Join(c.Journal.Dir, "dead-letters.ndjson")
	}
	c.Pipeline.Idempotency.Journal.Dir = filepath.Join(c.Journal.Dir, "idempotency")
	if c.Routing.Jobs.Replica == "" {
		host, _ := os.Hostname() // API.Listen may be the same on all machines
		c.Routing.Jobs.Replica = host + " " + c.API.Listen
	}
	if c.Registry.CacheDir == "" {
		c.Registry.CacheDir = filepath.Join(c.Journal.Dir, "registry")
	}
}

// Validate reports every invalid setting, except those in the log section, which is validated
// separately.
func (j Journal) Validate() error {
	return errors.Join(
		settings.Check(j.Kind == LocalJournal || j.Kind == KafkaJournal, "kind is %q, must be local or kafka", j.Kind),
		j.Config.Validate(),
	)
}

func (c *Config) validate(origins conf.Origins) error {
	var errs []error
	section := func(name string, err error) { errs = append(errs, origins.Section(name, err)) }
	section("", c.validateOwn())
	section("log", c.Log.Validate())
	section("ops", c.Ops.Validate())
	section("api", c.API.Validate())
	section("ingest", c.Ingest.Validate())
	section("registry", c.Registry.Validate())
	section("pipeline", c.Pipeline.Check())
	section("pipeline.decode", c.Pipeline.Decode.Validate())
	section("pipeline.validate", c.Pipeline.Validate.Validate())
	section("pipeline.idempotency", c.Pipeline.Idempotency.Validate())
	section("journal", c.Journal.Validate())
	if c.Journal.Kind == KafkaJournal {
		section("journal.log", errors.Join(c.Journal.Log.Validate(), c.Journal.Log.CheckWindow(c.Pipeline.Idempotency.Window)))
	}
	for _, s := range c.EnabledSinks() {
		section(s.Name, s.Validate(c))
		section(s.Name+".delivery", s.Delivery(c).Validate())
	}
	section("forecasts", c.Forecasts.Validate())
	section("layers", c.Layers.Validate())
	section("routing", c.Routing.Validate())
	section("tracing", c.Tracing.Validate())
	section("ui", c.UI.Validate())
	return errors.Join(errs...)
}

func (c *Config) validateOwn() error {
	return errors.Join(
		settings.Within("shutdown_timeout", c.ShutdownTimeout, time.Second, 10*time.Minute,
			"delivering a block takes up to a second, and platforms wait no longer than 10m"),
		settings.Check(c.API.DrainGrace < c.ShutdownTimeout*3/4,
			"api.drain_grace is %s, must be less than three quarters of shutdown_timeout (%s): the rest is for requests in progress",
			c.API.DrainGrace, c.ShutdownTimeout),
		settings.Check(c.Ops.Listen != c.API.Listen || strings.HasSuffix(c.API.Listen, ":0"),
			"ops.listen is %q, must not be api.listen: only one of the listeners can use the address", c.Ops.Listen),
		settings.Check(c.MemoryLimit == 0 || c.MemoryLimit >= 64<<20,
			"memory_limit is %d, must be 0 (none) or at least 64MiB: a lower limit keeps the garbage collector busy", c.MemoryLimit),
	)
}

// Sink is a store that measurements are delivered to.
type Sink struct {
	Name     string // also names its section and its cursor in the journal, so it must never change
	Title    string // the store's usual spelling, for people
	Enabled  func(*Config) bool
	Validate func(*Config) error
	Delivery func(*Config) pipeline.DeliveryConfig
	Open     func(*Config, zerolog.Logger) (pipeline.Sink, error) // succeeds even if the store is unreachable

	// Check reports problems with the files named in the sink's settings and, if deep, with the store.
	// Each joined error starts with a setting's key.
	Check func(ctx context.Context, c *Config, deep bool) error
}

// The names of the sinks.
const (
	ArchiveSink = "clickhouse"
	TopicSink   = "kafka"
)

// Sinks lists all sinks. A new one needs an entry here and a section in the configuration.
var Sinks = []Sink{
	{
		ArchiveSink, "ClickHouse",
		func(c *Config) bool { return c.ClickHouse.Enabled },
		func(c *Config) error { return c.ClickHouse.Validate() },
		func(c *Config) pipeline.DeliveryConfig { return c.ClickHouse.Delivery },
		func(c *Config, log zerolog.Logger) (pipeline.Sink, error) {
			return clickhouse.New(c.ClickHouse.Config, log)
		},
		func(ctx context.Context, c *Config, deep bool) error { return c.ClickHouse.Check(ctx, deep) },
	},
	{
		TopicSink, "Kafka",
		func(c *Config) bool { return c.Kafka.Enabled },
		func(c *Config) error { return c.Kafka.Validate() },
		func(c *Config) pipeline.DeliveryConfig { return c.Kafka.Delivery },
		func(c *Config, log zerolog.Logger) (pipeline.Sink, error) {
			return kafka.New(c.Kafka.Config, log)
		},
		func(ctx context.Context, c *Config, deep bool) error { return c.Kafka.Check(ctx, deep) },
	},
}

// TitleOf returns the title of a sink, or "" for an unknown one.
func TitleOf(name string) string {
	for _, s := range Sinks {
		if s.Name == name {
			return s.Title
		}
	}
	return ""
}

// EnabledSinks returns the enabled sinks. The journal keeps no frames for the disabled ones.
func (c *Config) EnabledSinks() (enabled []Sink) {
	for _, s := range Sinks {
		if s.Enabled(c) {
			enabled = append(enabled, s)
		}
	}
	return enabled
}
