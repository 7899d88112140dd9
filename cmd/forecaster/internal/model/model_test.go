package model

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// learned returns tables with a flat profile, in which the forecast is the profile plus half of the
// last residual.
func learned(day time.Time) *Learned {
	detector := func(level float64) *Detector {
		w := Weights{Horizon: 3, Low: -5, High: 5}
		w.Beta[0] = 0.5
		far := w
		far.Horizon, far.Beta[0], far.Low, far.High = 12, 0.2, -8, 8
		return &Detector{Profile: slices.Repeat([]float64{level}, 3*SlotsPerDay), Mean: level, Weights: []Weights{w, far}}
	}
	return &Learned{
		Day: day, Until: day, Interval: 5 * time.Minute,
		Detectors: map[string]*Detector{"a": detector(50)}, Pool: detector(40),
	}
}

func values(at map[int]float64) (r Recent) {
	for i, v := range at {
		r.Values[i], r.Weights[i] = v, 2
	}
	return r
}

func TestFallbacks(t *testing.T) {
	day := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	f := func(l *Learned, origin time.Time, code string, r Recent, horizon time.Duration, want float64, basis Basis) {
		t.Helper()
		s := NewStep(l, origin, []string{code}, []Recent{r})
		out := make([]Forecast, 1)
		s.Forecast(code, &r, []Target{s.TargetOf(horizon)}, out, nil)
		require.Equal(t, basis, out[0].Basis)
		if basis != None {
			require.InDelta(t, want, out[0].Value, 1e-12)
		}
	}
	l, noon := learned(day), day.Add(12*time.Hour)
	slow := values(map[int]float64{11: 42}) // its residual of -8 is shrunk to -4
	f(l, noon, "a", slow, 15*time.Minute, 48, Own)
	f(l, noon, "a", slow, 5*time.Minute, 48, Own)
	f(l, noon, "a", slow, time.Hour, 50-4*0.2, Own)
	f(l, noon, "a", slow, 2*time.Hour, 50-4*0.2, Own)
	f(l, noon, "a", slow, 35*time.Minute, 50-4*(0.5-0.3*4/9), Own) // between 15 and 60 minutes
	f(l, noon, "a", Recent{}, 15*time.Minute, 50, Own)             // a gap: the residual is 0
	f(l, noon, "a", values(map[int]float64{2: 10}), 15*time.Minute, 50, Own)
	f(l, noon, "a", values(map[int]float64{11: -1000}), 15*time.Minute, 50-Clip/4, Own) // an outlier is limited
	motorway := learned(day)
	motorway.Detectors["a"] = motorway.Pool
	motorway.Pool.Profile = slices.Repeat([]float64{120}, 3*SlotsPerDay)
	f(motorway, noon, "a", values(map[int]float64{11: 20}), 15*time.Minute, 120-100/4, Own) // a jam is not

	// Without history, a detector has the profile of all detectors, shifted to its own level.
	shaped := learned(day)
	shaped.Pool.Profile[SlotsPerDay+4*12+3] = 30 // from 12:45
	f(shaped, noon, "new", values(map[int]float64{11: 110, 4: 100}), 45*time.Minute, 105, Pooled)
	f(shaped, noon, "new", values(map[int]float64{11: 110, 4: 100}), time.Hour, 95, Pooled)
	f(shaped, noon, "new", Recent{}, time.Hour, 0, None)

	first := learned(day) // no weights yet
	first.Detectors["a"].Weights, first.Pool.Weights = nil, nil
	f(first, noon, "a", slow, 15*time.Minute, 50, Own)
	f(first, noon, "new", slow, 15*time.Minute, 42, Pooled)

	nothing := &Learned{Day: day, Interval: 5 * time.Minute}
	f(nothing, noon, "a", values(map[int]float64{3: 44, 7: 33}), time.Hour, 33, Persist)
	f(nothing, noon, "a", Recent{}, time.Hour, 0, None)
	f(l, noon.AddDate(0, 0, 1), "a", slow, 15*time.Minute, 48, Own)     // the next day has not been learned yet
	f(l, noon.AddDate(0, 0, 2), "a", slow, 15*time.Minute, 42, Persist) // the tables end
	f(l, day.AddDate(0, 0, 2).Add(-time.Minute*30), "a", slow, time.Hour, 42, Persist)
}

// TestSlot checks that slots are in local time, even on days on which clocks change.
func TestSlot(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Copenhagen")
	require.NoError(t, err)
	f := func(day, at string, want int) {
		t.Helper()
		d, err := time.ParseInLocation(time.DateOnly, day, zone)
		require.NoError(t, err)
		moment, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		require.Equal(t, want, (&Learned{Day: d}).Slot(moment))
	}
	f("2026-06-10", "2026-06-09T22:00:00Z", 96)
	f("2026-06-10", "2026-06-09T21:59:59Z", 95)
	f("2026-06-10", "2026-06-11T21:59:59Z", 287)
	f("2026-06-10", "2026-06-11T22:00:00Z", -1)
	f("2026-06-10", "2026-06-08T21:59:59Z", -1)
	f("2026-03-29", "2026-03-29T00:59:00Z", 96+7)  // 1:59
	f("2026-03-29", "2026-03-29T01:00:00Z", 96+12) // 3:00
	f("2026-10-25", "2026-10-25T00:00:00Z", 96+8)  // 2:00
	f("2026-10-25", "2026-10-25T01:00:00Z", 96+8)  // 2:00 again
	f("2026-10-25", "2026-10-25T22:59:00Z", 96+95)
	f("2026-03-30", "2026-03-28T23:30:00Z", 2)
}

// TestNetwork checks that the residuals of all detectors with a profile are features of each
// detector.
func TestNetwork(t *testing.T) {
	l := learned(time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC))
	l.Detectors["b"] = l.Pool
	codes := []string{"a", "b", "new"}
	recent := []Recent{values(map[int]float64{11: 45}), values(map[int]float64{9: 45, 1: 38}), values(map[int]float64{11: 110})}
	s := NewStep(l, l.Day.Add(time.Hour), codes, recent)
	require.InDelta(t, (2*-5+2*5.0)/(4+NetShrink), s.Network[0], 1e-12)
	require.InDelta(t, 2*-2/(2+NetShrink), s.Network[1], 1e-12)
	require.Len(t, Features, K)
	require.False(t, math.IsNaN(s.Network[0]))
}

// TestSubstitutes checks that the forecast of a detector whose values are refused uses the values
// of its street instead, and that its own values affect no forecast.
func TestSubstitutes(t *testing.T) {
	day := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	l := learned(day)
	l.Detectors["b"] = l.Detectors["a"]
	f := func(other Recent, want float64, basis Basis) {
		t.Helper()
		sick := values(map[int]float64{11: 150})
		sick.Refused, sick.Street, other.Street = true, "road", "road"
		s := NewStep(l, day.Add(12*time.Hour), []string{"a", "b"}, []Recent{sick, other})
		out := make([]Forecast, 1)
		s.Forecast("a", s.Recent("a", math.MaxInt64), []Target{s.TargetOf(15 * time.Minute)}, out, nil)
		require.Equal(t, basis, out[0].Basis)
		require.InDelta(t, want, out[0].Value, 1e-9)
		for _, f := range s.Imputed() {
			require.Equal(t, out[0], f, "profile and weights are the same at all times")
		}
	}
	f(values(map[int]float64{11: 38}), 50-0.5*12.0/3, Neighbours) // of weight 1, shrunk by 2
	f(Recent{}, 50, Profile)
	refused := values(map[int]float64{11: 38})
	refused.Refused = true
	f(refused, 50, Profile)
}
