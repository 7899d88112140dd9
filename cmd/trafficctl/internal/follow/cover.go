// Package follow writes the speeds of the forecast layer to the files that routing engines read:
//
//	cover.go     which parts of the engine's map the streets cover, and their speeds
//	osrm.go      OSRM: a file with a line for each pair of nodes
//	tiles.go     Valhalla: the edges of its tiles
//	traffic.go   Valhalla: the file of live speeds, which the engine has mapped
//	typical.go   Valhalla: files of the typical speeds of a week
//	follow.go    follows the layer
package follow

import (
	"trafficd/cmd/trafficctl/internal/route"
)

// minSpeed is the lowest speed of a street that is not closed, in km/h: for engines, 0 means
// closed.
const minSpeed = 1

// speed is the speed of a street in km/h.
type speed struct {
	kmh    float32 // 0: unknown
	free   float32 // without traffic; 0: unknown
	closed bool
}

func (s speed) known() bool { return s.closed || s.kmh > 0 }

// part is the part of a unit that a street covers, as fractions of the unit's length in the
// direction of travel.
type part struct {
	street   int32 // index in speeds
	from, to float32
}

// cover holds what streets cover of an engine's map, which consists of units: pairs of nodes, or
// edges.
type cover[K comparable] struct {
	keys  []K // of the units
	parts [][]part
	units [][]int32 // of each street
	index map[K]int32
}

func newCover[K comparable](streets int) *cover[K] {
	return &cover[K]{units: make([][]int32, streets), index: make(map[K]int32)}
}

func (c *cover[K]) add(key K, p part) {
	if p.to <= p.from {
		return
	}
	unit, ok := c.index[key]
	if !ok {
		unit = int32(len(c.keys))
		c.index[key], c.keys, c.parts = unit, append(c.keys, key), append(c.parts, nil)
	}
	parts := c.parts[unit]
	// A street that continues in the unit, on its next pair of nodes, remains one part.
	if n := len(parts) - 1; n >= 0 && parts[n].street == p.street && p.from-parts[n].to < 1e-4 && p.from > parts[n].from {
		parts[n].to = p.to
		return
	}
	c.parts[unit] = append(parts, p)
	c.units[p.street] = append(c.units[p.street], unit)
}

// pairs calls f with each pair of consecutive nodes of a match: their index, and the part of the
// pair that the street covers.
func pairs(m *route.Match, street int32, f func(i int, p part)) {
	for i := range m.Ways {
		p := part{street, 0, 1}
		if i == 0 && m.PositiveOffset > 0 {
			p.from = float32(min(m.PositiveOffset/route.Distance(m.Coordinates[0], m.Coordinates[1]), 1))
		}
		if i == len(m.Ways)-1 && m.NegativeOffset > 0 {
			p.to = float32(max(1-m.NegativeOffset/route.Distance(m.Coordinates[i], m.Coordinates[i+1]), 0))
		}
		f(i, p)
	}
}

// mean returns the speed at which the known parts between two positions are travelled, and how much
// of the unit they cover. It is closed if one of them is, because there is no way through.
func mean(parts []part, speeds []speed, from, to float32) (s speed, covered float32) {
	var hours, free float32
	for _, p := range parts {
		v, length := speeds[p.street], min(p.to, to)-max(p.from, from)
		if length <= 0 || !v.known() {
			continue
		}
		covered += length
		s.closed = s.closed || v.closed
		hours += length / max(v.kmh, minSpeed)
		free += length / v.free // infinite if it is unknown
	}
	if covered > 0 {
		s.kmh, s.free = covered/hours, covered/free
	}
	return s, covered
}
