package generate

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Items returns the measurements as JSON, ordered by interval and then by detector. ErrorRate
// determines how many of them are invalid. Each interval starts a new batch.
func (n *Network) Items() iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		faults := rand.New(rand.NewPCG(n.cfg.Seed^uint64(n.cfg.From.Unix()), faultStream))
		var f measurement.Fields
		var item measurement.Item
		for i := range n.cfg.Intervals() {
			from := n.cfg.From.Add(time.Duration(i) * n.cfg.Interval)
			f.From = measurement.AppendTime(f.From[:0], from)
			f.To = measurement.AppendTime(f.To[:0], from.Add(n.cfg.Interval))
			item.StartsBatch = true
			for j := range n.detectors {
				d := &n.detectors[j]
				s, ok := n.measure(d, from)
				if !ok {
					continue
				}
				f.Detector, f.Quality = d.code, f.Quality[:0]
				if d.hasQuality {
					f.Quality = strconv.AppendFloat(f.Quality, s.quality, 'f', 2, 64)
				}
				for _, f.Type = range d.types {
					f.Value = s.appendValue(f.Value[:0], f.Type)
					if faults.Float64() < n.cfg.ErrorRate {
						item.JSON = Faults[faults.IntN(len(Faults))].Append(item.JSON[:0], f)
					} else {
						item.JSON = f.AppendJSON(item.JSON[:0])
					}
					item.Detector = d.code
					item.Position.Row++
					if !yield(item, nil) {
						return
					}
					item.StartsBatch = false
				}
			}
		}
	}
}

func (s state) appendValue(dst []byte, kind string) []byte {
	switch kind {
	case "speed":
		return strconv.AppendFloat(dst, s.speed, 'f', 1, 64)
	case "flow":
		return strconv.AppendFloat(dst, s.flow, 'f', 0, 64)
	}
	return strconv.AppendFloat(dst, s.occupancy, 'f', 1, 64)
}

// Fault is a kind of invalid item, with the daemon's error code for it (contract 1.2).
type Fault struct {
	Name string
	Code string

	// Append appends f with the fault to dst. It must not modify the bytes that f refers to.
	Append func(dst []byte, f measurement.Fields) []byte
}

// Faults lists all kinds of fault, in the order of the contract's rules.
var Faults = func() []Fault {
	faults := []Fault{
		{"not an object", "INVALID_TYPE", func(dst []byte, _ measurement.Fields) []byte { return append(dst, `"just a text"`...) }},
		{"duplicate member", "DUPLICATE_FIELD", addMember(`"value":0`)},
		{"linkId", "RESERVED_FIELD", addMember(`"linkId":"L1"`)},
	}
	for _, name := range required {
		faults = append(faults,
			Fault{name + " missing", "MISSING_FIELD", setMember(name, "")},
			Fault{name + " null", "MISSING_FIELD", setMember(name, `null`)})
	}
	for _, name := range required {
		faults = append(faults, Fault{name + " of the wrong type", "INVALID_TYPE", setMember(name, `{}`)})
	}
	return append(faults,
		Fault{"quality of the wrong type", "INVALID_TYPE", setMember(measurement.Quality, `"high"`)},
		Fault{"unknown detector", "UNKNOWN_DETECTOR", setMember(measurement.DetectorCode, `"no-such-detector"`)},
		Fault{"detector code too long", "UNKNOWN_DETECTOR", setMember(measurement.DetectorCode, `"`+strings.Repeat("x", 257)+`"`)},
		Fault{"unknown measure type", "UNKNOWN_MEASURE_TYPE", setMember(measurement.MeasureTypeCode, `"no such type"`)},
		Fault{"invalid date", "INVALID_TIMESTAMP", setMember(measurement.TimestampFrom, `"2026-02-30T08:00:00Z"`)},
		Fault{"no UTC offset", "INVALID_TIMESTAMP", setMember(measurement.TimestampFrom, `"2026-11-01T08:00:00"`)},
		Fault{"not UTC", "INVALID_TIMESTAMP", setMember(measurement.TimestampTo, `"2026-11-01T08:00:00+02:00"`)},
		Fault{"year out of range", "INVALID_TIMESTAMP", setMember(measurement.TimestampFrom, `"1969-12-31T23:55:00Z"`)},
		Fault{"ends before it starts", "INVALID_INTERVAL", setMember(measurement.TimestampTo, `"1970-01-01T00:00:00Z"`)},
		Fault{"in the future", "TIMESTAMP_IN_FUTURE", setMember(measurement.TimestampTo, `"2261-01-01T00:00:00Z"`)},
		Fault{"value not finite", "INVALID_VALUE", setMember(measurement.Value, `1e999`)},
		Fault{"quality not finite", "INVALID_QUALITY", setMember(measurement.Quality, `-1e999`)},
	)
}()

// required lists the required members of a measurement, in the order of Fields.
var required = []string{
	measurement.DetectorCode, measurement.MeasureTypeCode,
	measurement.TimestampFrom, measurement.TimestampTo, measurement.Value,
}

type faulty = func([]byte, measurement.Fields) []byte

func addMember(json string) faulty {
	return func(dst []byte, f measurement.Fields) []byte {
		dst = f.AppendJSON(dst)
		return append(append(append(dst[:len(dst)-1], ','), json...), '}')
	}
}

// setMember returns a Fault.Append that sets the value of a member, or omits the member if json is
// "".
func setMember(name, json string) faulty {
	return func(dst []byte, f measurement.Fields) []byte {
		quote := strconv.Quote // no member needs escapes
		values := []string{quote(f.Detector), quote(f.Type), quote(string(f.From)), quote(string(f.To)), string(f.Value), string(f.Quality)}
		dst = append(dst, '{')
		for i, member := range append(required, measurement.Quality) {
			if member == name {
				values[i] = json
			}
			if values[i] != "" {
				dst = fmt.Appendf(dst, `%q:%s,`, member, values[i])
			}
		}
		dst[len(dst)-1] = '}'
		return dst
	}
}
