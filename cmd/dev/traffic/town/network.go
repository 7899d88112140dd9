// Package town generates a town with its traffic: connected streets, rush hours and moving
// jams. Forecasts are exactly this traffic. Measurements add noise, outages and, optionally, items
// with every error for which the daemon rejects individual items (contract 1.2, rules 2 to 13).
//
// The traffic of a street is a function of the street, the time and the seed. Measurements and
// forecasts therefore agree although they are generated separately, and the same MeasurementConfig
// produces the same bytes. Errors use separate random numbers, so the error rate does not change
// valid items.
package town

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/dev/traffic/roads"
	"trafficd/schemas/openlr"
)

// Types lists the supported measure types.
var Types = []string{"speed", "flow", "occupancy"}

// MeasurementConfig describes what to generate. Each field corresponds to the flag with the same
// name, except that Streets is --detectors and Count is --intervals.
type MeasurementConfig struct {
	Config
	From      time.Time // start of the first interval
	Days      int
	Count     int // number of intervals; 0: as many as Days contains
	Interval  time.Duration
	Types     []string
	AllTypes  bool    // every detector measures every type
	GapRate   float64 // fraction of measurements that are missing because of outages
	ErrorRate float64 // fraction of measurements that are invalid
}

// DefaultMeasurementConfig returns the settings for one day and 14,000 detectors, so that each
// interval fits into one batch.
func DefaultMeasurementConfig() MeasurementConfig {
	return MeasurementConfig{
		Config:   Config{Streets: 14_000, Seed: 1},
		From:     time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		Days:     1,
		Interval: 5 * time.Minute,
		Types:    Types,
		GapRate:  0.01,
	}
}

// Validate returns an error for the first invalid setting.
func (c MeasurementConfig) Validate() error {
	switch {
	case c.Streets < 1 || c.Streets > 10_000_000:
		return fmt.Errorf("--detectors %d must be 1 to 10,000,000 (they are kept in memory)", c.Streets)
	case c.From.Year() < 1971 || c.From.Year() > 2259:
		return fmt.Errorf("--from %s must be in the years 1971 to 2259 (the daemon accepts 1970 to 2261, and --error-rate needs a year on each "+
			"side)", c.From.Format(time.DateOnly))
	case c.Days < 1 || c.Days > 366:
		return fmt.Errorf("--days %d must be 1 to 366", c.Days)
	case c.Count < 0 || c.Count > 1_000_000:
		return fmt.Errorf("--intervals %d must be 1 to 1,000,000, or 0 to use --days", c.Count)
	case c.Interval < time.Second || c.Interval > 24*time.Hour:
		return fmt.Errorf("--interval %s must be 1s to 24h", c.Interval)
	case time.Duration(c.Intervals()) > time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC).Sub(c.From)/c.Interval:
		return fmt.Errorf("--intervals %d of %s must end in the year 2260 or earlier", c.Count, c.Interval)
	case len(c.Types) == 0:
		return fmt.Errorf("--types must list at least one of %v", Types)
	case !(c.GapRate >= 0 && c.GapRate <= 0.9): // including NaN
		return fmt.Errorf("--gap-rate %g must be 0 to 0.9", c.GapRate)
	case !(c.ErrorRate >= 0 && c.ErrorRate <= 1):
		return fmt.Errorf("--error-rate %g must be 0 to 1", c.ErrorRate)
	}
	for _, kind := range c.Types {
		if !slices.Contains(Types, kind) {
			return fmt.Errorf("--types: %q must be one of %v", kind, Types)
		}
	}
	return c.Config.Validate()
}

// Intervals returns the number of intervals.
func (c MeasurementConfig) Intervals() int {
	return cmp.Or(c.Count, int(time.Duration(c.Days)*24*time.Hour/c.Interval))
}

// faultStream is the seed of random numbers that no detector uses.
const faultStream = math.MaxUint64

// Network is a town with a detector for each direction of its streets.
type Network struct {
	cfg       MeasurementConfig
	town      *Town
	detectors []detector
}

// New generates a network.
func New(cfg MeasurementConfig) (*Network, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Network{cfg: cfg, town: NewTown(cfg.Config), detectors: make([]detector, cfg.Streets)}
	for i := range n.detectors {
		s := &n.town.Streets[i]
		d := &n.detectors[i]
		d.Street, d.code, d.types = s, fmt.Sprintf("D%d-%d", s.Number, s.From), cfg.Types
		if !cfg.AllTypes {
			kind := i % len(cfg.Types)
			d.types = cfg.Types[kind : kind+1]
		}
		d.hasQuality = chance(cfg.Seed, s.index, 0, 9) < 0.9
	}
	return n, nil
}

// Detectors returns the codes of the detectors.
func (n *Network) Detectors() []string {
	codes := make([]string, len(n.detectors))
	for i := range n.detectors {
		codes[i] = n.detectors[i].code
	}
	return codes
}

// WriteRegistry writes the detectors as CSV, for a daemon's registry feed (which uses only the
// column detectorCode) and for a forecaster.
func (n *Network) WriteRegistry(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "detectorCode,measureTypes,latitude,longitude,street,fromnode,openlr,length,name,geometry")
	for _, d := range n.detectors {
		var course []string
		for _, p := range d.Course() {
			course = append(course, fmt.Sprintf("%.6f %.6f", p[0], p[1]))
		}
		fmt.Fprintf(out, "%s,%s,%.6f,%.6f,%d,%d,%s,%.0f,%q,\"LINESTRING (%s)\"\n", d.code, strings.Join(d.types, "+"),
			(d.Start[1]+d.End[1])/2, (d.Start[0]+d.End[0])/2, d.Number, d.From, d.OpenLR(), d.Length, d.Name, strings.Join(course, ", "))
	}
	return out.Flush()
}

// WriteMap writes the streets as a map of OpenStreetMap in PBF, on which trafficctl route match
// finds them, and routing engines drive.
func (n *Network) WriteMap(w io.Writer) error {
	var m roads.Map
	crossings := make(map[int32][2]float64)
	for _, d := range n.detectors {
		crossings[d.From], crossings[d.To] = d.Start, d.End
	}
	for _, number := range slices.Sorted(maps.Keys(crossings)) {
		m.Nodes = append(m.Nodes, roads.Node{ID: int64(number), Lon: crossings[number][0], Lat: crossings[number][1]})
	}
	id := int64(len(n.town.Streets) + 1) // crossings have lower numbers
	for i, d := range n.detectors {
		if i%2 == 1 { // the other direction of the last street
			continue
		}
		way := roads.Way{ID: int64(d.Number), Nodes: []int64{int64(d.From)}, Tags: [][2]string{{"highway", highways[d.Class]}}}
		course := d.Course()
		for _, p := range course[1 : len(course)-1] {
			id++
			m.Nodes, way.Nodes = append(m.Nodes, roads.Node{ID: id, Lon: p[0], Lat: p[1]}), append(way.Nodes, id)
		}
		way.Nodes = append(way.Nodes, int64(d.To))
		if i == len(n.detectors)-1 {
			way.Tags = append(way.Tags, [2]string{"oneway", "yes"})
		}
		m.Ways = append(m.Ways, way)
	}
	return m.WritePBF(w)
}

// highways are OpenStreetMap's names of the classes of roads.
var highways = map[openlr.FunctionalRoadClass]string{2: "primary", 3: "secondary", 4: "tertiary", 6: "residential", 7: "living_street"}

// detector measures one direction of a street.
type detector struct {
	*Street
	code       string
	types      []string
	hasQuality bool
}

// state holds a detector's measurements in an interval.
type state struct{ speed, flow, occupancy, quality float64 }

// measure returns a detector's state in the interval that starts at from. ok is false in an outage.
func (n *Network) measure(d *detector, from time.Time) (s state, ok bool) {
	const outage = 30 * time.Minute
	if chance(n.cfg.Seed, d.index, uint64(from.Unix())/uint64(outage.Seconds()), 10) < n.cfg.GapRate {
		return s, false
	}
	noise := rand.New(rand.NewPCG(n.cfg.Seed^d.index<<32, uint64(from.UnixNano())))
	traffic := n.town.At(d.Street, from.Add(n.cfg.Interval/2))
	s.flow = math.Round(max(0, traffic.Flow*(1+0.1*noise.NormFloat64())))
	s.speed = max(3, traffic.Speed*(1+0.03*noise.NormFloat64()))
	const vehicleAndLoop = 0.0065 // km
	s.occupancy = min(100, 100*vehicleAndLoop*s.flow/s.speed)
	s.quality = 1 - 0.1*noise.Float64()*noise.Float64()
	return s, true
}
