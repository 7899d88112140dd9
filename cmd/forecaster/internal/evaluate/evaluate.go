// Package evaluate backtests the model on the archive.
//
// Days are learned and evaluated in turn: the forecasts of a day use only tables learned from
// earlier days and intervals that ended by the origin. Every interval of a day is an origin. The
// model and these baselines are compared on the same readings, those with enough vehicles (package
// archive):
//
//   - persistence: the last usable reading before the origin.
//   - profile: the weekly profile of the model alone, in slots of 15 minutes of local time.
//   - profile + residual: the profile and the residual of the last interval.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
)

// ErrLeak is the error of Day if the tables were learned from measurements after an origin.
var ErrLeak = errors.New("leak: a forecast was computed from measurements after its origin")

// Methods are the names of the compared methods, in the order of Result.
var Methods = []string{"model", "persistence", "profile", "profile + residual"}

// Result compares the methods at a horizon.
type Result struct {
	Minutes  int        `json:"horizon_minutes"`
	Unit     string     `json:"unit,omitempty"` // of the mean errors; empty: unknown
	Readings int        `json:"readings"`
	MAE      [4]float64 `json:"mae"`
	RMSE     [4]float64 `json:"rmse"`
	MAPE     [4]float64 `json:"mape_percent"` // only of readings other than 0
	Coverage float64    `json:"coverage_percent"`
}

// sums accumulates the errors at a horizon.
type sums struct {
	n, covered, positive       float64
	absolute, square, relative [4]float64
}

// Evaluation is a backtest on the archive.
type Evaluation struct {
	Source   *archive.Source
	Horizons []time.Duration
	From, To time.Time     // range of the readings that are compared
	Learning time.Duration // time that Run has spent learning in ClickHouse, not comparing

	// Truth is the archive of the readings that forecasts are compared with; nil: Source.
	Truth *archive.Source
	// Refused reports whether the values of a detector are refused at an origin; nil: as the archive
	// reports it.
	Refused func(code string, origin time.Time) bool
	// Hidden is the percentage of the detectors, others in each hour, whose last value is also imputed.
	Hidden  int
	Imputed Imputed

	sums []sums
}

// Imputed compares imputed values with the readings that they replace.
type Imputed struct {
	Readings int     `json:"readings"`
	MAE      float64 `json:"mae"`
}

func (i *Imputed) add(actual float64, f model.Forecast) {
	i.Readings++
	i.MAE += (math.Abs(f.Value-actual) - i.MAE) / float64(i.Readings)
}

func (e *Evaluation) hidden(code string, origin time.Time) bool {
	return e.Hidden > 0 && xxhash.Sum64String(fmt.Sprint(code, origin.Truncate(time.Hour).Unix()))%100 < uint64(e.Hidden)
}

// Run learns the days before From that a profile covers and those up to To, calls progress after
// each, and evaluates those from From to To. The learned tables of the source must be empty: tables
// learned from later days would be a leak.
func (e *Evaluation) Run(ctx context.Context, progress func(day time.Time)) (results []Result, err error) {
	e.sums = make([]sums, len(e.Horizons))
	first := e.Source.Day(e.From, 0)
	resumed := time.Now()
	for _, until := range []time.Time{e.From, e.To} { // Learn skips days long before the end
		err := e.Source.Learn(ctx, until, func(learned time.Time) error {
			e.Learning += time.Since(resumed)
			defer func() { resumed = time.Now() }()
			progress(learned)
			day := e.Source.Day(learned, 1)
			if day.Before(first) || !day.Before(e.To) {
				return nil
			}
			l, err := e.Source.Load(ctx, day)
			if err != nil {
				return err
			}
			return e.Day(ctx, l, day)
		})
		if err != nil {
			return nil, err
		}
	}
	return e.results()
}

// Day evaluates all origins of a local day with the learned tables.
func (e *Evaluation) Day(ctx context.Context, l *model.Learned, day time.Time) error {
	if e.sums == nil {
		e.sums = make([]sums, len(e.Horizons))
	}
	lead := 24 * time.Hour
	step := e.Source.Interval
	tomorrow := e.Source.Day(day, 1)
	end := tomorrow.Add(e.Horizons[len(e.Horizons)-1])
	if to := e.To.Truncate(step); end.After(to) { // the last interval must be complete
		end = to
	}
	source := *e.Source
	if e.Refused != nil {
		source.Refused = []string{""} // only those that are known at an origin are refused
	}
	all, err := source.Values(ctx, day.Add(-lead), end)
	truth := all
	if err == nil && e.Truth != nil {
		truth, err = e.Truth.Values(ctx, day.Add(-lead), end)
	}
	if err != nil {
		return err
	}
	actual, sends := make(map[string]*archive.Values, len(truth)), make(map[string]bool, len(all))
	for _, v := range all {
		sends[v.Code] = true
	}
	for i, v := range truth {
		actual[v.Code] = &truth[i]
		if !sends[v.Code] {
			all = append(all, archive.Values{Code: v.Code, Values: make([]float64, len(v.Values)), Weights: make([]float64, len(v.Values)), Street: v.Street})
		}
	}
	codes, recent := make([]string, len(all)), make([]model.Recent, len(all))
	last := slices.Repeat([]float64{math.NaN()}, len(all)) // latest usable value before the origin; NaN: none
	seen := 0                                              // number of values that last covers
	for origin := day; origin.Before(tomorrow) && origin.Before(end); origin = origin.Add(step) {
		if l.Until.After(origin) {
			return fmt.Errorf("%w: the tables for %s were learned from measurements until %s",
				ErrLeak, origin.Format(time.RFC3339), l.Until.Format(time.RFC3339))
		}
		known := int(origin.Sub(day.Add(-lead)) / step) // number of values before the origin
		for i, v := range all {
			codes[i], recent[i].Street = v.Code, v.Street
			recent[i].Refused = e.hidden(v.Code, origin) || e.Refused != nil && e.Refused(v.Code, origin)
			copy(recent[i].Values[:], v.Values[known-model.Hour:known])
			copy(recent[i].Weights[:], v.Weights[known-model.Hour:known])
			for n := seen; n < known; n++ {
				if v.Weights[n] > 0 {
					last[i] = v.Values[n]
				}
			}
		}
		seen = known
		s := model.NewStep(l, origin, codes, recent)
		var targets []model.Target
		var used []int
		for n, h := range e.Horizons {
			start := origin.Add(h - step)
			if !start.Before(e.From) && start.Before(end) {
				targets, used = append(targets, s.TargetOf(h)), append(used, n)
			}
		}
		out := make([]model.Forecast, len(targets))
		detail := make([]model.Detail, len(targets))
		for i, v := range all {
			r, now := recent[i], actual[v.Code]
			if now == nil {
				continue
			}
			if e.hidden(v.Code, origin) {
				if f := s.Impute(v.Code, &r); now.Reliable[known-1] > 0 && f.Basis != model.None {
					e.Imputed.add(now.Values[known-1], f)
				}
				r.Refused = false // its forecasts are compared as usual
			}
			s.Forecast(v.Code, &r, targets, out, detail)
			for n, h := range used {
				target := known + int(e.Horizons[h]/step) - 1
				if now.Reliable[target] > 0 && out[n].Basis != model.None {
					e.sums[h].add(now.Values[target], out[n], detail[n], last[i], &r)
				}
			}
		}
	}
	return nil
}

func (s *sums) add(actual float64, f model.Forecast, d model.Detail, last float64, r *model.Recent) {
	residual := d.Features[0] // shrunk by the model
	if w := r.Weights[model.Hour-1]; w > 0 {
		residual *= (w + model.Shrink) / w
	}
	if math.IsNaN(last) { // no usable value yet
		last = d.Profile
	}
	s.n++
	for i, value := range [4]float64{f.Value, last, d.Profile, d.Profile + residual} {
		e := value - actual
		s.absolute[i] += math.Abs(e)
		s.square[i] += e * e
		if actual > 0 {
			s.relative[i] += math.Abs(e) / actual
		}
	}
	if actual > 0 {
		s.positive++
	}
	if actual >= f.Low && actual <= f.High {
		s.covered++
	}
}

func (e *Evaluation) results() (list []Result, err error) {
	for i, s := range e.sums {
		if s.n == 0 {
			return nil, fmt.Errorf("no readings to compare at the horizon %s from %s to %s", e.Horizons[i],
				e.From.Format(time.RFC3339), e.To.Format(time.RFC3339))
		}
		r := Result{Minutes: int(e.Horizons[i] / time.Minute), Readings: int(s.n), Coverage: 100 * s.covered / s.n}
		for m := range Methods {
			r.MAE[m], r.RMSE[m], r.MAPE[m] = s.absolute[m]/s.n, math.Sqrt(s.square[m]/s.n), 100*s.relative[m]/max(s.positive, 1)
		}
		list = append(list, r)
	}
	return list, nil
}

// InUnit returns the unit in parentheses after a space, or "" if it is unknown.
func InUnit(results []Result) string {
	if len(results) == 0 || results[0].Unit == "" {
		return ""
	}
	return " (" + results[0].Unit + ")"
}
