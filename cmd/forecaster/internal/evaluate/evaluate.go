// Package evaluate backtests the model on the archive.
//
// The bounds are adapted to the misses since the start of the day before, as by the forecaster.
//
// Days are learned and evaluated in turn: the forecasts of a day use only tables learned from
// earlier days and intervals that ended by the origin. Every interval of a day is an origin. The
// model and these baselines are compared on the same readings, those with enough vehicles (package
// archive):
//
//   - persistence: the last usable reading before the origin.
//   - profile: the weekly profile of the model alone, in slots of 15 minutes of local time.
//   - profile + residual: the profile and the residual of the last interval.
//
// Bounds are compared as they are served: in km/h and rounded. Readings are also grouped by the
// local time of day, the basis of the forecast, the state of traffic (package model) and the tenth
// of the detectors, by the number of vehicles.
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
	Worst    [4]float64 `json:"mae_worst_tenth"` // of the tenth of the detectors for which the model's MAE is highest
	Floor    *float64   `json:"mae_noise_floor"` // MAE of a perfect forecast; null: there are no counts
	Closed   *float64   `json:"closed_percent"`  // share of the difference between profile and floor that the model closes
	Groups   []Group    `json:"groups"`
}

// Group compares the methods on a group of the readings at a horizon.
type Group struct {
	By       string     `json:"by"` // state, basis, hours or volume
	Name     string     `json:"name"`
	Readings int        `json:"readings"`
	MAE      [4]float64 `json:"mae"`
	Coverage *float64   `json:"coverage_percent"` // null: the forecasts have no bounds
}

// Ratio returns the MAE of the model relative to the better of persistence and profile.
func (g Group) Ratio() float64 { return g.MAE[0] / min(g.MAE[1], g.MAE[2]) }

const (
	byDetector = "" // not in results

	byState  = "state"
	byBasis  = "basis"
	byHours  = "hours"
	byVolume = "volume"
)

const blockHours = 3 // length of the blocks of the day

// sums accumulates the errors at a horizon.
type sums struct {
	n, bounded, covered, positive float64
	absolute, square, relative    [4]float64
	vehicles, deviation           float64 // deviation: sum of 1/√vehicles
}

type group struct{ by, name string }

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

	// Bounds returns the bounds of a forecast as they are served, in km/h; nil: they are not rounded.
	Bounds func(l *model.Learned, f model.Forecast) (low, high float64)

	trackers [2]model.Tracker // started with the day before, and with the day, as those of the forecaster

	sums   []sums
	groups []map[group]*sums // by horizon
	noise  map[string]*noise // by detector
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
	return e.Hidden > 0 && !origin.Before(e.From) &&
		xxhash.Sum64String(fmt.Sprint(code, origin.Truncate(time.Hour).Unix()))%100 < uint64(e.Hidden)
}

// Run learns the days before From that a profile covers and those up to To, calls progress after
// each, and evaluates those from From to To. The learned tables of the source must be empty: tables
// learned from later days would be a leak.
func (e *Evaluation) Run(ctx context.Context, progress func(day time.Time)) (results []Result, err error) {
	e.reset()
	first := e.Source.Day(e.From, 0)
	resumed := time.Now()
	for _, until := range []time.Time{e.From, e.To} { // Learn skips days long before the end
		err := e.Source.Learn(ctx, until, func(learned time.Time) error {
			e.Learning += time.Since(resumed)
			defer func() { resumed = time.Now() }()
			progress(learned)
			day := e.Source.Day(learned, 1)
			if day.Before(e.Source.Day(first, -1)) || !day.Before(e.To) { // bounds depend on the day before
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

func (e *Evaluation) reset() {
	e.sums, e.groups, e.noise = make([]sums, len(e.Horizons)), make([]map[group]*sums, len(e.Horizons)), make(map[string]*noise)
	for i := range e.groups {
		e.groups[i] = make(map[group]*sums)
	}
}

// Day evaluates all origins of a local day with the learned tables.
func (e *Evaluation) Day(ctx context.Context, l *model.Learned, day time.Time) error {
	if e.sums == nil {
		e.reset()
	}
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
	return e.compare(l, day, end, all, truth)
}

// lead is the time before a day whose values are read.
const lead = 24 * time.Hour

// compare evaluates all origins of a day that has been read until end.
func (e *Evaluation) compare(l *model.Learned, day, end time.Time, all, truth []archive.Values) error {
	step := l.Interval
	tomorrow := model.Day(day, 1)
	all, actual := match(all, truth)
	e.addNoise(truth, int(lead/step), int(min(tomorrow.Sub(day), end.Sub(day))/step))
	e.trackers[0], e.trackers[1] = e.trackers[1], model.Tracker{}
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
			codes[i], recent[i] = v.Code, v.Recent(known-model.Hour)
			recent[i].Refused = e.hidden(v.Code, origin) || e.Refused != nil && e.Refused(v.Code, origin)
			for n := seen; n < known; n++ {
				if v.Weights[n] > 0 {
					last[i] = v.Values[n]
				}
			}
		}
		seen = known
		s := model.NewStep(l, origin, codes, recent)
		e.trackers[1].Add(s)
		e.trackers[0].Add(s)
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
					e.add(l, h, reading{v.Code, origin.Add(e.Horizons[h] - step), now.Values[target], vehicles(now.Weights[target])},
						out[n], detail[n], last[i], &r)
				}
			}
		}
	}
	return nil
}

// match returns the true values by code, and all with those detectors that have only true values.
func match(all, truth []archive.Values) ([]archive.Values, map[string]*archive.Values) {
	actual, sends := make(map[string]*archive.Values, len(truth)), make(map[string]bool, len(all))
	for _, v := range all {
		sends[v.Code] = true
	}
	for i, v := range truth {
		actual[v.Code] = &truth[i]
		if none := make([]float64, len(v.Values)); !sends[v.Code] {
			all = append(all, archive.Values{Code: v.Code, Values: none, Weights: none, Reliable: none, Street: v.Street})
		}
	}
	return all, actual
}

// reading is a reading that forecasts are compared with.
type reading struct {
	code     string
	start    time.Time // of the interval
	value    float64
	vehicles float64
}

func (e *Evaluation) add(l *model.Learned, h int, v reading, f model.Forecast, d model.Detail, last float64, r *model.Recent) {
	if e.Bounds != nil {
		low, high := e.Bounds(l, f)
		f.Low, f.High = low/l.KMH(1), high/l.KMH(1)
	}
	e.sums[h].add(v, f, d, last, r)
	hours := block(v.start.In(l.Day.Location()).Hour())
	groups := []group{{byDetector, v.code}, {byBasis, string(f.Basis)}, {byHours, hours}}
	if f.Basis == model.Own { // the readings of the detector are used
		groups = append(groups, group{byState, string(r.State(l.Detectors[v.code]))})
	}
	for _, g := range groups {
		s := e.groups[h][g]
		if s == nil {
			s = &sums{}
			e.groups[h][g] = s
		}
		s.add(v, f, d, last, r)
	}
}

func (s *sums) add(v reading, f model.Forecast, d model.Detail, last float64, r *model.Recent) {
	residual := d.Features[0] // shrunk by the model
	if w := r.Weights[model.Hour-1]; w > 0 {
		residual *= (w + model.Shrink) / w
	}
	if math.IsNaN(last) { // no usable value yet
		last = d.Profile
	}
	s.n++
	for i, value := range [4]float64{f.Value, last, d.Profile, d.Profile + residual} {
		e := value - v.value
		s.absolute[i] += math.Abs(e)
		s.square[i] += e * e
		if v.value > 0 {
			s.relative[i] += math.Abs(e) / v.value
		}
	}
	if v.value > 0 {
		s.positive++
	}
	if !math.IsNaN(f.Low) && !math.IsNaN(f.High) {
		s.bounded++
	}
	if v.value >= f.Low && v.value <= f.High {
		s.covered++
	}
	s.vehicles += v.vehicles
	s.deviation += 1 / math.Sqrt(v.vehicles)
}

func (e *Evaluation) results() (list []Result, err error) {
	for i, s := range e.sums {
		if s.n == 0 {
			return nil, fmt.Errorf("no readings to compare at the horizon %s from %s to %s", e.Horizons[i],
				e.From.Format(time.RFC3339), e.To.Format(time.RFC3339))
		}
		r := Result{Minutes: int(e.Horizons[i] / time.Minute), Readings: int(s.n), Coverage: 100 * s.covered / max(s.bounded, 1)}
		for m := range Methods {
			r.MAE[m], r.RMSE[m], r.MAPE[m] = s.absolute[m]/s.n, math.Sqrt(s.square[m]/s.n), 100*s.relative[m]/max(s.positive, 1)
		}
		e.group(&r, e.groups[i])
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
