package layers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
	"unique"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// street is the forecast for one street in one direction. It is immutable.
type street struct {
	id      key
	code    string   // openLRcode
	periods []period // in the order of compare
}

// key identifies a street (contract 2).
type key struct{ street, fromnode int32 }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.street, o.street), cmp.Compare(k.fromnode, o.fromnode))
}

// period is a forecast period [from, to).
type period struct {
	from, to              instant
	start, end            moment // from and to as text
	speed, flow           float64
	flowValid, speedValid bool
}

// moment is a time as text. Streets share their periods, so each text is kept once.
type moment = unique.Handle[string]

// instant is a time in microseconds since 1970.
type instant int64

const never = instant(math.MaxInt64)

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// newStreet converts a feed's message, whose times are in normal form.
func newStreet(f *pb.StreetForecast) (*street, error) {
	s := &street{id: key{f.GetStreet(), f.GetFromnode()}, code: f.GetOpenLRcode()}
	if n := len(f.GetForecast()); n > 0 {
		s.periods = make([]period, 0, n)
	}
	for _, p := range f.GetForecast() {
		start, err := contract.ParseForecastTime(p.GetStart())
		if err != nil {
			return nil, fmt.Errorf("street %d from node %d: %w", s.id.street, s.id.fromnode, err)
		}
		end, err := contract.ParseForecastTime(p.GetEnd())
		if err != nil {
			return nil, fmt.Errorf("street %d from node %d: %w", s.id.street, s.id.fromnode, err)
		}
		s.periods = append(s.periods, period{
			from: instantOf(start), to: instantOf(end), start: unique.Make(p.GetStart()), end: unique.Make(p.GetEnd()),
			speed: p.GetSpeed(), flow: p.GetFlow(), flowValid: p.GetFlowValid(), speedValid: p.SpeedValid == nil || *p.SpeedValid,
		})
	}
	slices.SortFunc(s.periods, period.compare)
	return s, nil
}

// compare orders periods by all their fields, so that the feed's order is lost.
func (p period) compare(o period) int {
	flags := func(p period) (n int) {
		if p.flowValid {
			n = 2
		}
		if p.speedValid {
			n++
		}
		return n
	}
	return cmp.Or(
		cmp.Compare(p.from, o.from), cmp.Compare(p.to, o.to),
		cmp.Compare(math.Float64bits(p.speed), math.Float64bits(o.speed)),
		cmp.Compare(math.Float64bits(p.flow), math.Float64bits(o.flow)),
		cmp.Compare(flags(p), flags(o)))
}

// equal reports whether two forecasts of a street are the same.
func (s *street) equal(o *street) bool {
	return s.code == o.code && slices.EqualFunc(s.periods, o.periods, func(a, b period) bool { return a.compare(b) == 0 })
}

// coveredUntil returns the end of the last period; 0 if there is none.
func (s *street) coveredUntil() (last instant) {
	for i := range s.periods {
		last = max(last, s.periods[i].to)
	}
	return last
}

// ended reports whether the last period was over at t.
func (s *street) ended(t instant) bool { return s.coveredUntil() <= t }

// scope determines which periods of a street a document shows.
type scope struct {
	whole   bool    // all periods that have not ended
	horizon instant // else the one that covers the reference time + horizon
}

func atHorizon(minutes int) scope {
	return scope{horizon: instant((time.Duration(minutes) * time.Minute).Microseconds())}
}

// pick appends the periods of s to show at the reference time ref, and returns the reference time from
// which on the result may differ. If several periods cover a horizon, pick appends the one that starts
// last, because it is the most specific.
func (c scope) pick(into []*period, s *street, ref instant) (picked []*period, until instant) {
	until = never
	if c.whole {
		for i := range s.periods {
			if p := &s.periods[i]; p.to > ref {
				into = append(into, p)
				until = min(until, p.to)
			}
		}
		return into, until
	}
	at := ref + c.horizon
	var covering *period
	for i := range s.periods {
		p := &s.periods[i]
		if p.from <= at && at < p.to {
			covering = p
		}
		for _, edge := range [2]instant{p.from, p.to} {
			if edge > at {
				until = min(until, edge-c.horizon)
			}
		}
	}
	if covering != nil {
		into = append(into, covering)
	}
	return into, until
}
