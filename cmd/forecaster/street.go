package main

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/forecaster/internal/streets"
)

// snapshot is the input of the latest forecasts. It is immutable.
type snapshot struct {
	step    *model.Step
	streets []streets.Street
}

// streetDetail is the response for a street: its last hour and its forecast, in intervals.
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
	Low      *float64  `json:"low,omitempty"` // 8 of 10 values are between Low and High
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
	_ = json.NewEncoder(w).Encode(s.detail(f.cfg.Forecasts, &s.streets[i])) // fails only if the client has disconnected
}

// detail computes the last hour and the forecast of a street from the input of the published
// forecasts.
func (s *snapshot) detail(c config.Forecasts, t *streets.Street) streetDetail {
	d := streetDetail{Origin: s.step.Origin.UTC(), Interval: s.step.Interval.Seconds(), Basis: model.None}
	end := s.step.Origin.Truncate(c.Step).Add(time.Duration(c.Periods) * c.Step)
	n := int(end.Sub(s.step.Origin) / s.step.Interval)
	targets := make([]model.Target, n)
	for i := range targets {
		targets[i] = s.step.TargetOf(time.Duration(i+1) * s.step.Interval)
	}
	const kinds = 5 // the fields of streetPoint
	all := make([][kinds][]float64, model.Hour+n)
	for i := range all {
		for k := range kinds {
			all[i][k] = slices.Repeat([]float64{math.NaN()}, len(t.Detectors))
		}
	}
	out := make([]model.Forecast, n)
	for i, code := range t.Detectors {
		r := s.step.Recent(code, c.MaxAge)
		if r == nil {
			continue
		}
		s.step.Forecast(code, r, targets, out, nil)
		for n := range all {
			if n < model.Hour && r.Weights[n] > 0 {
				all[n][0][i] = r.Values[n]
			}
			all[n][1][i] = s.step.Profile(code, time.Duration(n-model.Hour)*s.step.Interval)
			if n >= model.Hour && out[n-model.Hour].Basis != model.None {
				f := out[n-model.Hour]
				d.Basis, all[n][2][i], all[n][3][i], all[n][4][i] = d.Basis.Add(f.Basis), f.Value, f.Low, f.High
			}
		}
	}
	for n := range all {
		p := streetPoint{Start: s.step.Origin.Add(time.Duration(n-model.Hour) * s.step.Interval).UTC()}
		for k, field := range [kinds]**float64{&p.Measured, &p.Profile, &p.Forecast, &p.Low, &p.High} {
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
