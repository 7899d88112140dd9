// Package generate generates detectors and their measurements: roads with stations, rush hours,
// autocorrelated noise, outages, and optionally items with every error for which the daemon rejects
// single items (contract 1.2, rules 2 to 13).
//
// The same Config gives the same bytes. Each detector has its own random source, so the number of draws
// for one does not affect another. Errors have another source, so the error rate does not change valid
// items.
package generate

import (
	"fmt"
	"slices"
	"time"
)

// Types are the supported measure types.
var Types = []string{"speed", "flow", "occupancy"}

// Config says what to generate. Each field is the flag of that name.
type Config struct {
	Detectors int
	From      time.Time // start of the first interval
	Days      int
	Interval  time.Duration
	Seed      uint64
	Types     []string
	AllTypes  bool    // every detector measures every type
	GapRate   float64 // share of measurements that are missing in outages
	ErrorRate float64 // share of invalid measurements
}

// DefaultConfig is one day of the largest network whose intervals fit into a batch.
func DefaultConfig() Config {
	return Config{
		Detectors: 14_000,
		From:      time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Days:      1,
		Interval:  5 * time.Minute,
		Seed:      1,
		Types:     Types,
		GapRate:   0.01,
	}
}

// Validate returns an error for the first invalid setting.
func (c Config) Validate() error {
	switch {
	case c.Detectors < 1 || c.Detectors > 10_000_000:
		return fmt.Errorf("--detectors %d must be 1 to 10,000,000 (they are kept in memory)", c.Detectors)
	case c.From.Year() < 1971 || c.From.Year() > 2259:
		return fmt.Errorf("--from %s must be in the years 1971 to 2259 (the daemon accepts 1970 to 2261, and --error-rate needs a year on each side)", c.From.Format(time.DateOnly))
	case c.Days < 1 || c.Days > 366:
		return fmt.Errorf("--days %d must be 1 to 366", c.Days)
	case c.Interval < time.Second || c.Interval > 24*time.Hour:
		return fmt.Errorf("--interval %s must be 1s to 24h", c.Interval)
	case len(c.Types) == 0:
		return fmt.Errorf("--types is required: list some of %v", Types)
	case c.GapRate < 0 || c.GapRate > 0.9:
		return fmt.Errorf("--gap-rate %g must be 0 to 0.9", c.GapRate)
	case c.ErrorRate < 0 || c.ErrorRate > 1:
		return fmt.Errorf("--error-rate %g must be 0 to 1", c.ErrorRate)
	}
	for _, kind := range c.Types {
		if !slices.Contains(Types, kind) {
			return fmt.Errorf("--types %q must be some of %v", kind, Types)
		}
	}
	return nil
}

// Intervals returns the number of intervals.
func (c Config) Intervals() int {
	return int(time.Duration(c.Days) * 24 * time.Hour / c.Interval)
}
