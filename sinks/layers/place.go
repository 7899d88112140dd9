package layers

import "math"

// place is a point on the Web Mercator map. Its coordinates are distances from the north-west
// corner in units of 2⁻³² of the map's width.
type place struct{ x, y uint32 }

func placeOf(lon, lat float64) place {
	sin := math.Sin(lat * math.Pi / 180)
	return place{scale((lon + 180) / 360), scale(0.5 - math.Log((1+sin)/(1-sin))/(4*math.Pi))}
}

// scale maps [0, 1) to uint32. It clamps values outside this range, such as those of the poles.
func scale(v float64) uint32 { return uint32(max(0, min(v*(1<<32), math.MaxUint32))) }

// area is a rectangle on the map that includes all four of its sides.
type area struct{ west, north, east, south uint32 }

func tileArea(zoom, x, y uint32) area {
	shift := 32 - zoom
	return area{x << shift, y << shift, (x+1)<<shift - 1, (y+1)<<shift - 1}
}

func (a area) has(p place) bool {
	return a.west <= p.x && p.x <= a.east && a.north <= p.y && p.y <= a.south
}

func (a area) contains(b area) bool {
	return a.has(place{b.west, b.north}) && a.has(place{b.east, b.south})
}

func (a area) overlaps(b area) bool {
	return a.west <= b.east && b.west <= a.east && a.north <= b.south && b.north <= a.south
}

// extend returns the smallest area that contains a and p.
func (a area) extend(p place) area {
	return area{min(a.west, p.x), min(a.north, p.y), max(a.east, p.x), max(a.south, p.y)}
}

var noArea = area{west: math.MaxUint32, north: math.MaxUint32} // the empty area

// hilbert returns the position of p on a Hilbert curve that fills the map. The highest 2n bits are
// the same for all places in a tile of zoom n.
func (p place) hilbert() (position uint64) {
	for bit := uint32(1) << 31; bit > 0; bit >>= 1 {
		right, low := p.x&bit != 0, p.y&bit != 0
		position <<= 2
		switch {
		case right && low:
			position |= 2
		case right:
			position |= 3
		case low:
			position |= 1
		}
		if !low { // the upper quarters are rotated
			if right {
				p.x, p.y = ^p.x, ^p.y
			}
			p.x, p.y = p.y, p.x
		}
	}
	return position
}
