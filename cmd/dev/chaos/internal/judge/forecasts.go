package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Settings holds the forecaster's settings.
type Settings struct {
	Streets   int // numbered from 1, with fromnode 1
	Periods   int
	Step      time.Duration // length of a period
	Every     time.Duration // interval between publications
	Tolerance float64       // all speeds are multiples of Tolerance
}

// slack is the time allowed for a publication and the daemon's next poll on a busy machine.
const slack = 30 * time.Second

// Layer maps street:fromnode to the periods of the street.
type Layer map[string][]Period

// Period is a period of a forecast.
type Period struct {
	Start, End time.Time
	Speed      float64
	Valid      bool
}

func (l Layer) put(f *pb.StreetForecast) (err error) {
	defer must.Return(&err)
	var periods []Period
	for _, p := range f.Forecast {
		start, end := must.Get(time.Parse(time.RFC3339, p.Start)), must.Get(time.Parse(time.RFC3339, p.End))
		periods = append(periods, Period{start.UTC(), end.UTC(), p.Speed, p.GetSpeedValid()})
	}
	l[fmt.Sprintf("%d:%d", f.Street, f.Fromnode)] = periods
	return nil
}

// ParseLayer decodes the layer in a response from the daemon or in a forecast file.
func ParseLayer(body []byte) (l Layer, err error) {
	defer must.Return(&err, "cannot decode the layer")
	var r pb.StreetForecastResponse
	must.Do(proto.Unmarshal(body, &r))
	l = Layer{}
	for _, f := range r.StreetForecast {
		must.Do(l.put(f))
	}
	return l, nil
}

// Publications returns the layer after each transaction in a topic, given the committed records in
// offset order. It relies on each transaction having a different producer ID or epoch.
func Publications(records []launch.Record) (all []Layer, err error) {
	type epoch struct {
		producer int64
		epoch    int16
	}
	transactions := map[epoch][]launch.Record{}
	for _, r := range records {
		e := epoch{r.ProducerID, r.ProducerEpoch}
		transactions[e] = append(transactions[e], r)
	}
	order := slices.SortedFunc(maps.Keys(transactions), func(a, b epoch) int {
		return cmp.Or(cmp.Compare(a.producer, b.producer), cmp.Compare(a.epoch, b.epoch))
	})
	latest := Layer{}
	for _, e := range order {
		latest = maps.Clone(latest)
		for _, r := range transactions[e] {
			if r.Value == nil {
				delete(latest, string(r.Key))
				continue
			}
			var f pb.StreetForecast
			err := proto.Unmarshal(r.Value, &f)
			if err == nil {
				err = latest.put(&f)
			}
			if err != nil {
				return nil, fmt.Errorf("cannot decode record %s: %w", r.Key, err)
			}
		}
		all = append(all, latest)
	}
	return all, nil
}

// Check returns what is wrong with a layer, or an empty string. The last periods of all streets
// must end at the same time, because they are published together. A street may have fewer than
// r.Periods, because responses omit the periods that have ended.
func (r Settings) Check(l Layer) string {
	end := l.End()
	for key, periods := range l {
		if n, err := strconv.Atoi(key[:max(0, len(key)-2)]); err != nil || key[len(key)-2:] != ":1" || n < 1 || n > r.Streets {
			return fmt.Sprintf("street %s is not in the registry", key)
		}
		if n := len(periods); n == 0 || n > r.Periods {
			return fmt.Sprintf("street %s has %d periods", key, n)
		}
		for i, p := range periods {
			want := end.Add(-time.Duration(len(periods)-i) * r.Step)
			if !p.Start.Equal(want) || p.End.Sub(p.Start) != r.Step || !want.Equal(want.Truncate(r.Step)) {
				return fmt.Sprintf("street %s has a period from %v to %v, want from %v as in other streets", key, p.Start, p.End, want)
			}
			if steps := p.Speed / r.Tolerance; !p.Valid || p.Speed <= 0 || steps != math.Trunc(steps) {
				return fmt.Sprintf("street %s has the speed %v, valid %v", key, p.Speed, p.Valid)
			}
		}
	}
	return ""
}

// End returns the end of the last period.
func (l Layer) End() (end time.Time) {
	for _, periods := range l {
		for _, p := range periods {
			if p.End.After(end) {
				end = p.End
			}
		}
	}
	return end
}

// Matches reports whether l equals published, possibly without the streets' first periods.
func (l Layer) Matches(published Layer) bool {
	if len(l) != len(published) {
		return false
	}
	for key, periods := range l {
		all := published[key]
		if len(periods) > len(all) || !slices.Equal(periods, all[len(all)-len(periods):]) {
			return false
		}
	}
	return true
}

// Response is a layer that the daemon returned to consecutive requests.
type Response struct {
	First, Last time.Time // when the first and the last of these requests began
	Layer       Layer
}

// Forecasts returns what is wrong with the layers that were published and served, both in
// chronological order. No street may disappear, because measurements keep arriving. Each response
// must match exactly one publication, and never an earlier one than the previous response did. A
// publication may be served until the next one is due, and for as long as the outages since then.
func Forecasts(r Settings, published []Layer, responses []Response, outages func(from, to time.Time) time.Duration) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var before Layer
	for i, l := range published {
		for key := range before {
			if _, ok := l[key]; !ok {
				note("publication %d: street %s is missing", i, key)
			}
		}
		before = l
		if bad := r.Check(l); bad != "" {
			note("publication %d: %s", i, bad)
		} else if slices.ContainsFunc(slices.Collect(maps.Values(l)), func(p []Period) bool { return len(p) != r.Periods }) {
			note("publication %d: not every street has %d periods", i, r.Periods)
		}
	}
	at, shown := 0, false
	for _, a := range responses {
		when := a.First.UTC().Format(time.RFC3339Nano)
		if bad := r.Check(a.Layer); bad != "" {
			note("response at %s: %s", when, bad)
			continue
		}
		if len(a.Layer) == 0 && !shown {
			continue // nothing is published yet
		}
		i := slices.IndexFunc(published[at:], a.Layer.Matches)
		if i < 0 {
			past := slices.IndexFunc(published, a.Layer.Matches)
			note("response at %s: it matches no publication from number %d on (first match: %d)", when, at, past)
			continue
		}
		at, shown = at+i, true
		// The first period contains the time of the forecast; when it has ended, a later
		// publication is due.
		due := a.Layer.End().Add(-time.Duration(r.Periods-1)*r.Step + r.Every)
		if late := a.Last.Sub(due) - outages(due, a.Last); late > slack {
			note("response at %s: the next publication was due %v earlier, not counting outages", when, late)
		}
	}
	return wrong
}
