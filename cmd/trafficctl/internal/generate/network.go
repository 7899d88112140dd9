// Package generate generates detectors and their measurements: roads with stations, rush hours,
// autocorrelated noise, outages, and optionally items with every error for which the daemon rejects
// single items (contract 1.2, rules 2 to 13).
//
// The same Config produces the same bytes. Each detector has its own random source, so the number of draws
// for one does not affect another. Errors have another source, so the error rate does not change valid
// items.
package generate

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
func (c Config) Intervals() int { return int(time.Duration(c.Days) * 24 * time.Hour / c.Interval) }

// Shape of the network.
const (
	stationsPerRoad = 40
	lanesPerStation = 2
)

// Random streams that no detector uses.
const (
	roadStream  = math.MaxUint64
	faultStream = math.MaxUint64 - 1
)

// Network is a set of detectors. It is not safe for concurrent use, and its measurements can be generated
// once.
type Network struct {
	cfg       Config
	detectors []detector
}

// New generates the detectors.
func New(cfg Config) (*Network, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Network{cfg: cfg, detectors: make([]detector, cfg.Detectors)}
	roads := rand.New(rand.NewPCG(cfg.Seed, roadStream))
	var r road
	for i := range n.detectors {
		if i%(stationsPerRoad*lanesPerStation) == 0 {
			r = road{number: i / (stationsPerRoad * lanesPerStation), Line: NewLine(roads), freeSpeed: []float64{50, 70, 100, 120}[roads.IntN(4)]}
		}
		n.detectors[i] = newDetector(&cfg, i, &r)
	}
	return n, nil
}

// WriteRegistry writes the detectors as CSV for a daemon's registry feed, with the column detectorCode.
func (n *Network) WriteRegistry(w io.Writer) error {
	_, err := fmt.Fprintln(w, "detectorCode,measureTypes,latitude,longitude")
	for _, d := range n.detectors {
		_, failed := fmt.Fprintf(w, "%s,%s,%.6f,%.6f\n", d.code, strings.Join(d.types, "+"), d.latitude, d.longitude)
		err = cmp.Or(err, failed)
	}
	return err
}

// road is a straight line of stations.
type road struct {
	Line
	number    int
	freeSpeed float64 // km/h
	metre     int     // of the last station
}

// Line is a straight line on the earth.
type Line struct{ Latitude, Longitude, Heading float64 } // degrees, and radians from north

// NewLine returns a line that starts near a town's centre.
func NewLine(r *rand.Rand) Line {
	return Line{50 + r.NormFloat64()*0.2, 10 + r.NormFloat64()*0.3, r.Float64() * 2 * math.Pi}
}

// At returns the position at a distance in metres along the line.
func (l Line) At(metre float64) (latitude, longitude float64) {
	along := metre / 111_320 // degrees
	latitude = l.Latitude + along*math.Cos(l.Heading)
	return latitude, l.Longitude + along*math.Sin(l.Heading)/math.Cos(latitude*math.Pi/180)
}

// meanOutage is the mean length of an outage, in intervals.
const meanOutage = 6

// detector is one lane of a station and its traffic pattern.
type detector struct {
	code                string
	types               []string
	latitude, longitude float64
	freeSpeed           float64 // km/h
	capacity            float64 // vehicles an hour
	morning, evening    peak
	night               float64 // minimum share of the capacity
	weekend             float64 // share of a working day's peaks
	hasQuality          bool

	rand   *rand.Rand
	noise  float64 // autocorrelated
	silent bool
}

type peak struct{ hour, width, height float64 }

func newDetector(cfg *Config, i int, r *road) detector {
	d := detector{rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i)))}
	lane := i%lanesPerStation + 1
	if lane == 1 {
		r.metre += 300 + d.rand.IntN(700)
	}
	d.code = fmt.Sprintf("R%03d-%05d-%d", r.number, r.metre, lane)
	d.latitude, d.longitude = r.At(float64(r.metre))
	d.types = cfg.Types
	if !cfg.AllTypes {
		kind := i % len(cfg.Types)
		d.types = cfg.Types[kind : kind+1]
	}
	d.freeSpeed = r.freeSpeed * (1 + 0.05*d.rand.NormFloat64())
	d.capacity = 900 + 1100*d.rand.Float64()
	d.morning = peak{hour: 7.5 + 0.5*d.rand.NormFloat64(), width: 1 + 0.5*d.rand.Float64(), height: 0.3 + 0.6*d.rand.Float64()}
	d.evening = peak{hour: 16.5 + 0.7*d.rand.NormFloat64(), width: 1.3 + 0.7*d.rand.Float64(), height: 0.3 + 0.6*d.rand.Float64()}
	d.night = 0.02 + 0.06*d.rand.Float64()
	d.weekend = 0.3 + 0.4*d.rand.Float64()
	d.hasQuality = d.rand.IntN(10) > 0
	return d
}

// state is the traffic in one interval.
type state struct{ speed, flow, occupancy, quality float64 }

// next returns the state of the interval that starts at t. ok is false in an outage. It must be called for
// every interval in order.
func (d *detector) next(t time.Time, gapRate float64) (s state, ok bool) {
	d.noise = 0.9*d.noise + 0.05*d.rand.NormFloat64()
	change := gapRate / (1 - gapRate) / meanOutage // makes gapRate the share of outages
	if d.silent {
		change = 1.0 / meanOutage
	}
	if d.rand.Float64() < change {
		d.silent = !d.silent
	}
	load := min(1, max(0, d.load(t)*(1+d.noise)))
	s.flow = math.Round(load * d.capacity)
	s.speed = d.freeSpeed * (1 - 0.6*load*load*load) * (1 + 0.03*d.rand.NormFloat64())
	s.speed = max(3, s.speed)
	const vehicleAndLoop = 0.0065 // km
	s.occupancy = min(100, 100*vehicleAndLoop*s.flow/s.speed)
	s.quality = 1 - 0.1*d.rand.Float64()*d.rand.Float64()
	return s, !d.silent
}

// load returns the share of the capacity in use at t: a minimum, two peaks and a midday level.
func (d *detector) load(t time.Time) float64 {
	hour := float64(t.Hour()) + float64(t.Minute())/60
	work := 1.0
	if day := t.Weekday(); day == time.Saturday || day == time.Sunday {
		work = d.weekend
	}
	at := func(p peak) float64 {
		x := (hour - p.hour) / p.width
		return p.height * math.Exp(-x*x/2)
	}
	return d.night + at(peak{hour: 13, width: 4, height: 0.25}) + work*(at(d.morning)+at(d.evening))
}
