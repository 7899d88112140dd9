package layers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unique"

	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// street is the forecast for one street in one direction. It is immutable, except for the last
// three fields, which belong to the builder.
type street struct {
	id       key
	located  bool     // the code contains a location
	place    place    // the first location reference point
	line     []place  // all of them
	position uint64   // sort position in the layer
	code     string   // openLRcode
	periods  []period // in order; none if the street was removed
	length   float64  // in metres; 0 if unknown
	freeFlow float64  // speed of free traffic; 0 if unknown
	until    instant  // end of the last period, or when the street was removed

	next instant // the first reference time at which a view may show something else
	// By plain view: the numbers of the last build that changed what it shows of the street, and of
	// the build since which it shows something. Requests for an earlier snapshot may find later
	// numbers, and then send the street, or its code, needlessly.
	changed, shown [1 + maxHorizons]atomic.Uint32
}

// key identifies a street (contract 2).
type key struct{ street, fromnode int32 }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.street, o.street), cmp.Compare(k.fromnode, o.fromnode))
}

func byPosition(a, b *street) int {
	return cmp.Or(cmp.Compare(a.position, b.position), a.id.compare(b.id))
}

// period is a forecast for a span of time.
type period struct {
	span                  unique.Handle[span] // streets share their spans
	speed, flow           float64
	flowValid, speedValid bool

	// Optional members.
	closedKnown, closed bool
	low, high           float64 // NaN if unknown
	basis               unique.Handle[string]
}

// extended reports whether the street has a value of an optional member, which only views with all
// members show.
func (s *street) extended() bool {
	return s.length > 0 || s.freeFlow > 0 || slices.ContainsFunc(s.periods, func(p period) bool {
		return p.closedKnown || !math.IsNaN(p.low) || !math.IsNaN(p.high) || p.basis != noBasis
	})
}

var noBasis = unique.Make("")

// span is the time interval [from, to). start and end are their textual forms.
type span struct {
	from, to   instant
	start, end string
}

// instant is a time in microseconds since the Unix epoch.
type instant int64

const never = instant(math.MaxInt64)

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// newStreet converts a message from a feed. It returns an error if a time is not normalised.
func newStreet(f *pb.StreetForecast) (*street, error) {
	s := &street{id: key{f.GetStreet(), f.GetFromnode()}, code: f.GetOpenLRcode(), length: f.GetLength(), freeFlow: f.GetFreeFlowSpeed()}
	if line, err := openlr.Decode(s.code); err == nil {
		s.located, s.place = true, placeOf(line.Points[0].Lon, line.Points[0].Lat)
		s.position = s.place.hilbert() >> 2
		s.line = make([]place, len(line.Points))
		for i, p := range line.Points {
			s.line[i] = placeOf(p.Lon, p.Lat)
		}
	} else {
		s.position = 1<<63 | (uint64(s.id.street)+1<<31)<<30 // after all located streets, in the order of street numbers
	}
	if n := len(f.GetForecast()); n > 0 {
		s.periods = make([]period, 0, n)
	}
	for _, p := range f.GetForecast() {
		start, startErr := contract.ParseForecastTime(p.GetStart())
		end, endErr := contract.ParseForecastTime(p.GetEnd())
		if err := cmp.Or(startErr, endErr); err != nil {
			return nil, fmt.Errorf("street %d from node %d: %w", s.id.street, s.id.fromnode, err)
		}
		s.until = max(s.until, instantOf(end))
		s.periods = append(s.periods, period{
			span:  unique.Make(span{instantOf(start), instantOf(end), p.GetStart(), p.GetEnd()}),
			speed: p.GetSpeed(), flow: p.GetFlow(), flowValid: p.GetFlowValid(), speedValid: p.SpeedValid == nil || *p.SpeedValid,
			closedKnown: p.Closed != nil, closed: p.GetClosed(), low: valueOr(p.SpeedLow, math.NaN()), high: valueOr(p.SpeedHigh, math.NaN()),
			basis: unique.Make(p.GetBasis()),
		})
	}
	slices.SortFunc(s.periods, func(p, o period) int {
		a, b := p.span.Value(), o.span.Value()
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	return s, nil
}

func valueOr(v *float64, other float64) float64 {
	if v == nil {
		return other
	}
	return *v
}

// removed returns what is kept of a street that was removed at the reference time.
func (s *street) removed(ref instant) *street {
	if len(s.periods) == 0 {
		return s
	}
	return &street{id: s.id, located: s.located, place: s.place, position: s.position, code: s.code, until: ref}
}

// withoutCode returns a street with the same periods and place, but no code.
func (s *street) withoutCode() *street {
	return &street{id: s.id, located: s.located, place: s.place, periods: s.periods, until: s.until, length: s.length, freeFlow: s.freeFlow}
}

// live reports whether the street has a period that ends after t.
func (s *street) live(t instant) bool { return len(s.periods) > 0 && s.until > t }

func (s *street) equal(o *street) bool {
	return s.code == o.code && s.length == o.length && s.freeFlow == o.freeFlow && slices.EqualFunc(s.periods, o.periods, period.equal)
}

func (p period) equal(o period) bool {
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	return p.span == o.span && same(p.speed, o.speed) && same(p.flow, o.flow) && p.flowValid == o.flowValid && p.speedValid == o.speedValid &&
		p.closedKnown == o.closedKnown && p.closed == o.closed && same(p.low, o.low) && same(p.high, o.high) && p.basis == o.basis
}

// appendContent appends everything that documents show about the street with the given periods,
// with or without the optional members.
func (s *street) appendContent(dst []byte, periods []int, all bool) []byte {
	for _, v := range [...]uint32{uint32(s.id.street), uint32(s.id.fromnode), uint32(len(s.code)), uint32(len(periods))} {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	dst = append(dst, s.code...)
	for _, i := range periods {
		p := &s.periods[i]
		span := p.span.Value()
		for _, v := range [...]uint64{uint64(span.from), uint64(span.to), math.Float64bits(p.speed), math.Float64bits(p.flow)} {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
		dst = strconv.AppendBool(strconv.AppendBool(dst, p.flowValid), p.speedValid)
		if all {
			for _, v := range [...]float64{p.low, p.high} {
				dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
			}
			dst = strconv.AppendBool(strconv.AppendBool(append(dst, p.basis.Value()...), p.closedKnown), p.closed)
		}
	}
	if all {
		for _, v := range [...]float64{s.length, s.freeFlow} {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
		}
	}
	return dst
}

// view determines what is shown of a street: the periods of the whole layer or of a horizon, with
// or without the optional members.
type view struct {
	whole bool    // true: all periods that end after at; false: the one that covers at
	all   bool    // with the optional members
	at    instant // in builder.views relative to the reference time
}

// kind returns the view without its time.
func (v view) kind() view { return view{whole: v.whole, all: v.all} }

func horizon(minutes int) view {
	return view{at: instant((time.Duration(minutes) * time.Minute).Microseconds())}
}

// from returns the view at a reference time.
func (v view) from(ref instant) view {
	v.at += ref
	return v
}

// pick returns the indexes of the periods of s that v shows, and the interval [from, until) of
// times at which it shows the same. If several periods cover v.at, a horizon shows the one that
// starts last, because it is the most specific. pick overwrites scratch.
func (v view) pick(scratch []int, s *street) (picked []int, from, until instant) {
	picked, from, until = scratch[:0], -never, never
	for i := range s.periods {
		span := s.periods[i].span.Value()
		begin := span.from
		if v.whole {
			begin = math.MinInt64
		}
		switch {
		case span.to <= v.at:
			from = max(from, span.to)
		case begin > v.at:
			until = min(until, begin)
		default:
			if from, until = max(from, begin), min(until, span.to); !v.whole {
				picked = picked[:0]
			}
			picked = append(picked, i)
		}
	}
	return picked, from, until
}
