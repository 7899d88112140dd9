package feeds

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Measure is the kind of a value.
type Measure uint8

// The measures with their units.
const (
	Unknown         Measure = iota
	Speed                   // km/h
	Flow                    // vehicles/h
	PCUFlow                 // passenger car units/h
	AxleFlow                // axles/h
	LongVehicles            // %
	Occupancy               // %
	Density                 // vehicles/km
	Headway                 // s
	DistanceHeadway         // m
	TravelTime              // s

	measures
)

func (m Measure) String() string {
	return [...]string{
		"unknown", "speed", "flow", "pcu_flow", "axle_flow", "long_vehicles", "occupancy", "density", "headway",
		"distance_headway", "travel_time", "unknown",
	}[min(m, measures)]
}

// maxCode is the longest measure type code of the contract in bytes.
const maxCode = 64

// codeKey is everything of which a code is made.
type codeKey struct {
	measure                Measure
	lane, class, statistic string
	index                  int // 0 if it is not part of the code
	twin                   int // counts values that only their order distinguishes; 0 for the first
}

// code returns the measure type code: type[.lane][.class][.statistic][.i<index>][.n<twin>].
func (p *parser) code(k codeKey) string {
	code, ok := p.codes[k]
	if !ok {
		code = k.String()
		p.codes[k] = code
	}
	return code
}

func (k codeKey) String() string {
	end := ""
	if k.statistic != "" {
		end = "." + k.statistic
	}
	if k.index != 0 {
		end += ".i" + strconv.Itoa(k.index)
	}
	if k.twin != 0 {
		end += ".n" + strconv.Itoa(k.twin+1)
	}
	name := k.measure.String()
	for _, part := range []string{k.lane, k.class} {
		if part != "" {
			name += "." + clean(part)
		}
	}
	return name[:min(len(name), maxCode-len(end))] + end
}

// clean replaces what a code must not contain.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, name)
}

// part is a condition that vehicles of a class meet, such as lorry or ge 5.6 m.
type part struct{ unit, text string }

// operators are the comparisons of DATEX II in codes.
var operators = map[string]string{
	"lessThan": "lt", "lessThanOrEqualTo": "le", "greaterThan": "gt", "greaterThanOrEqualTo": "ge", "equalTo": "eq",
}

// className returns the part of a code for a class of vehicles: lorry, gt12.2m, ge5.6_le12.2m,
// car_van. The order of the parts does not matter.
func className(parts []part) string {
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.text, b.text)) })
	parts = slices.Compact(parts)
	name := ""
	for i, p := range parts {
		if i > 0 {
			name += "_"
		}
		if name += p.text; i+1 == len(parts) || parts[i+1].unit != p.unit {
			name += p.unit
		}
	}
	return clean(name)
}
