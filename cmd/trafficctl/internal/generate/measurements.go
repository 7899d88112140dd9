package generate

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Samples returns the valid measurements, ordered by interval and detector, and whether each is the last
// of its interval. The fields are valid until the next iteration.
func (n *Network) Samples() iter.Seq2[*measurement.Fields, bool] {
	return func(yield func(*measurement.Fields, bool) bool) {
		p := pending{yield: yield}
		for i := range n.cfg.Intervals() {
			from := n.cfg.From.Add(time.Duration(i) * n.cfg.Interval)
			n.interval(from, &p)
			if !p.flush(true) {
				return
			}
		}
	}
}

// interval generates the measurements of one interval.
func (n *Network) interval(from time.Time, p *pending) {
	p.times(from, from.Add(n.cfg.Interval))
	for i := range n.detectors {
		d := &n.detectors[i]
		s, ok := d.next(from, n.cfg.GapRate)
		if !ok {
			continue
		}
		for _, kind := range d.types {
			if !p.flush(false) {
				return
			}
			p.set(d, kind, s)
		}
	}
}

// pending delays each measurement until it is known whether it is the last of its interval.
type pending struct {
	yield   func(*measurement.Fields, bool) bool
	fields  measurement.Fields
	filled  bool
	stopped bool
}

func (p *pending) flush(last bool) bool {
	if p.filled && !p.stopped {
		p.stopped = !p.yield(&p.fields, last)
	}
	p.filled = false
	return !p.stopped
}

func (p *pending) times(from, to time.Time) {
	p.fields.From = measurement.AppendTime(p.fields.From[:0], from)
	p.fields.To = measurement.AppendTime(p.fields.To[:0], to)
}

func (p *pending) set(d *detector, kind string, s state) {
	f := &p.fields
	f.Detector, f.Type = d.code, kind
	f.Quality = f.Quality[:0]
	if d.hasQuality {
		f.Quality = strconv.AppendFloat(f.Quality, s.quality, 'f', 2, 64)
	}
	switch kind {
	case "speed":
		f.Value = strconv.AppendFloat(f.Value[:0], s.speed, 'f', 1, 64)
	case "flow":
		f.Value = strconv.AppendFloat(f.Value[:0], s.flow, 'f', 0, 64)
	default:
		f.Value = strconv.AppendFloat(f.Value[:0], s.occupancy, 'f', 1, 64)
	}
	p.filled = true
}

// Items returns the same measurements as JSON, some of them invalid. Each interval ends its batch.
func (n *Network) Items() iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		chance := rand.New(rand.NewPCG(n.cfg.Seed, faultStream))
		var item measurement.Item
		for f, last := range n.Samples() {
			if chance.Float64() < n.cfg.ErrorRate {
				item.JSON = Faults[chance.IntN(len(Faults))].Append(item.JSON[:0], *f)
			} else {
				item.JSON = f.AppendJSON(item.JSON[:0])
			}
			item.Order = measurement.OrderOf(f.Detector)
			item.Place.Row++
			item.EndsBatch = last
			if !yield(item, nil) {
				return
			}
		}
	}
}

// WriteNDJSON writes one item per line and returns their number.
func (n *Network) WriteNDJSON(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	for item, err := range n.Items() {
		if err != nil {
			return items, err
		}
		if _, err := out.Write(item.JSON); err != nil {
			return items, err
		}
		if err := out.WriteByte('\n'); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

// WriteCSV writes the valid measurements as CSV, with the member names as header, and returns their number.
func (n *Network) WriteCSV(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	out.WriteString(strings.Join([]string{
		measurement.DetectorCode, measurement.MeasureTypeCode, measurement.TimestampFrom,
		measurement.TimestampTo, measurement.Value, measurement.Quality,
	}, ",") + "\n")
	var line []byte
	for f := range n.Samples() {
		line = fmt.Appendf(line[:0], "%s,%s,%s,%s,%s,%s\n", f.Detector, f.Type, f.From, f.To, f.Value, f.Quality) // nothing needs quotes
		if _, err := out.Write(line); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

// Fault is one kind of invalid item and the daemon's error code for it (contract 1.2).
type Fault struct {
	Name string
	Code string

	// Append appends the measurement with the fault. It may change f but not the bytes that f refers to.
	Append func(dst []byte, f measurement.Fields) []byte
}

// Faults are all kinds, in the order of the contract's rules.
var Faults = allFaults()

func allFaults() []Fault {
	faults := []Fault{
		{"not an object", "INVALID_TYPE", replace(`"just a text"`)},
		{"duplicate member", "DUPLICATE_FIELD", member(`"value":0`)},
		{"linkId", "RESERVED_FIELD", member(`"linkId":"L1"`)},
	}
	for _, name := range required {
		faults = append(faults,
			Fault{name + " missing", "MISSING_FIELD", without(name)},
			Fault{name + " null", "MISSING_FIELD", with(name, `null`)})
	}
	for _, name := range required {
		faults = append(faults, Fault{name + " of another type", "INVALID_TYPE", with(name, `{}`)})
	}
	return append(faults,
		Fault{"quality of another type", "INVALID_TYPE", with(measurement.Quality, `"high"`)},
		Fault{"unknown detector", "UNKNOWN_DETECTOR", with(measurement.DetectorCode, `"no-such-detector"`)},
		Fault{"detector code too long", "UNKNOWN_DETECTOR", with(measurement.DetectorCode, `"`+strings.Repeat("x", 257)+`"`)},
		Fault{"unknown measure type", "UNKNOWN_MEASURE_TYPE", with(measurement.MeasureTypeCode, `"no such type"`)},
		Fault{"invalid date", "INVALID_TIMESTAMP", with(measurement.TimestampFrom, `"2026-02-30T08:00:00Z"`)},
		Fault{"no UTC offset", "INVALID_TIMESTAMP", with(measurement.TimestampFrom, `"2026-11-01T08:00:00"`)},
		Fault{"not UTC", "INVALID_TIMESTAMP", with(measurement.TimestampTo, `"2026-11-01T08:00:00+02:00"`)},
		Fault{"year out of range", "INVALID_TIMESTAMP", with(measurement.TimestampFrom, `"1969-12-31T23:55:00Z"`)},
		Fault{"ends before it starts", "INVALID_INTERVAL", with(measurement.TimestampTo, `"1970-01-01T00:00:00Z"`)},
		Fault{"in the future", "TIMESTAMP_IN_FUTURE", with(measurement.TimestampTo, `"2261-01-01T00:00:00Z"`)},
		Fault{"value not finite", "INVALID_VALUE", with(measurement.Value, `1e999`)},
		Fault{"quality not finite", "INVALID_QUALITY", with(measurement.Quality, `-1e999`)},
	)
}

var required = []string{
	measurement.DetectorCode, measurement.MeasureTypeCode,
	measurement.TimestampFrom, measurement.TimestampTo, measurement.Value,
}

type faulty = func([]byte, measurement.Fields) []byte

// replace returns a fault that replaces the item by another JSON value.
func replace(json string) faulty {
	return func(dst []byte, _ measurement.Fields) []byte { return append(dst, json...) }
}

// member returns a fault that adds a member.
func member(json string) faulty {
	return func(dst []byte, f measurement.Fields) []byte {
		dst = f.AppendJSON(dst)
		dst = append(dst[:len(dst)-1], ',')
		return append(append(dst, json...), '}')
	}
}

// with returns a fault that replaces the value of a member; without omits the member.
func with(name, json string) faulty {
	return func(dst []byte, f measurement.Fields) []byte {
		dst = append(dst, '{')
		for _, m := range members(&f) {
			if m.name == name {
				m.json = json
			}
			if m.json != "" {
				dst = fmt.Appendf(dst, `%q:%s,`, m.name, m.json)
			}
		}
		dst[len(dst)-1] = '}'
		return dst
	}
}

func without(name string) faulty { return with(name, "") }

type jsonMember struct{ name, json string }

func members(f *measurement.Fields) []jsonMember {
	quote := func(s string) string { return string(measurement.AppendString(nil, s)) }
	return []jsonMember{
		{measurement.DetectorCode, quote(f.Detector)},
		{measurement.MeasureTypeCode, quote(f.Type)},
		{measurement.TimestampFrom, quote(string(f.From))},
		{measurement.TimestampTo, quote(string(f.To))},
		{measurement.Value, string(f.Value)},
		{measurement.Quality, string(f.Quality)},
	}
}
