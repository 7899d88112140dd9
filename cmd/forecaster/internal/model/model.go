// Package model computes forecasts from the learned tables and the values of the last hour. It does
// no I/O.
//
// # Model
//
// The forecast of a detector is its profile at the target time plus a linear function of its recent
// residuals, which are the differences between values and profile:
//
//	forecast = profile(target) + Σ weight(i, horizon) × feature(i)
//
// Package archive learns profiles and weights in ClickHouse. The weights minimise the absolute
// errors (iteratively reweighted, one iteration per day), shrunk towards the weights of all
// detectors. Between the learned horizons, weights and bounds are interpolated.
//
// A detector that has no profile yet has that of all detectors, shifted to its level.
//
// The value of a window is the mean of its residuals, weighted by the number of vehicles and shrunk
// towards 0. A missing value has weight 0, so a window without values is 0.
//
// # Bounds
//
// The bounds are the forecast plus the learned percentiles of the errors, times two factors: the
// spread of all detectors in the block of the day, which is learned too, and the factor of the
// detector that a Tracker adapts with each value.
//
// # Sick detectors
//
// The values of a detector that fails a test of its health are refused. Its forecast has the mean
// residuals of the other detectors of its street instead.
package model

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

// Hour is the number of intervals before the origin that a forecast uses.
const Hour = 12

// SlotsPerDay is the number of slots of a profile in a day of local time.
const SlotsPerDay = 96

// Parameters of the model, in the unit of the measure. Package archive uses them in SQL.
const (
	Clip      = 100.0 // residuals are limited to ± Clip in windows and profiles; those of a jam on a motorway reach it
	Knee      = 6.0   // windows limited to ± Knee are additional features
	DepthUnit = 10.0  // of the depth: a detector's profile minus its mean
	MaxDepth  = 1.5
	Shrink    = 2.0 // windows are shrunk towards 0 with this weight
	NetShrink = 5.0 // the same for the windows of the network
)

// Windows lists the windows as half-open ranges of ages, in intervals.
var Windows = [4][2]int{{0, 1}, {1, 3}, {3, 6}, {6, 12}}

// NetWindows lists the windows for the residuals of all detectors.
var NetWindows = [2][2]int{{0, 3}, {3, 12}}

// Features lists the names of the features, in the order of the weights.
var Features = []string{
	"last interval", "2 before", "3 before", "6 before",
	"last interval, limited", "2 before, limited", "3 before, limited",
	"last interval × depth", "2 before × depth", "3 before × depth", "6 before × depth",
	"network, last 3", "network, 9 before", "profile - mean", "yesterday", "recent days", "constant",
}

// Groups divides the features by what they say, as indexes of Features. The first group adds to the
// profile.
var Groups = []struct {
	Name     string
	Features []int
}{
	{"usual at this time", []int{13, 16}},
	{"the detector's last hour", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
	{"the network's last hour", []int{11, 12}},
	{"the days before", []int{14, 15}},
}

// K is the number of features.
const K = 17

// Weights holds the weights of the features at a horizon.
type Weights struct {
	Horizon   int // in intervals
	Beta      [K]float64
	Low, High float64 // 10th and 90th percentile of the error

	// Spread holds the logarithms of the factors of all bounds in the blocks of the day. Only the
	// weights of Learned.Pool have it.
	Spread [Blocks]float64
}

// Detector holds what was learned about a detector, or about all of them. The tags are the columns
// of the table of profiles.
type Detector struct {
	Profile   []float64 `ch:"profile"` // SlotsPerDay for the day before, the day and the day after
	Mean      float64   `ch:"mean"`
	Yesterday float64   `ch:"yesterday"` // mean residual of the day before
	Recent    float64   `ch:"recent"`    // weighted mean residual of earlier days; the latest have the most weight
	Weights   []Weights
	FreeFlow  float64 `ch:"-"` // 0 if unknown; SetFreeFlow sets it when the tables are loaded
}

// SetFreeFlow sets FreeFlow: the speed of free traffic is the 85th percentile of the profile.
func (d *Detector) SetFreeFlow() {
	usual := slices.DeleteFunc(slices.Clone(d.Profile), math.IsNaN)
	if slices.Sort(usual); len(usual) > 0 {
		d.FreeFlow = usual[(len(usual)-1)*85/100]
	}
}

// Learned holds the learned tables for one day.
type Learned struct {
	Day       time.Time // start of the local day for which the tables were learned
	Until     time.Time // end of the measurements from which they were learned
	Interval  time.Duration
	Detectors map[string]*Detector
	Pool      *Detector // for all detectors together; nil if nothing was learned
	Factor    float64   // from the unit of the values to km/h; 0 is 1
	Weekdays  []int     // that have typical speeds: 1 (Monday) to 7
}

// Same reports whether both are of the same day and the same measurements.
func (l *Learned) Same(other *Learned) bool {
	return l.Day.Equal(other.Day) && l.Until.Equal(other.Until) && l.Factor == other.Factor
}

// KMH converts a value to km/h.
func (l *Learned) KMH(value float64) float64 { return value * cmp.Or(l.Factor, 1) }

// Recent holds the values of a detector in the intervals of the last hour, oldest first. A weight
// of 0 means no value.
type Recent struct {
	Values  [Hour]float64
	Weights [Hour]float64

	// Reliable is not 0 for values with enough vehicles to adapt the bounds to them.
	Reliable [Hour]float64

	Seen    time.Time // end of the latest measurement, usable or not
	Street  string    // detectors of a street are neighbours; empty: unknown
	Refused bool      // the detector fails a test of its health: the forecast has a substitute for its values
}

// last returns the latest value as a forecast.
func (r *Recent) last() Forecast {
	f := Forecast{Low: math.NaN(), High: math.NaN(), Basis: None}
	for i, w := range r.Weights {
		if w > 0 {
			f.Value, f.Basis = r.Values[i], Persist
		}
	}
	return f
}

// State is the state of traffic at a detector before an origin.
type State string

// The states of traffic. The first that applies is that of a detector.
const (
	Gap        State = "gap"        // no usable reading in the last 3 intervals
	Building   State = "building"   // the mean of the last 3 intervals is below that of the 9 before by over 10 % of free flow
	Recovering State = "recovering" // it is above by over 10 % of free flow
	Jammed     State = "jammed"     // it is below 60 % of free flow
	Free       State = "free"       // else
)

// States lists the states of traffic.
var States = []State{Free, Building, Jammed, Recovering, Gap}

const (
	change = 0.10 // of free flow, by which traffic builds up or recovers
	jam    = 0.60 // of free flow, below which traffic is jammed
)

// State returns the state of traffic. Without d there is no speed of free flow.
func (r *Recent) State(d *Detector) State {
	mean := func(from, to int) float64 {
		var sum, weights float64
		for i := from; i < to; i++ {
			sum, weights = sum+r.Weights[i]*r.Values[i], weights+r.Weights[i]
		}
		return sum / weights // NaN without readings
	}
	now, before := mean(Hour-3, Hour), mean(0, Hour-3)
	switch {
	case math.IsNaN(now):
		return Gap
	case d == nil:
		return Free
	case now < before-change*d.FreeFlow:
		return Building
	case now > before+change*d.FreeFlow:
		return Recovering
	case now < jam*d.FreeFlow:
		return Jammed
	}
	return Free
}

// Basis names the data that a forecast is computed from.
type Basis string

// The bases of forecasts, from best to worst.
const (
	Own        Basis = "own"        // profile, weights and values of the detector
	Neighbours Basis = "neighbours" // profile and weights of the detector, with imputed values: its own are refused
	Profile    Basis = "profile"    // the same, without values: the detectors of its street have none either
	Pooled     Basis = "pool"       // profile of all detectors, shifted to the level of the last hour
	Persist    Basis = "last"       // the last value
	None       Basis = "nothing"    // no forecast
)

// Bases lists the bases of forecasts, from best to worst.
var Bases = []Basis{Own, Neighbours, Profile, Pooled, Persist, None}

// Add returns the worse of b and other, ignoring None unless both are None.
func (b Basis) Add(other Basis) Basis {
	if b == None || other != None && slices.Index(Bases, other) > slices.Index(Bases, b) {
		return other
	}
	return b
}

// Network holds the values of NetWindows.
type Network [2]float64

// Step computes forecasts from one origin, the end of the last interval of the recent values.
type Step struct {
	*Learned
	Origin  time.Time
	Network Network

	codes  []string // of the detectors, sorted
	recent []Recent // indexed like codes
	past   []int    // slot of each recent interval

	factors map[string][]float64 // of the bounds, by detector; nil: no Tracker has added the step

	streets map[string]*residuals
}

// residuals holds the sums of the weighted residuals of detectors, and of their weights.
type residuals struct{ weights, sums [Hour]float64 }

func (r *residuals) add(d *Detector, values *Recent, past []int) {
	for i, w := range values.Weights {
		if w > 0 {
			r.weights[i] += w
			r.sums[i] += w * limit(values.Values[i]-d.Profile[past[i]], Clip)
		}
	}
}

// NewStep prepares the forecasts from an origin with the recent values of all detectors, sorted by
// their codes. The step keeps both slices.
func NewStep(l *Learned, origin time.Time, codes []string, recent []Recent) *Step {
	s := &Step{Learned: l, Origin: origin, codes: codes, recent: recent, past: make([]int, Hour)}
	if l.Pool == nil {
		return s
	}
	for i := range s.past {
		s.past[i] = l.Slot(origin.Add(time.Duration(i-Hour) * l.Interval))
	}
	if slices.Contains(s.past, -1) {
		return s
	}
	var all residuals
	s.streets = make(map[string]*residuals)
	for n, code := range codes {
		d, r := l.Detectors[code], &recent[n]
		if d == nil || r.Refused {
			continue
		}
		all.add(d, r, s.past)
		if r.Street != "" {
			if s.streets[r.Street] == nil {
				s.streets[r.Street] = &residuals{}
			}
			s.streets[r.Street].add(d, r, s.past)
		}
	}
	for i, ages := range NetWindows {
		s.Network[i] = window(&all.weights, &all.sums, ages, NetShrink)
	}
	return s
}

// Recent returns the recent values of a detector, or nil if its latest measurement is older than
// maxAge.
func (s *Step) Recent(code string, maxAge time.Duration) *Recent {
	at, ok := slices.BinarySearch(s.codes, code)
	if !ok || s.Origin.Sub(s.recent[at].Seen) > maxAge {
		return nil
	}
	return &s.recent[at]
}

func limit(x, bound float64) float64 { return max(-bound, min(bound, x)) }

func window(weights, sums *[Hour]float64, ages [2]int, shrink float64) float64 {
	var w, s float64
	for i := Hour - ages[1]; i < Hour-ages[0]; i++ {
		w += weights[i]
		s += sums[i]
	}
	return s / (w + shrink)
}

// Forecast is the forecast of a detector for one target.
type Forecast struct {
	Value, Low, High float64
	Basis            Basis
}

// Detail holds the terms of a forecast.
type Detail struct {
	Profile  float64
	Features [K]float64
	Weights  Weights
}

// Target is an interval to forecast.
type Target struct {
	Slot    int     // of the start of the interval, as Learned.Slot returns it
	Horizon float64 // from the origin to the end of the interval, in intervals
}

// TargetOf returns the interval that ends at horizon after the origin.
func (s *Step) TargetOf(horizon time.Duration) Target {
	return Target{s.Slot(s.Origin.Add(horizon - s.Interval)), float64(horizon) / float64(s.Interval)}
}

// Profile returns a detector's profile in the interval that starts the given time after the origin,
// or NaN if there is none.
func (s *Step) Profile(code string, after time.Duration) float64 {
	d := s.Detectors[code]
	slot := s.Slot(s.Origin.Add(after))
	if d == nil || slot < 0 {
		return math.NaN()
	}
	return d.Profile[slot]
}

// Forecast computes the forecasts of a detector into out, and their terms into detail unless it is
// nil. Both must have the length of targets.
func (s *Step) Forecast(code string, r *Recent, targets []Target, out []Forecast, detail []Detail) {
	d, usable := s.Detectors[code], !slices.Contains(s.past, -1)
	var x [K]float64
	var factors []float64
	basis := Own
	if d != nil && usable {
		var own residuals
		if r.Refused {
			own, basis = s.substitute(r.Street)
		} else {
			own.add(d, r, s.past)
			factors = s.factors[code]
		}
		for i, ages := range Windows {
			x[i] = window(&own.weights, &own.sums, ages, Shrink)
		}
		for i := range 3 {
			x[4+i] = limit(x[i], Knee)
		}
		x[11], x[12], x[14], x[15], x[16] = s.Network[0], s.Network[1], d.Yesterday, d.Recent, 1
	}
	for n, t := range targets {
		switch {
		case !usable || t.Slot < 0 || d == nil && s.Pool == nil:
			out[n] = r.last()
			continue
		case d == nil:
			out[n] = s.pooled(r, t)
			if detail != nil {
				detail[n] = Detail{Profile: s.Pool.Profile[t.Slot]}
			}
			continue
		}
		level := d.Profile[t.Slot] - d.Mean
		depth := limit(level/DepthUnit, MaxDepth)
		for i := range 4 {
			x[7+i] = x[i] * depth
		}
		x[13] = level
		w := d.weightsAt(t.Horizon)
		f := s.factor(factors, d, t)
		w.Low, w.High = f*w.Low, f*w.High
		value := d.Profile[t.Slot]
		for i := range K {
			value += x[i] * w.Beta[i]
		}
		out[n] = Forecast{value, value + w.Low, value + w.High, basis}
		if detail != nil {
			detail[n] = Detail{d.Profile[t.Slot], x, w}
		}
	}
}

// substitute returns residuals for a detector whose values are refused: the mean of those of its
// street, with the weight of one detector.
func (s *Step) substitute(street string) (own residuals, basis Basis) {
	others := s.streets[street]
	if others == nil || others.weights == [Hour]float64{} {
		return own, Profile
	}
	for i, w := range others.weights {
		own.weights[i] = min(w, 1)
		own.sums[i] = own.weights[i] * others.sums[i] / max(w, 1e-9)
	}
	return own, Neighbours
}

// Imputed returns the value of each detector whose values are refused, unless it has no profile.
func (s *Step) Imputed() iter.Seq2[string, Forecast] {
	return func(yield func(string, Forecast) bool) {
		for i, code := range s.codes {
			if r := &s.recent[i]; r.Refused {
				if f := s.Impute(code, r); f.Basis != None && !yield(code, f) {
					return
				}
			}
		}
	}
}

// Impute returns the value that a detector whose values are refused would have in the last
// interval.
func (s *Step) Impute(code string, r *Recent) Forecast {
	f := make([]Forecast, 1)
	hidden := Recent{Street: r.Street, Refused: true}
	s.Forecast(code, &hidden, []Target{{Slot: s.past[Hour-1], Horizon: 0}}, f, nil)
	return f[0]
}

// pooled returns the forecast of a detector without a profile: the profile of all detectors plus
// the mean residual of the last hour, because detectors differ more than the hours of a day do.
func (s *Step) pooled(r *Recent, t Target) Forecast {
	f := Forecast{Low: math.NaN(), High: math.NaN(), Basis: None}
	var weights, sum float64
	for i, w := range r.Weights {
		if w > 0 {
			weights, sum = weights+w, sum+w*(r.Values[i]-s.Pool.Profile[s.past[i]])
			f.Value, f.Basis = s.Pool.Profile[t.Slot]+sum/weights, Pooled
		}
	}
	return f
}

// weightsAt returns the weights at a horizon, in intervals, interpolated between the learned
// horizons. On the first days there are no weights yet, so the forecast is the profile, without
// bounds.
func (d *Detector) weightsAt(horizon float64) (w Weights) {
	if len(d.Weights) == 0 {
		return Weights{Low: math.NaN(), High: math.NaN()}
	}
	before, after, share := d.between(horizon)
	a, b := &d.Weights[before], &d.Weights[after]
	if share == 0 {
		return *a
	}
	for i := range K {
		w.Beta[i] = mix(a.Beta[i], b.Beta[i], share)
	}
	w.Low, w.High = mix(a.Low, b.Low, share), mix(a.High, b.High, share)
	return w
}

// between returns the indexes of the learned horizons around a horizon, and the weight of the
// second.
func (d *Detector) between(horizon float64) (before, after int, share float64) {
	at := slices.IndexFunc(d.Weights, func(w Weights) bool { return horizon <= float64(w.Horizon) })
	switch at {
	case -1:
		return len(d.Weights) - 1, len(d.Weights) - 1, 0
	case 0:
		return 0, 0, 0
	}
	a, b := d.Weights[at-1].Horizon, d.Weights[at].Horizon
	return at - 1, at, (horizon - float64(a)) / float64(b-a)
}
