package layers

import (
	"errors"
	"fmt"
	"time"
)

// What stale may say.
const (
	staleServe  = "serve"
	staleRefuse = "refuse"
)

// maxHorizons bounds what is kept: every horizon is a document of its own for
// each time zone and format.
const maxHorizons = 12

// Config of the street forecast layer.
type Config struct {
	MaxStreets    int           `koanf:"max_streets"`    // those with the highest numbers are left out beyond it
	Horizons      []int         `koanf:"horizons"`       // minutes that ?horizon= may ask for
	StaleAfter    time.Duration `koanf:"stale_after"`    // without a word of the feed, the layer is stale
	Stale         string        `koanf:"stale"`          // what happens to a stale layer: serve or refuse (503)
	BuildInterval time.Duration `koanf:"build_interval"` // from one build to the next, at least; what is published between waits
	QueryKey      bool          `koanf:"query_key"`      // take ?apiKey= too; addresses end up in logs
}

// DefaultConfig is that of contract 2. A street of five periods takes about 3.2 kB in
// each time zone, all its forms together, two thirds of that as JSON; a build that changes everything
// takes a quarter as much again, for a while.
func DefaultConfig() Config {
	return Config{
		MaxStreets:    100_000,
		Horizons:      []int{0, 15, 30, 45, 60},
		StaleAfter:    30 * time.Minute,
		Stale:         staleServe,
		BuildInterval: time.Second,
	}
}

// Validate joins all that is wrong; each error names its key.
func (c Config) Validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxStreets >= 1, "max_streets is %d: it has to be at least 1; it bounds the memory, whatever the feed holds", c.MaxStreets)
	check(len(c.Horizons) <= maxHorizons, "horizons has %d entries: at most %d, because a layer is kept for each in every time zone", len(c.Horizons), maxHorizons)
	seen := map[int]bool{}
	for _, h := range c.Horizons {
		check(h >= 0 && h <= 7*24*60, "horizons has %d: it has to lie between 0 and 10080 minutes (a week), because no forecast reaches further", h)
		check(!seen[h], "horizons has %d twice: each is built once", h)
		seen[h] = true
	}
	check(c.StaleAfter >= time.Minute, "stale_after is %v: it has to be at least 1m, because feeds confirm no more often than that", c.StaleAfter)
	check(c.Stale == staleServe || c.Stale == staleRefuse, "stale is %q: it has to be serve or refuse", c.Stale)
	check(c.BuildInterval >= time.Second && c.BuildInterval <= time.Minute,
		"build_interval is %v: it has to lie between 1s, because Last-Modified counts seconds and must tell two layers apart, and 1m, because the layer changes with every minute", c.BuildInterval)
	return errors.Join(wrong...)
}
