package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/trafficd/ops"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/sinks/clickhouse"
	"trafficd/sinks/kafka"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/forecasts"
	"trafficd/sources/ingest"
	"trafficd/sources/registry"
	"trafficd/sources/routing"
)

// Config is everything that can be set: a section for each package.
type Config struct {
	ShutdownTimeout time.Duration    `koanf:"shutdown_timeout"` // three quarters to finish, then hard
	MemoryLimit     int64            `koanf:"memory_limit"`     // bytes that garbage may not take the process over, while half as much again as is in use is less; 0: no such limit; GOMEMLIMIT wins
	DeadLetters     string           `koanf:"dead_letters"`     // file of measurements that a store refuses for ever; empty: in the journal's folder
	Log             Log              `koanf:"log"`
	Ops             ops.Config       `koanf:"ops"`
	API             api.Config       `koanf:"api"`
	Ingest          ingest.Config    `koanf:"ingest"`
	Registry        registry.Config  `koanf:"registry"`
	Pipeline        pipeline.Config  `koanf:"pipeline"`
	Journal         journal.Config   `koanf:"journal"`
	ClickHouse      ClickHouse       `koanf:"clickhouse"`
	Kafka           Kafka            `koanf:"kafka"`
	Forecasts       forecasts.Config `koanf:"forecasts"`
	Layers          layers.Config    `koanf:"layers"`
	Routing         routing.Config   `koanf:"routing"`
}

// ClickHouse is the archive, its switch and how blocks are gathered for it.
type ClickHouse struct {
	Enabled           bool `koanf:"enabled"`
	clickhouse.Config `koanf:",squash"`
	Delivery          pipeline.DeliveryConfig `koanf:"delivery"`
}

// Kafka is the forward, its switch and how blocks are gathered for it.
type Kafka struct {
	Enabled      bool `koanf:"enabled"`
	kafka.Config `koanf:",squash"`
	Delivery     pipeline.DeliveryConfig `koanf:"delivery"`
}

// archiving waits up to a second for a block of some size: every insert is a
// part that the server has to merge, and one or two a second are what it likes.
func archiving() pipeline.DeliveryConfig {
	return pipeline.DeliveryConfig{
		MaxRows: 100_000, MinRows: 50_000, Linger: time.Second,
		RetryMin: 100 * time.Millisecond, RetryMax: 10 * time.Second,
	}
}

// forwarding does not wait: what comes while one block is on its way is the next one.
func forwarding() pipeline.DeliveryConfig {
	d := archiving()
	d.MinRows, d.Linger = 1, 0
	return d
}

// Default needs no file: everything on this machine. Without keys and
// registry the daemon starts, and its readiness says what is missing.
func Default() Config {
	c := Config{
		ShutdownTimeout: 30 * time.Second,
		MemoryLimit:     200 << 20, // twice what 64 full batches at a time need; without it 300 MiB are taken, for 4 % less CPU
		Log:             DefaultLog(),
		Ops:             ops.DefaultConfig(),
		API:             api.DefaultConfig(),
		Ingest:          ingest.DefaultConfig(),
		Registry:        registry.DefaultConfig(),
		Pipeline:        pipeline.DefaultConfig(),
		Journal:         journal.DefaultConfig(),
		ClickHouse:      ClickHouse{Enabled: true, Config: clickhouse.DefaultConfig(), Delivery: archiving()},
		Kafka:           Kafka{Enabled: true, Config: kafka.DefaultConfig(), Delivery: forwarding()},
		Forecasts:       forecasts.DefaultConfig(),
		Layers:          layers.DefaultConfig(),
		Routing:         routing.DefaultConfig(),
	}
	c.API.Listen = "127.0.0.1:8080" // who wants to be reached from elsewhere has to say so
	c.Journal.Dir = "trafficd-data/journal"
	return c
}

// complete derives what is left empty from other keys: files live inside the
// journal's folder, because that is the one that is on a volume.
func (c *Config) complete() {
	if c.DeadLetters == "" {
		c.DeadLetters = filepath.Join(c.Journal.Dir, "dead-letters.ndjson")
	}
	if dir := &c.Pipeline.Answers.Journal.Dir; *dir == "" {
		*dir = filepath.Join(c.Journal.Dir, "answers")
	}
}

// HasKeys tells whether there is any place where API keys come from.
func (c *Config) HasKeys() bool { return c.API.KeysFile != "" || len(c.API.Keys) > 0 }

// validate joins what all sections find.
func (c *Config) validate(origins Origins) error {
	var wrong []error
	section := func(name string, err error) { wrong = append(wrong, lines(name, err, origins)...) }
	section("", c.validateOwn())
	section("log", c.Log.Validate())
	section("ops", c.Ops.Validate())
	section("api", c.validateAPI())
	section("ingest", c.Ingest.Validate())
	section("registry", c.Registry.Validate())
	section("pipeline", c.Pipeline.Check())
	section("journal", c.Journal.Validate())
	if c.ClickHouse.Enabled {
		section("clickhouse", c.ClickHouse.Validate())
		section("clickhouse.delivery", c.ClickHouse.Delivery.Validate())
	}
	if c.Kafka.Enabled {
		section("kafka", c.Kafka.Validate())
		section("kafka.delivery", c.Kafka.Delivery.Validate())
	}
	section("forecasts", c.Forecasts.Validate())
	section("layers", c.Layers.Validate())
	section("routing", c.Routing.Validate())
	return errors.Join(wrong...)
}

func (c *Config) validateOwn() error {
	if c.ShutdownTimeout < time.Second || c.ShutdownTimeout > 10*time.Minute {
		return fmt.Errorf("shutdown_timeout is %v: it has to lie between 1s, because a block in hand needs as long, and 10m, because no platform waits longer before it kills", c.ShutdownTimeout)
	}
	if c.MemoryLimit != 0 && c.MemoryLimit < 64<<20 {
		return fmt.Errorf("memory_limit is %d: it has to be 0 (none) or at least 67108864, because below that the garbage collector would hardly rest", c.MemoryLimit)
	}
	return nil
}

// validateAPI lets missing keys pass: that is for readiness to say.
func (c *Config) validateAPI() error {
	a := c.API
	if !c.HasKeys() {
		a.KeysFile = "none"
	}
	return a.Validate()
}

// lines gives one error for each line of a section's error. Each names its key
// in full and where the value came from.
func lines(section string, err error, origins Origins) []error {
	if err == nil {
		return nil
	}
	var list []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if section != "" && !strings.HasPrefix(line, section+".") {
			line = section + "." + line
		}
		list = append(list, errors.New(line+origins.of(section, line)))
	}
	return list
}

// of tells where the values of the keys came from that a message names.
func (o Origins) of(section, message string) string {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,:;()\"[]", r) })
	var from []string
	for _, word := range words {
		for _, key := range []string{word, join(section, word)} {
			if origin, ok := o[key]; ok {
				if origin = key + " from " + origin; !slices.Contains(from, origin) {
					from = append(from, origin)
				}
			}
		}
	}
	if len(from) == 0 {
		return ""
	}
	return " (" + strings.Join(from, "; ") + ")"
}
