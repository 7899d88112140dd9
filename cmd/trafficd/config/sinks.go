package config

import (
	"context"

	"github.com/rs/zerolog"

	"trafficd/pipeline"
	"trafficd/sinks/clickhouse"
	"trafficd/sinks/kafka"
)

// Sink is a store that measurements are delivered to.
type Sink struct {
	Name     string // also names its section and its cursor in the journal, so it must never change
	Enabled  func(*Config) bool
	Delivery func(*Config) pipeline.DeliveryConfig
	Open     func(*Config, zerolog.Logger) (pipeline.Sink, error) // succeeds even if the store is unreachable

	// Check reports problems with the files named in the sink's settings and, if deep, with the
	// store. Each of the joined errors starts with a key.
	Check func(ctx context.Context, c *Config, deep bool) error
}

// Sinks lists all sinks. A new one needs an entry here and a section in the configuration.
var Sinks = []Sink{
	{
		"clickhouse",
		func(c *Config) bool { return c.ClickHouse.Enabled },
		func(c *Config) pipeline.DeliveryConfig { return c.ClickHouse.Delivery },
		func(c *Config, log zerolog.Logger) (pipeline.Sink, error) {
			return clickhouse.New(c.ClickHouse.Config, log)
		},
		func(ctx context.Context, c *Config, deep bool) error { return c.ClickHouse.Check(ctx, deep) },
	},
	{
		"kafka",
		func(c *Config) bool { return c.Kafka.Enabled },
		func(c *Config) pipeline.DeliveryConfig { return c.Kafka.Delivery },
		func(c *Config, log zerolog.Logger) (pipeline.Sink, error) {
			return kafka.New(c.Kafka.Config, log)
		},
		func(ctx context.Context, c *Config, deep bool) error { return c.Kafka.Check(ctx, deep) },
	},
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
