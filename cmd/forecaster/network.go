package main

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/streets"
)

// streetNetwork is the response of GET /streets: what the daemon's map shows of all streets beyond
// the layer, in columns but for Weekdays. Detectors, Name and Geometry are those of the detectors
// file.
type streetNetwork struct {
	List      string      `json:"list"` // changes with the streets or their order
	Street    []int32     `json:"street"`
	FromNode  []int32     `json:"fromnode"`
	Name      []string    `json:"name"`
	Detectors [][]string  `json:"detectors"`
	Geometry  [][]float64 `json:"geometry"` // longitudes and latitudes in turn; null if unknown
	Weekdays  []int       `json:"weekdays"` // that have typical speeds
}

// networkSpeeds is the response of GET /streets?minutes=… and GET /streets?weekday=…&hour=…: speeds
// of all streets in km/h, in the order of streetNetwork. Unknown ones are null.
type networkSpeeds struct {
	List     string     `json:"list"`     // of the network that has this order
	Problem  string     `json:"problem"`  // why speeds could not be read; empty: they were, or were not needed
	Measured []*float64 `json:"measured"` // in the latest interval that had ended at the time; only for times that have passed
	Usual    []*float64 `json:"usual"`    // the profile in the interval that contains the time
}

// The range of times for which speeds are served, in minutes from now: back to the earliest one on
// the daemon's map, and ahead for as long as profiles certainly cover.
const (
	minMinutes = -2 * 60
	maxMinutes = 12 * 60
)

// serveStreets handles GET /streets, for the names on the daemon's map, GET /streets?minutes=…, for
// the speeds at a time relative to now, and GET /streets?weekday=…&hour=…, for typical speeds.
func (f *forecaster) serveStreets(w http.ResponseWriter, r *http.Request) {
	s := f.latest.Load()
	if s == nil {
		http.Error(w, "no forecasts have been computed yet", http.StatusServiceUnavailable)
		return
	}
	var response any
	switch {
	case r.FormValue("minutes") != "":
		minutes, err := strconv.Atoi(r.FormValue("minutes"))
		if err != nil || minutes < minMinutes || minutes > maxMinutes {
			http.Error(w, "minutes must be a whole number from -120 to 720", http.StatusBadRequest)
			return
		}
		response = s.speeds(r.Context(), time.Now().Add(time.Duration(minutes)*time.Minute), minutes <= 0)
	case r.FormValue("weekday") != "":
		weekday, err := strconv.Atoi(r.FormValue("weekday"))
		hour, err2 := strconv.Atoi(r.FormValue("hour"))
		if err != nil || err2 != nil || weekday < 1 || weekday > 7 || hour < 0 || hour > 23 {
			http.Error(w, "weekday must be a number from 1 (Monday) to 7, and hour from 0 to 23", http.StatusBadRequest)
			return
		}
		response = s.typical(r.Context(), weekday, hour)
	default:
		response = s.network()
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_ = json.NewEncoder(w).Encode(response) // fails only if the client has disconnected
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_ = json.NewEncoder(z).Encode(response) // as above
	_ = z.Close()
}

// list identifies the order of the streets.
func (s *snapshot) list() string {
	h := xxhash.New()
	for i := range s.streets {
		_ = binary.Write(h, binary.LittleEndian, [2]int32{s.streets[i].Street, s.streets[i].FromNode})
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

func (s *snapshot) network() (n streetNetwork) {
	n.List, n.Weekdays = s.list(), append([]int{}, s.step.Learned.Weekdays...) // not null
	for i := range s.streets {
		t := &s.streets[i]
		n.Street, n.FromNode, n.Name = append(n.Street, t.Street), append(n.FromNode, t.FromNode), append(n.Name, t.Name)
		n.Detectors, n.Geometry = append(n.Detectors, t.Detectors), append(n.Geometry, t.Geometry)
	}
	return n
}

// speeds returns the speeds of all streets at a time.
func (s *snapshot) speeds(ctx context.Context, at time.Time, passed bool) (n networkSpeeds) {
	n.List, n.Measured = s.list(), make([]*float64, len(s.streets))
	n.Usual = make([]*float64, len(s.streets))
	after := at.Sub(s.step.Origin)
	slot := time.Duration(math.Floor(float64(after)/float64(s.step.Interval))) * s.step.Interval
	step, place := s.step, model.Hour-1+min(0, int(slot/s.step.Interval))
	if passed && place < 0 && place+model.Hour >= 0 {
		var err error
		if step, err = s.hourBefore(ctx); err != nil {
			n.Problem = "cannot read the measurements of more than an hour ago: " + err.Error()
		} else {
			place += model.Hour
		}
	}
	for i := range s.streets {
		t := &s.streets[i]
		n.Usual[i] = s.combine(t, func(code string) float64 { return s.step.Profile(code, slot) })
		if passed && place >= 0 {
			n.Measured[i] = s.combine(t, func(code string) float64 { return measuredAt(step, code, place) })
		}
	}
	return n
}

// typical returns the usual speeds of all streets at an hour of a weekday.
func (s *snapshot) typical(ctx context.Context, weekday, hour int) (n networkSpeeds) {
	n.List, n.Measured = s.list(), make([]*float64, len(s.streets))
	n.Usual = make([]*float64, len(s.streets))
	values, err := s.source.Typical(ctx, weekday, hour)
	switch {
	case err != nil:
		n.Problem = "cannot read typical speeds: " + err.Error()
	case len(values) == 0:
		n.Problem = "no such weekday has been learned yet"
	}
	for i := range s.streets {
		n.Usual[i] = s.combine(&s.streets[i], func(code string) float64 {
			if v, ok := values[code]; ok {
				return v
			}
			return math.NaN()
		})
	}
	return n
}

// measuredAt returns the usable reading of a detector at a place of the hour before a step, or NaN.
func measuredAt(s *model.Step, code string, place int) float64 {
	if r := s.Recent(code, 2*model.Hour*s.Interval); r != nil && r.Weights[place] > 0 {
		return r.Values[place]
	}
	return math.NaN()
}

// combine returns the speed of a street in km/h from the values of its detectors, or nil.
func (s *snapshot) combine(t *streets.Street, value func(code string) float64) *float64 {
	values := slices.Clone(t.Lengths)
	for i, code := range t.Detectors {
		values[i] = value(code)
	}
	v := s.step.KMH(t.Speed(values))
	if math.IsNaN(v) {
		return nil
	}
	return new(math.Round(v*10) / 10)
}
