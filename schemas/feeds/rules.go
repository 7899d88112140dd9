package feeds

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"
)

// value is a published value on its way to a row. Formats set what the document says.
type value struct {
	Row
	reason    Reason // of a fault or of skipping, as published
	lane      string // parts of the code
	class     string
	statistic string
	classed   bool    // the class is that of the value, not of the table
	indexed   bool    // the index is part of the code, because lane and class are unknown or not unique
	unknown   bool    // lane and class are unknown
	inputs    int     // number of vehicles from which the value was computed; -1 if unknown
	read      bool    // there is a value
	number    float64 // as published, before it was converted
	stamp     stamp   // time of the value; if it is not stated, that of the site
	period    time.Duration
}

// add appends a value of the current site and returns it. It is valid until the next call.
func (p *parser) add(m Measure) *value {
	if len(p.values) == MaxValues {
		p.stop(errManyValues)
		p.values = p.values[:MaxValues-1]
	}
	p.values = append(p.values, value{Row: Row{Measure: m, Quality: math.NaN()}, inputs: -1})
	return &p.values[len(p.values)-1]
}

// read appends a value with its number.
func (p *parser) read(m Measure, text []byte, decimal byte, factor float64) *value {
	v := p.add(m)
	v.set(text, decimal, factor)
	return v
}

var errManyValues = errors.New("a site has more than " + strconv.Itoa(MaxValues) + " values or characteristics")

// set reads the number of a value and multiplies it. Anything else than a number is a fault.
func (v *value) set(text []byte, decimal byte, factor float64) {
	if len(text) == 0 {
		return
	}
	n, ok := number(text, decimal)
	if !ok && v.reason == "" {
		v.reason = NotANumber
	}
	v.number, v.Value, v.read = n, n*factor, true
}

// fail marks all values of the current site as faults.
func (p *parser) fail(reason Reason) {
	for i := range p.values {
		p.values[i].reason = reason
	}
}

// finish applies the rules to the values of a site, passes the rows on and forgets the values.
// Values without a time of their own have that of at.
func (p *parser) finish(site string, at stamp) {
	if len(p.values) == 0 || p.err != nil {
		return
	}
	p.Sites++
	ordered := p.complete(site, at)
	for i := range p.values {
		v := &p.values[i]
		v.Outcome, v.Reason = p.judge(v)
		if !ordered && v.Outcome != Skipped {
			p.distinguish(v)
		}
		p.Values++
		p.Counts[v.Measure][v.Outcome]++
		p.rows = append(p.rows, v.Row)
	}
	if p.sink.Rows != nil {
		p.stop(p.sink.Rows(p.rows))
	}
	clear(p.twins)
	p.values, p.rows = p.values[:0], p.rows[:0]
}

// complete sets the codes and intervals of the values. It reports whether each index occurs once,
// so that the codes are different.
func (p *parser) complete(site string, at stamp) (ordered bool) {
	from, to, ok := p.interval(at, p.Period)
	ordered = true
	for i := range p.values {
		v := &p.values[i]
		v.Site = site
		v.From, v.To = from, to
		known := ok
		if v.stamp.stated {
			v.From, v.To, known = p.interval(v.stamp, cmp.Or(v.period, p.Period))
		} else if v.period != 0 && v.period != p.Period {
			v.From, v.To, known = p.interval(at, v.period)
		}
		if !known {
			v.From, v.To = time.Time{}, time.Time{}
		}
		v.Code = p.code(v.key(0))
		ordered = ordered && (i == 0 || v.Index > p.values[i-1].Index)
	}
	return ordered
}

func (v *value) key(twin int) codeKey {
	k := codeKey{v.Measure, v.lane, v.class, v.statistic, 0, twin}
	if v.indexed {
		k.index = v.Index
	}
	return k
}

// judge returns what becomes of a value. The first rule that applies decides.
func (p *parser) judge(v *value) (Outcome, Reason) {
	switch {
	case v.Measure == Unknown && v.reason == "":
		return Skipped, Kind
	case v.reason == Forecast || v.reason == Kind || v.reason == Repeated:
		return Skipped, v.reason
	case v.reason != "":
		return Fault, v.reason
	case v.Site == "":
		return Fault, NoSite
	case !v.read:
		return Fault, NoValue
	case v.Measure == Speed && v.inputs == 0:
		return NoVehicle, NoInputs
	case v.Measure == Speed && v.number == -1 && p.MinusOne:
		return NoVehicle, MinusOne
	case v.Measure == Speed && v.inputs < 0 && p.noFlow(v):
		return NoVehicle, NoFlow
	case v.number < 0 || slices.Contains(p.Sentinels[v.Measure], v.number):
		return Fault, Sentinel
	case v.To.IsZero():
		return Fault, NoTime
	}
	return Measured, ""
}

// noFlow reports whether no vehicle has passed where and when the speed was measured.
func (p *parser) noFlow(speed *value) bool {
	for i := range p.values {
		f := &p.values[i]
		if f.Measure == Flow && f.Value == 0 && f.read && f.reason == "" && f.statistic == "" && f.samePlace(speed) &&
			f.From.Equal(speed.From) && f.To.Equal(speed.To) {
			return true
		}
	}
	return false
}

// samePlace reports whether two values of a site are of the same lane and class. If they are
// unknown, the index says so.
func (v *value) samePlace(w *value) bool {
	return v.lane == w.lane && v.class == w.class && v.unknown == w.unknown && (!v.unknown || v.Index == w.Index)
}

type twinKey struct {
	code     string
	from, to int64
}

// distinguish gives values with the same code and interval different codes.
func (p *parser) distinguish(v *value) {
	if p.twins == nil {
		p.twins = map[twinKey]int{}
	}
	k := twinKey{v.Code, v.From.UnixNano(), v.To.UnixNano()}
	n := p.twins[k]
	p.twins[k] = n + 1
	if n > 0 {
		v.Code = p.code(v.key(n))
	}
}

// number reads a decimal number, such as -1, 83.5 or, with a decimal comma, 83,5.
func number(text []byte, decimal byte) (float64, bool) {
	negative := len(text) > 0 && text[0] == '-'
	digits := text
	if negative {
		digits = digits[1:]
	}
	n, scale, fraction := int64(0), 1.0, false
	for _, b := range digits {
		switch {
		case b >= '0' && b <= '9':
			n = n*10 + int64(b-'0')
			if fraction {
				scale *= 10
			}
		case b == decimal && !fraction:
			fraction = true
		default:
			return slowNumber(text, decimal)
		}
	}
	if len(digits) == 0 || len(digits) > 15 || fraction && len(digits) == 1 {
		return slowNumber(text, decimal)
	}
	v := float64(n) / scale // exact: both are below 2⁵³, and scale is a power of 10 below 10²²
	if negative {
		v = -v
	}
	return v, true
}

// slowNumber reads numbers with an exponent or many digits. It rejects what strconv accepts
// besides: infinities, hexadecimal digits and underscores.
func slowNumber(text []byte, decimal byte) (float64, bool) {
	s := []byte(nil)
	for _, b := range text {
		switch {
		case b == decimal:
			b = '.'
		case b == '.' || b == ',':
			return 0, false
		}
		if (b < '0' || b > '9') && b != '.' && b != '-' && b != '+' && b != 'e' && b != 'E' {
			return 0, false
		}
		s = append(s, b)
	}
	v, err := strconv.ParseFloat(string(s), 64)
	return v, err == nil && len(s) <= 64
}
