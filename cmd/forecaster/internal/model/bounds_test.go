package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// follow adds the steps of a detector whose values deviate from the profile by 5 and, from shiftAt
// on, by the shift too. It returns the share of the values within the bounds for 15 and 60 minutes,
// on each day.
func follow(t *testing.T, days int, shiftAt time.Duration, shift float64) (coverage [][2]float64, steps []*Step) {
	t.Helper()
	day := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	l := learned(day)
	var k Tracker
	random := rand.New(rand.NewPCG(1, 2))
	perDay := int(24 * time.Hour / l.Interval)
	values := make([]float64, Hour, Hour+days*perDay)
	for i := range cap(values) - Hour {
		v := 50 + 5*random.NormFloat64()
		if time.Duration(i)*l.Interval >= shiftAt {
			v += shift
		}
		values = append(values, v)
	}
	inside, n := make([][2]float64, days), make([][2]float64, days)
	for i := range days * perDay {
		l.Day = day.AddDate(0, 0, i/perDay) // tables that know nothing of the shift
		r := Recent{Reliable: [Hour]float64(slices.Repeat([]float64{1}, Hour)), Weights: [Hour]float64(slices.Repeat([]float64{0.8}, Hour))}
		copy(r.Values[:], values[i:])
		s := NewStep(l, day.Add(time.Duration(i)*l.Interval), []string{"a"}, []Recent{r})
		k.Add(s)
		steps = append(steps, s)
		out := make([]Forecast, 2)
		s.Forecast("a", &r, []Target{s.TargetOf(15 * time.Minute), s.TargetOf(time.Hour)}, out, nil)
		for h, ahead := range []int{3, 12} {
			if target := i + ahead - 1; target < days*perDay {
				n[target/perDay][h]++
				if v := values[Hour+target]; v >= out[h].Low && v <= out[h].High {
					inside[target/perDay][h]++
				}
			}
		}
	}
	for d := range days {
		coverage = append(coverage, [2]float64{inside[d][0] / n[d][0], inside[d][1] / n[d][1]})
	}
	return coverage, steps
}

// TestPlantedShift checks that the bounds cover 8 of 10 values, and do so again a day after the
// level of a detector has shifted to one that the tables do not know.
func TestPlantedShift(t *testing.T) {
	f := func(shift float64) {
		t.Helper()
		coverage, steps := follow(t, 6, 3*24*time.Hour, shift)
		for d, c := range coverage {
			for h := range c {
				switch d {
				case 0: // the learned bounds are too narrow or too wide
				case 3:
					require.Greater(t, c[h], 0.55, "on the day of the shift by %g: %v", shift, coverage)
				default:
					require.InDelta(t, 0.8, c[h], 0.035, "day %d, shift by %g: %v", d, shift, coverage)
				}
			}
		}
		again, repeated := follow(t, 6, 3*24*time.Hour, shift)
		require.Equal(t, coverage, again)
		require.Equal(t, steps[len(steps)-1].factors, repeated[len(repeated)-1].factors)
	}
	f(0)
	f(-12)
	f(10)
}

// TestTracker checks that only settled reliable values of known forecasts count, that a value
// within the bounds makes them narrower and one outside of them wider, and that the factors of a
// step never change.
func TestTracker(t *testing.T) {
	day := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	f := func(value, reliable float64, steps int, skip int, want float64) {
		t.Helper()
		l := learned(day)
		var k Tracker
		var all []*Step
		for i := range steps {
			if i == skip { // the instance has missed an interval
				continue
			}
			r := Recent{}
			for n := range r.Values {
				r.Values[n], r.Weights[n], r.Reliable[n] = value, 1, reliable
			}
			s := NewStep(l, day.Add(12*time.Hour+time.Duration(i)*l.Interval), []string{"a"}, []Recent{r})
			k.Add(s)
			all = append(all, s)
		}
		last := all[len(all)-1]
		require.InDelta(t, want, last.factors["a"][0], 1e-9)
		require.Zero(t, all[0].factors["a"][0])
		out := make([]Forecast, 1)
		last.Forecast("a", &Recent{}, []Target{last.TargetOf(15 * time.Minute)}, out, nil)
		require.InDelta(t, 5*math.Exp(want), out[0].High-out[0].Value, 1e-9)
		last.Forecast("a", &Recent{Refused: true}, []Target{last.TargetOf(15 * time.Minute)}, out, nil)
		require.InDelta(t, 5, out[0].High-out[0].Value, 1e-9, "the factor is that of the detector's own values")
	}
	known := 3 + settled // steps until a value of the first forecast has settled
	f(50, 1, known, -1, 0)
	f(50, 1, known+1, -1, -rate*outside)
	f(20, 1, known+1, -1, rate*(1-outside))
	f(20, 1, known+3, -1, 3*rate*(1-outside))
	f(20, 0, known+3, -1, 0)
	f(20, 1, known+3, 5, 0)
	f(20, 1, 100, -1, widest)
	f(50, 1, 100, -1, narrowest)
}

// TestSpread checks that the bounds are wider or narrower in the blocks of the day.
func TestSpread(t *testing.T) {
	day := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	l := learned(day)
	l.Pool.Weights[0].Spread[4] = 0.5
	l.Pool.Weights[1].Spread[4] = -0.1
	f := func(origin, horizon time.Duration, want float64) {
		t.Helper()
		s := NewStep(l, day.Add(origin), []string{"a"}, make([]Recent, 1))
		out := make([]Forecast, 1)
		s.Forecast("a", &Recent{}, []Target{s.TargetOf(horizon)}, out, nil)
		require.InDelta(t, want, out[0].High-out[0].Value, 1e-9)
		require.InDelta(t, want, out[0].Value-out[0].Low, 1e-9)
	}
	f(11*time.Hour, 15*time.Minute, 5)
	f(12*time.Hour, 15*time.Minute, 5*math.Exp(0.5)) // of the interval that begins at 12:10
	f(12*time.Hour, time.Hour, 8*math.Exp(-0.1))
	f(14*time.Hour+30*time.Minute, time.Hour, 8) // after the block
}
