package model

import (
	"math"
	"slices"
	"time"
)

// Blocks is the number of blocks of a day. The learned bounds have a spread in each.
const Blocks = 8

const (
	outside = 0.2 // share of the values that are outside of the bounds
	rate    = 0.1 // change of the logarithm of a factor by a miss; a detector has 10 to 200 readings a day
	settled = 3   // intervals after which late measurements have arrived: all instances then count the same

	narrowest, widest = -0.7, 1.4 // limits of the logarithm: bounds move to a half or four times at most
)

// Tracker adapts the bounds of each detector to their misses: for each learned horizon, it has a
// factor that grows with each value outside of the bounds and shrinks with each one within, so that
// it is stable if the right share is outside. The zero value is ready to use.
type Tracker struct {
	Until   time.Time // origin of the last step
	tracks  map[string]*track
	factors map[string][]float64 // after the last step; never modified
}

// Use makes the forecasts of a step use the factors after the last step that was added.
func (k *Tracker) Use(s *Step) { s.factors = k.factors }

type track struct {
	until   int64       // number of the last step with a value in its hour
	factors []float64   // logarithms by learned horizon; never modified, because steps keep them
	pending [][]float32 // forecasts by learned horizon: a ring of those whose values have not settled
}

// Add adapts the factors to the values that are known at the origin of the next step, and makes the
// forecasts of the step use them. Steps must follow one another without a gap.
func (k *Tracker) Add(s *Step) {
	if k.tracks == nil {
		k.tracks = make(map[string]*track)
	}
	k.factors, k.Until = make(map[string][]float64, len(s.codes)), s.Origin
	defer k.Use(s)
	number := s.Origin.Unix() / int64(s.Interval/time.Second)
	var targets []Target
	var out []Forecast
	for i, code := range s.codes {
		d, r, t := s.Detectors[code], s.recent[i], k.tracks[code]
		if d == nil || slices.Contains(s.past, -1) {
			continue
		}
		if t == nil || !t.fits(d.Weights) {
			t = &track{factors: make([]float64, len(d.Weights))}
			k.tracks[code] = t
		}
		if r.Weights != [Hour]float64{} {
			targets, out = targets[:0], out[:0]
			for _, w := range d.Weights {
				targets, out = append(targets, s.TargetOf(time.Duration(w.Horizon)*s.Interval)), append(out, Forecast{})
			}
			r.Refused = false // its values have no weight while they are refused
			s.Forecast(code, &r, targets, out, nil)
			t.add(s, d, &r, number, out)
		}
		k.factors[code] = t.factors
	}
}

// fits reports whether the weights have the horizons of the track.
func (t *track) fits(weights []Weights) bool {
	return len(t.factors) == len(weights) && (t.pending == nil ||
		slices.EqualFunc(t.pending, weights, func(ring []float32, w Weights) bool { return len(ring) == w.Horizon+settled }))
}

// add compares the value that has just settled with its forecasts, and adds those of a step.
func (t *track) add(s *Step, d *Detector, r *Recent, number int64, out []Forecast) {
	const place = Hour - 1 - settled
	if t.until != number-1 {
		t.pending = make([][]float32, len(d.Weights))
		for n, w := range d.Weights {
			t.pending[n] = slices.Repeat([]float32{float32(math.NaN())}, w.Horizon+settled)
		}
	}
	t.until = number
	factors := slices.Clone(t.factors)
	for n, w := range d.Weights {
		forecast := &t.pending[n][number%int64(len(t.pending[n]))]
		if e := r.Values[place] - float64(*forecast); r.Reliable[place] > 0 && !math.IsNaN(e) {
			f := s.factor(factors, d, Target{s.past[place], float64(w.Horizon)})
			miss := -outside
			if e < f*w.Low || e > f*w.High {
				miss++
			}
			factors[n] = max(narrowest, min(widest, factors[n]+rate*miss))
		}
		*forecast = float32(out[n].Value)
	}
	t.factors = factors
}

// factor returns the factor of the bounds of a detector, whose own factors are nil if unknown.
func (s *Step) factor(factors []float64, d *Detector, t Target) float64 {
	var logarithm float64
	if len(s.Pool.Weights) > 0 {
		a, b, share := s.Pool.between(t.Horizon)
		block := t.Slot % SlotsPerDay / (SlotsPerDay / Blocks)
		logarithm = mix(s.Pool.Weights[a].Spread[block], s.Pool.Weights[b].Spread[block], share)
	}
	if n := len(factors); n > 0 && n == len(d.Weights) { // otherwise they are of earlier tables with other horizons
		a, b, share := d.between(t.Horizon)
		logarithm += mix(factors[a], factors[b], share)
	}
	return math.Exp(logarithm)
}

// mix returns the weighted mean of a and b, of which share is the weight of b.
func mix(a, b, share float64) float64 { return a + share*(b-a) }
