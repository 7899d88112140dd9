package main

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/streets"
)

// snapshot is the input of the latest forecasts.
type snapshot struct {
	step    *model.Step
	streets []streets.Street
	source  *archive.Source

	before atomic.Pointer[model.Step] // an hour before step; nil until it is needed
}

// hourBefore returns the step an hour before the snapshot's. It reads the archive when it is first
// needed; requests that need it meanwhile read too, so that none waits longer than its client.
func (s *snapshot) hourBefore(ctx context.Context) (*model.Step, error) {
	if before := s.before.Load(); before != nil {
		return before, nil
	}
	origin := s.step.Origin.Add(-model.Hour * s.step.Interval)
	codes, recent, err := s.source.Recent(ctx, origin)
	if err != nil {
		return nil, err
	}
	before := model.NewStep(s.step.Learned, origin, codes, recent)
	s.before.Store(before)
	return before, nil
}

// streetDetail is the response for a street: its last two hours and its forecast, in intervals.
type streetDetail struct {
	Origin   time.Time     `json:"origin"`   // the end of the last measured interval
	Interval float64       `json:"interval"` // s
	Basis    model.Basis   `json:"basis"`    // the worst basis of the detectors' forecasts
	Points   []streetPoint `json:"points"`
}

// streetPoint holds the speeds of an interval, in km/h. Those of several detectors are combined as
// in forecasts (package streets). Unknown values are absent.
type streetPoint struct {
	Start    time.Time `json:"start"`
	Measured *float64  `json:"measured,omitempty"` // only usable readings, which excludes repetitions of an earlier one
	Profile  *float64  `json:"profile,omitempty"`
	Forecast *float64  `json:"forecast,omitempty"`
	Earlier  *float64  `json:"earlier,omitempty"` // what the forecast was an hour before the origin
	Low      *float64  `json:"low,omitempty"`     // 8 of 10 values are between Low and High
	High     *float64  `json:"high,omitempty"`
}

// serveStreet handles GET /street?street=…&fromnode=…, for the chart of the daemon's web page.
func (f *forecaster) serveStreet(w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseInt(r.FormValue("street"), 10, 32)
	node, err2 := strconv.ParseInt(r.FormValue("fromnode"), 10, 32)
	if err != nil || err2 != nil {
		http.Error(w, "street and fromnode must be 32-bit integers", http.StatusBadRequest)
		return
	}
	s := f.latest.Load()
	if s == nil {
		http.Error(w, "no forecasts have been computed yet", http.StatusServiceUnavailable)
		return
	}
	i := slices.IndexFunc(s.streets, func(t streets.Street) bool { return int64(t.Street) == number && int64(t.FromNode) == node })
	if i < 0 {
		http.Error(w, "no detector belongs to this street", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	before, err := s.hourBefore(r.Context())
	if err != nil { // the rest is useful without it
		f.log.Warn().Err(err).Msg("cannot read the hour before the last for the page")
	}
	_ = json.NewEncoder(w).Encode(s.detail(f.cfg.Forecasts, &s.streets[i], before)) // fails only if the client has disconnected
}

// detail computes the last two hours and the forecast of a street from the input of the published
// forecasts. before is the step an hour before, or nil.
func (s *snapshot) detail(c config.Forecasts, t *streets.Street, before *model.Step) streetDetail {
	d := streetDetail{Origin: s.step.Origin.UTC(), Interval: s.step.Interval.Seconds(), Basis: model.None}
	end := s.step.Origin.Truncate(c.Step).Add(time.Duration(c.Periods) * c.Step)
	n := int(end.Sub(s.step.Origin) / s.step.Interval)
	targets := make([]model.Target, n)
	for i := range targets {
		targets[i] = s.step.TargetOf(time.Duration(i+1) * s.step.Interval)
	}
	const kinds = 6 // the fields of streetPoint
	past := model.Hour
	if before != nil {
		past *= 2
	}
	all := make([][kinds][]float64, past+n)
	for i := range all {
		for k := range kinds {
			all[i][k] = slices.Repeat([]float64{math.NaN()}, len(t.Detectors))
		}
	}
	for i, code := range t.Detectors {
		for n := range all {
			all[n][1][i] = s.step.Profile(code, time.Duration(n-past)*s.step.Interval)
			switch {
			case n >= past:
			case n >= past-model.Hour:
				all[n][0][i] = measuredAt(s.step, code, n-past+model.Hour)
			default:
				all[n][0][i] = measuredAt(before, code, n)
			}
		}
		out := make([]model.Forecast, len(targets))
		if r := s.step.Recent(code, c.MaxAge); r != nil {
			s.step.Forecast(code, r, targets, out, nil)
			for n, f := range out {
				if f.Basis != model.None {
					d.Basis, all[past+n][2][i], all[past+n][3][i], all[past+n][4][i] = d.Basis.Add(f.Basis), f.Value, f.Low, f.High
				}
			}
		}
		for n, f := range nextHour(before, code, c.MaxAge) {
			if f.Basis != model.None {
				all[past-model.Hour+n][5][i] = f.Value
			}
		}
	}
	for n := range all {
		p := streetPoint{Start: s.step.Origin.Add(time.Duration(n-past) * s.step.Interval).UTC()}
		for k, field := range [kinds]**float64{&p.Measured, &p.Profile, &p.Forecast, &p.Low, &p.High, &p.Earlier} {
			if v := s.step.KMH(t.Speed(all[n][k])); !math.IsNaN(v) {
				*field = new(math.Round(v*10) / 10)
			}
		}
		if d.Basis != model.Own { // a detector has no bounds
			p.Low, p.High = nil, nil
		}
		d.Points = append(d.Points, p)
	}
	return d
}

// nextHour returns the forecasts of a detector for the hour after a step, which may be nil.
func nextHour(s *model.Step, code string, maxAge time.Duration) []model.Forecast {
	if s == nil {
		return nil
	}
	r := s.Recent(code, maxAge)
	if r == nil {
		return nil
	}
	targets, out := make([]model.Target, model.Hour), make([]model.Forecast, model.Hour)
	for i := range targets {
		targets[i] = s.TargetOf(time.Duration(i+1) * s.Interval)
	}
	s.Forecast(code, r, targets, out, nil)
	return out
}
