package generate

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Types are the measure types that there are curves for.
var Types = []string{"speed", "flow", "occupancy"}

// Config says what to make. Each setting is the flag of that name.
type Config struct {
	Detectors int
	From      time.Time // start of the first interval
	Days      int
	Interval  time.Duration
	Seed      uint64
	Types     []string
	AllTypes  bool    // every detector measures every type, instead of one each
	GapRate   float64 // share of the measurements that are missing, in outages
	ErrorRate float64 // share of the measurements with a fault
}

// DefaultConfig is one day of the largest network whose intervals fit a batch.
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

// Validate gives the first setting that cannot be, and why.
func (c Config) Validate() error {
	switch {
	case c.Detectors < 1 || c.Detectors > 10_000_000:
		return fmt.Errorf("--detectors %d: from 1 to 10,000,000, each is kept in memory", c.Detectors)
	case c.From.Year() < 1971 || c.From.Year() > 2259:
		return fmt.Errorf("--from %s: the daemon takes the years 1970 to 2261, and faults need a year on both sides", c.From.Format(time.DateOnly))
	case c.Days < 1 || c.Days > 366:
		return fmt.Errorf("--days %d: from 1 to 366", c.Days)
	case c.Interval < time.Second || c.Interval > 24*time.Hour:
		return fmt.Errorf("--interval %s: from 1s to 24h, a day is its longest measure", c.Interval)
	case len(c.Types) == 0:
		return errors.New("--types is empty: name at least one")
	case c.GapRate < 0 || c.GapRate > 0.9:
		return fmt.Errorf("--gap-rate %g: from 0 to 0.9, beyond it hardly anything is left", c.GapRate)
	case c.ErrorRate < 0 || c.ErrorRate > 1:
		return fmt.Errorf("--error-rate %g: a share is from 0 to 1", c.ErrorRate)
	}
	for _, kind := range c.Types {
		if !slices.Contains(Types, kind) {
			return fmt.Errorf("--types %q: there are curves for %v only", kind, Types)
		}
	}
	return nil
}

// Intervals is how many intervals there are.
func (c Config) Intervals() int {
	return int(time.Duration(c.Days) * 24 * time.Hour / c.Interval)
}
