package evaluate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
)

var day = time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)

const detectors, perDay = 20, 288

// flat returns tables in which the forecast is the profile of 50, with bounds that cover 80% of
// errors with a deviation of 5.
func flat() *model.Learned {
	l := &model.Learned{Day: day, Until: day, Interval: 5 * time.Minute, Detectors: make(map[string]*model.Detector)}
	for i := range detectors {
		d := &model.Detector{Profile: make([]float64, 3*model.SlotsPerDay), Mean: 50}
		for i := range d.Profile {
			d.Profile[i] = 50
		}
		d.SetFreeFlow()
		for _, h := range []int{3, 6, 12, 24} {
			d.Weights = append(d.Weights, model.Weights{Horizon: h, Low: -1.2816 * 5, High: 1.2816 * 5})
		}
		l.Detectors[fmt.Sprintf("%02d", i)], l.Pool = d, d
	}
	return l
}

// readings returns values for some days from the day before day. Detector i has readings of 5 + i
// vehicles, so their deviation is single / √(5 + i).
func readings(r *rand.Rand, days int, single float64) (all []archive.Values) {
	for i := range detectors {
		v := archive.Values{Code: fmt.Sprintf("%02d", i)}
		n := float64(5 + i)
		for range days * perDay {
			v.Values = append(v.Values, 50+r.NormFloat64()*single/math.Sqrt(n))
			v.Weights, v.Reliable = append(v.Weights, n/(n+2)), append(v.Reliable, 1)
		}
		all = append(all, v)
	}
	return all
}

func evaluation(days int) *Evaluation {
	e := &Evaluation{Horizons: []time.Duration{15 * time.Minute, time.Hour}, From: day, To: day.AddDate(0, 0, days)}
	e.reset()
	return e
}

// TestGroups compares the errors in each state with a plain computation.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := readings(r, 2, 20)
	for _, v := range all { // jams and gaps
		for i := perDay; i < len(v.Values); i++ {
			switch i / 7 % 10 {
			case 3, 4:
				v.Values[i] -= 30
			case 7:
				v.Weights[i], v.Reliable[i] = 0, 0
			}
		}
	}
	e := evaluation(1)
	l := flat()
	require.NoError(t, e.compare(l, day, e.To, all, all))
	results, err := e.results()
	require.NoError(t, err)

	want := make(map[string][2]float64) // readings and sum of absolute errors of the profile at 15 minutes
	for _, v := range all {
		for origin := perDay; origin+2 < 2*perDay; origin++ {
			if v.Reliable[origin+2] == 0 {
				continue
			}
			s := want[plainState(v.Values[origin-12:origin], v.Weights[origin-12:origin])]
			want[plainState(v.Values[origin-12:origin], v.Weights[origin-12:origin])] = [2]float64{s[0] + 1, s[1] + math.Abs(v.Values[origin+2]-50)}
		}
	}
	require.Len(t, want, len(model.States))
	total, covered := 0, 0.0
	for _, g := range results[0].Groups {
		switch g.By {
		case byState:
			require.Equal(t, int(want[g.Name][0]), g.Readings, g.Name)
			require.InDelta(t, want[g.Name][1]/want[g.Name][0], g.MAE[2], 1e-9, g.Name)
			require.InDelta(t, g.MAE[0]/min(g.MAE[1], g.MAE[2]), g.Ratio(), 1e-12)
		case byVolume:
			total++
			require.InDelta(t, results[0].Readings/10, g.Readings, float64(results[0].Readings)/50)
		case byHours:
			covered += *g.Coverage * float64(g.Readings)
		}
	}
	require.Equal(t, 10, total)
	require.InDelta(t, results[0].Coverage, covered/float64(results[0].Readings), 1e-9)
	require.Greater(t, results[0].Worst[0], results[0].MAE[0])
}

// plainState is the definition in the help of evaluate.
func plainState(values, weights []float64) string {
	var now, nowWeight, before, beforeWeight float64
	for i := range values {
		if i >= 9 {
			now, nowWeight = now+values[i]*weights[i], nowWeight+weights[i]
		} else {
			before, beforeWeight = before+values[i]*weights[i], beforeWeight+weights[i]
		}
	}
	if nowWeight == 0 {
		return "gap"
	}
	now /= nowWeight
	if beforeWeight > 0 {
		before /= beforeWeight
		if before-now > 5 {
			return "building"
		}
		if now-before > 5 {
			return "recovering"
		}
	}
	if now < 30 {
		return "jammed"
	}
	return "free"
}

// TestNoiseFloor checks that the floor is the error of a perfect forecast, which the profile is
// here but for its own deviation.
func TestNoiseFloor(t *testing.T) {
	all := readings(rand.New(rand.NewPCG(3, 4)), 3, 20)
	for i, v := range all { // the level of traffic changes slowly, and the numbers of vehicles quickly
		for n := range v.Values {
			vehicles := float64(5 + (n*7+i)%30)
			v.Values[n] = 50 + (v.Values[n]-50)*math.Sqrt(float64(5+i)/vehicles) + 10*math.Sin(float64(n)/40)
			v.Weights[n] = vehicles / (vehicles + 2)
		}
	}
	e := evaluation(1)
	require.NoError(t, e.compare(flat(), day, e.To, all[:], all))
	results, err := e.results()
	require.NoError(t, err)
	var want, n float64
	for _, v := range all {
		for i := perDay + 2; i < 2*perDay; i++ {
			want, n = want+math.Abs(v.Values[i]-50-10*math.Sin(float64(i)/40)), n+1
		}
	}
	require.NotNil(t, results[0].Floor)
	require.InEpsilon(t, want/n, *results[0].Floor, 0.05)
	require.InDelta(t, 0, *results[0].Closed, 1e-9, "the model is the profile")

	for _, v := range all { // without counts
		for n := range v.Weights {
			v.Weights[n] = uncounted
		}
	}
	e.reset()
	require.NoError(t, e.compare(flat(), day, e.To, all, all))
	results, err = e.results()
	require.NoError(t, err)
	require.Nil(t, results[0].Floor)
}
