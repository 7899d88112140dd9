package layers

import (
	"errors"
	"time"

	"trafficd/pipeline/lib/settings"
)

const (
	staleServe  = "serve"
	staleRefuse = "refuse"
)

const maxHorizons = 12 // bounds memory: a document is kept for each horizon, time zone and format

// Config is the layers section of the configuration. Fields without a key are constants that tests
// vary.
type Config struct {
	// maximum number of streets; if there are more, those with the highest numbers are omitted
	MaxStreets    int           `setting:"max_streets"`
	Horizons      []int         `setting:"horizons"`    // values that ?horizon= accepts, in minutes
	StaleAfter    time.Duration `setting:"stale_after"` // age of the data at which the layer becomes stale
	Stale         string        `setting:"stale"`       // what to do with requests for a stale layer: serve or refuse (503)
	BuildInterval time.Duration `setting:"-"`           // minimum time between builds, the resolution of Last-Modified
	// how long the whole layer, the horizons, or one of their formats and encodings is built in
	// advance after the last request for it
	KeepForms  time.Duration `setting:"-"`
	MaxWaiting int           `setting:"-"`         // maximum number of requests of a client that wait for a change; further ones do not wait
	QueryKey   bool          `setting:"query_key"` // also accept the key as ?apiKey=; URLs end up in logs
}

// DefaultConfig returns the defaults in contract 6.4. A street with twelve periods takes about 0.7
// kB of memory. In each time zone, each form that clients request takes another 0.2 kB if
// compressed, 1.7 kB as uncompressed protobuf, and 3.4 kB as uncompressed JSON.
func DefaultConfig() Config {
	return Config{
		MaxStreets:    100_000,
		Horizons:      []int{0, 15, 30, 45, 60, 75, 90, 105},
		StaleAfter:    30 * time.Minute,
		Stale:         staleServe,
		BuildInterval: time.Second,
		KeepForms:     time.Hour,
		MaxWaiting:    100,
	}
}

// Validate returns an error for each invalid setting, joined.
func (c Config) Validate() error {
	errs := []error{
		settings.AtLeast("max_streets", c.MaxStreets, 1, "it bounds memory"),
		settings.Check(len(c.Horizons) <= maxHorizons,
			"horizons has %d entries, must have at most %d: a layer is kept for each horizon in each time zone", len(c.Horizons), maxHorizons),
		settings.AtLeast("stale_after", c.StaleAfter, time.Minute, "feeds are not updated more often"),
		settings.Check(c.Stale == staleServe || c.Stale == staleRefuse, "stale is %q, must be serve or refuse", c.Stale),
	}
	seen := map[int]bool{}
	for _, h := range c.Horizons {
		errs = append(errs,
			settings.Check(h >= 0 && h <= 7*24*60, "horizons contains %d, must be between 0 and 10080 minutes (a week)", h),
			settings.Check(!seen[h], "horizons contains %d more than once", h))
		seen[h] = true
	}
	return errors.Join(errs...)
}
