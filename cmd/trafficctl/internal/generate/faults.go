package generate

import (
	"fmt"
	"strings"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Fault is one kind of invalid item and the daemon's error code for it (contract 1.2).
type Fault struct {
	Name string
	Code string

	// append appends the measurement with the fault. It may change f but not the bytes that f refers to.
	append func(dst []byte, f measurement.Fields) []byte
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
