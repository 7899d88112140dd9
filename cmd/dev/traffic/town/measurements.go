package town

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trafficd/schemas/contract"
)

// Item is a measurement, valid or not.
type Item struct {
	JSON           []byte // valid until the next item
	StartsInterval bool   // whether it is the first one of its interval
}

// Items returns the measurements, ordered by interval and then by detector. ErrorRate determines
// how many of them are invalid.
func (n *Network) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		faults := rand.New(rand.NewPCG(n.cfg.Seed^uint64(n.cfg.From.Unix()), faultStream))
		var m contract.Measurement
		var item Item
		for i := range n.cfg.Intervals() {
			m.TimestampFrom = n.cfg.From.Add(time.Duration(i) * n.cfg.Interval)
			m.TimestampTo = m.TimestampFrom.Add(n.cfg.Interval)
			item.StartsInterval = true
			for j := range n.detectors {
				d := &n.detectors[j]
				s, ok := n.measure(d, m.TimestampFrom)
				if !ok {
					continue
				}
				m.DetectorCode, m.Quality = d.code, ""
				if d.hasQuality {
					m.Quality = number(s.quality, 2)
				}
				for _, m.MeasureTypeCode = range d.types {
					m.Value = s.value(m.MeasureTypeCode)
					if faults.Float64() < n.cfg.ErrorRate {
						item.JSON = Faults[faults.IntN(len(Faults))].Append(item.JSON[:0], m)
					} else {
						item.JSON = m.AppendJSON(item.JSON[:0])
					}
					if !yield(item) {
						return
					}
					item.StartsInterval = false
				}
			}
		}
	}
}

// Write writes the measurements as NDJSON and returns their number. It stops when ctx is done.
func (n *Network) Write(ctx context.Context, w io.Writer) (items int, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	for item := range n.Items() {
		if item.StartsInterval && ctx.Err() != nil {
			return items, context.Cause(ctx)
		}
		if _, err := out.Write(append(item.JSON, '\n')); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

func number(v float64, decimals int) json.Number {
	return json.Number(strconv.FormatFloat(v, 'f', decimals, 64))
}

func (s state) value(measureType string) json.Number {
	switch measureType {
	case "speed":
		return number(s.speed, 1)
	case "flow":
		return number(s.flow, 0)
	}
	return number(s.occupancy, 1)
}

// Fault is a kind of invalid item, with the daemon's error code for it (contract 1.2).
type Fault struct {
	Name string
	Code string

	// Append appends m with the fault to dst.
	Append func(dst []byte, m contract.Measurement) []byte
}

// Faults lists all kinds of fault, in the order of the contract's rules.
var Faults = func() []Fault {
	faults := []Fault{
		{"not an object", "INVALID_TYPE", func(dst []byte, _ contract.Measurement) []byte { return append(dst, `"just a text"`...) }},
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
		Fault{"quality of the wrong type", "INVALID_TYPE", setMember(contract.FieldQuality.String(), `"high"`)},
		Fault{"unknown detector", "UNKNOWN_DETECTOR", setMember(contract.FieldDetectorCode.String(), `"no-such-detector"`)},
		Fault{"detector code too long", "UNKNOWN_DETECTOR", setMember(contract.FieldDetectorCode.String(), `"`+strings.Repeat("x", 257)+`"`)},
		Fault{"unknown measure type", "UNKNOWN_MEASURE_TYPE", setMember(contract.FieldMeasureTypeCode.String(), `"no such type"`)},
		Fault{"invalid date", "INVALID_TIMESTAMP", setMember(contract.FieldTimestampFrom.String(), `"2026-02-30T08:00:00Z"`)},
		Fault{"no UTC offset", "INVALID_TIMESTAMP", setMember(contract.FieldTimestampFrom.String(), `"2026-11-01T08:00:00"`)},
		Fault{"not UTC", "INVALID_TIMESTAMP", setMember(contract.FieldTimestampTo.String(), `"2026-11-01T08:00:00+02:00"`)},
		Fault{"year out of range", "INVALID_TIMESTAMP", setMember(contract.FieldTimestampFrom.String(), `"1969-12-31T23:55:00Z"`)},
		Fault{"ends before it starts", "INVALID_INTERVAL", setMember(contract.FieldTimestampTo.String(), `"1970-01-01T00:00:00Z"`)},
		Fault{"in the future", "TIMESTAMP_IN_FUTURE", setMember(contract.FieldTimestampTo.String(), `"2261-01-01T00:00:00Z"`)},
		Fault{"value not finite", "INVALID_VALUE", setMember(contract.FieldValue.String(), `1e999`)},
		Fault{"quality not finite", "INVALID_QUALITY", setMember(contract.FieldQuality.String(), `-1e999`)},
	)
}()

// required lists the required members of a measurement, in the order of Fields.
var required = []string{
	contract.FieldDetectorCode.String(), contract.FieldMeasureTypeCode.String(),
	contract.FieldTimestampFrom.String(), contract.FieldTimestampTo.String(), contract.FieldValue.String(),
}

type faulty = func([]byte, contract.Measurement) []byte

func addMember(member string) faulty {
	return func(dst []byte, m contract.Measurement) []byte {
		dst = m.AppendJSON(dst)
		return append(append(append(dst[:len(dst)-1], ','), member...), '}')
	}
}

// setMember returns a Fault.Append that sets the value of a member, or omits the member if value is
// "".
func setMember(name, value string) faulty {
	return func(dst []byte, m contract.Measurement) []byte {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(m.AppendJSON(nil), &members) // valid
		members[name] = json.RawMessage(value)
		if value == "" {
			delete(members, name)
		}
		text, _ := json.Marshal(members) // valid, and sorted by name
		return append(dst, text...)
	}
}
