package layers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unique"

	"github.com/cespare/xxhash/v2"

	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// street is the forecast for one street in one direction. It is immutable, with two exceptions: the
// builder sets firstBuild and shownSince before it publishes the street in a snapshot, and may set
// reach at any time.
type street struct {
	id         key
	located    bool   // the code contains a location
	place      place  // the first location reference point
	position   uint64 // sort position in the layer
	code       string // openLRcode
	label      uint64 // hash of id and code
	periods    []period
	until      instant // end of the last period; 0 without periods
	from       instant // start of the first period
	step       instant // length of the first period; 0 if periods overlap
	firstBuild uint64  // number of the first build with this forecast
	shownSince uint64  // number of the first build in which all documents showed the street
	reach      instant // end of the periods without a gap that start at the reference time of firstBuild
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
	hash                  uint64 // hash of everything that documents show about the period
}

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
	s := &street{id: key{f.GetStreet(), f.GetFromnode()}, code: f.GetOpenLRcode()}
	if line, err := openlr.Decode(s.code); err == nil {
		s.located, s.place = true, placeOf(line.Points[0].Lon, line.Points[0].Lat)
		s.position = s.place.hilbert() >> 2
	} else {
		s.position = 1<<63 | (uint64(s.id.street)+1<<31)<<30 // after all located streets, in the order of street numbers
	}
	id := uint64(uint32(s.id.street))<<32 | uint64(uint32(s.id.fromnode))
	s.label = xxhash.Sum64(append(binary.LittleEndian.AppendUint64(nil, id), s.code...))
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
		})
	}
	slices.SortFunc(s.periods, period.compare)
	for i := range s.periods {
		span := s.periods[i].span.Value()
		switch {
		case i == 0:
			s.from, s.step = span.from, max(0, span.to-span.from)
		case span.from < s.periods[i-1].span.Value().to || span.to < span.from:
			s.step = 0
		}
		s.periods[i].hash = s.periods[i].contentHash()
	}
	return s, nil
}

// compare orders periods by all their fields, so that the result does not depend on the feed's
// order.
func (p period) compare(o period) int {
	if p.span != o.span {
		a, b := p.span.Value(), o.span.Value()
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	}
	return cmp.Or(
		cmp.Compare(math.Float64bits(p.speed), math.Float64bits(o.speed)),
		cmp.Compare(math.Float64bits(p.flow), math.Float64bits(o.flow)),
		cmp.Compare(p.flags(), o.flags()))
}

func (p *period) flags() (n byte) {
	if p.flowValid {
		n = 2
	}
	if p.speedValid {
		n++
	}
	return n
}

func (s *street) equal(o *street) bool {
	return s.code == o.code && slices.EqualFunc(s.periods, o.periods, func(a, b period) bool { return a.compare(b) == 0 })
}

func (p *period) contentHash() uint64 {
	times := p.span.Value()
	var content [33]byte
	for i, v := range [...]uint64{uint64(times.from), uint64(times.to), math.Float64bits(p.speed), math.Float64bits(p.flow)} {
		binary.LittleEndian.PutUint64(content[8*i:], v)
	}
	content[32] = p.flags()
	return xxhash.Sum64(content[:])
}

// appendContent appends hashes of everything that documents show about the street with the given
// periods.
func (s *street) appendContent(dst []byte, periods []int) []byte {
	sum := uint64(0)
	for _, i := range periods {
		sum += s.periods[i].hash
	}
	for _, v := range [...]uint64{s.label, uint64(len(periods)), sum} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// reachFrom returns the end of the periods without a gap that start at from.
func (s *street) reachFrom(from instant) instant {
	for _, p := range s.periods {
		if span := p.span.Value(); span.from <= from {
			from = max(from, span.to)
		}
	}
	return from
}

func (s *street) ended(t instant) bool { return s.until <= t }

// scope is the whole layer or a horizon.
type scope struct {
	whole   bool
	horizon instant
}

func atHorizon(minutes int) scope {
	return scope{horizon: instant((time.Duration(minutes) * time.Minute).Microseconds())}
}

func (c scope) view(ref instant) view { return view{c.whole, ref + c.horizon} }

// view determines which periods of a street are shown.
type view struct {
	whole bool // true: all periods that end after at; false: the one that covers at
	at    instant
}

// pick appends the indexes of the periods of s that v shows, and returns the interval [from, until)
// in which the result does not change. If v.whole is false and several periods cover v.at, pick
// appends the one that starts last, because it is the most specific.
func (v view) pick(into []int, s *street) (picked []int, from, until instant) {
	from, until = -never, never
	covering := -1
	for i := s.skip(v.at); i < len(s.periods); i++ {
		span := s.periods[i].span.Value()
		if span.from > v.at { // so do all later periods, because they are sorted
			until = min(until, span.from)
			for ; v.whole && i < len(s.periods); i++ {
				into = append(into, i)
			}
			break
		}
		from = max(from, span.from)
		if span.to <= v.at {
			from = max(from, span.to)
			continue
		}
		if until = min(until, span.to); v.whole {
			into = append(into, i)
		} else {
			covering = i
		}
	}
	if covering >= 0 {
		into = append(into, covering)
	}
	return into, from, until
}

// skip returns the index of a period that ended before t, or 0. Views at t or later do not depend
// on any period before that one. If all periods are equally long, that period is the last one that
// has ended.
func (s *street) skip(t instant) int {
	if s.step == 0 {
		return 0
	}
	i := min(int((t-s.from)/s.step), len(s.periods)) - 1
	for i > 0 && s.periods[i].span.Value().to > t {
		i--
	}
	return max(0, i)
}
