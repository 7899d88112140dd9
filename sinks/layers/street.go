package layers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
	"unique"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// street is what is forecast for one street in one direction. It is immutable:
// another forecast is another street.
type street struct {
	id      key
	code    string   // openLRcode
	periods []period // by from, to, then the rest
}

// key identifies a street (contract 2).
type key struct{ street, fromnode int32 }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.street, o.street), cmp.Compare(k.fromnode, o.fromnode))
}

// period is a forecast period, [from, to).
type period struct {
	from, to              instant
	start, end            moment // from and to as text
	speed, flow           float64
	flowValid, speedValid bool
}

// moment is a time as text. Streets share their periods, so each text is kept once.
type moment = unique.Handle[string]

// instant counts microseconds since 1970.
type instant int64

const never = instant(math.MaxInt64)

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

// newStreet takes what it needs from a feed's message. The feed has checked
// it, so an error is the exception.
func newStreet(f *pb.StreetForecast) (*street, error) {
	s := &street{id: key{f.GetStreet(), f.GetFromnode()}, code: f.GetOpenLRcode()}
	if n := len(f.GetForecast()); n > 0 {
		s.periods = make([]period, 0, n)
	}
	for _, p := range f.GetForecast() {
		period := period{speed: p.GetSpeed(), flow: p.GetFlow(), flowValid: p.GetFlowValid(), speedValid: p.GetSpeedValid()}
		var err error
		if period.from, period.start, err = parseTime(p.GetStart()); err == nil {
			period.to, period.end, err = parseTime(p.GetEnd())
		}
		if err != nil {
			return nil, fmt.Errorf("cannot take the forecast of street %d from node %d: %w", s.id.street, s.id.fromnode, err)
		}
		s.periods = append(s.periods, period)
	}
	slices.SortFunc(s.periods, period.compare)
	return s, nil
}

// parseTime reads an ISO 8601 date-time, and writes it in UTC with Z.
func parseTime(text string) (instant, moment, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, moment{}, fmt.Errorf("a period needs start and end such as 2026-01-31T12:30:00Z: %w", err)
	}
	if t.Nanosecond() != 0 || text[len(text)-1] != 'Z' {
		text = t.UTC().Format(time.RFC3339Nano)
	}
	return instantOf(t), unique.Make(text), nil
}

// compare orders periods by all that they say, so that their order tells nothing
// about the feed's.
func (p period) compare(o period) int {
	return cmp.Or(
		cmp.Compare(p.from, o.from), cmp.Compare(p.to, o.to),
		cmp.Compare(p.start.Value(), o.start.Value()), cmp.Compare(p.end.Value(), o.end.Value()), // equal instants, finer than a microsecond
		cmp.Compare(math.Float64bits(p.speed), math.Float64bits(o.speed)),
		cmp.Compare(math.Float64bits(p.flow), math.Float64bits(o.flow)),
		compareBool(p.flowValid, o.flowValid), compareBool(p.speedValid, o.speedValid))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// same tells whether two forecasts of a street say the same.
func (s *street) same(o *street) bool {
	return s.code == o.code && slices.EqualFunc(s.periods, o.periods, func(a, b period) bool { return a.compare(b) == 0 })
}

// showing gives the streets that have not ended at the reference time. The others
// must leave no trace, not even in where buckets begin: another replica may never have
// heard of them.
func showing(streets []*street, ref instant) []*street {
	shown := make([]*street, 0, len(streets))
	for _, s := range streets {
		if !s.ended(ref) {
			shown = append(shown, s)
		}
	}
	return shown
}

// ended tells whether the last period was over at t.
func (s *street) ended(t instant) bool {
	return !slices.ContainsFunc(s.periods, func(p period) bool { return p.to > t })
}
