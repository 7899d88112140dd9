package openlr

import (
	"fmt"
	"math"
)

// Sizes of the parts of a line, in bytes.
const (
	statusSize = 1
	firstSize  = 9
	innerSize  = 7
	lastSize   = 6
	minSize    = statusSize + firstSize + lastSize
	maxOffsets = 2
)

// Bits of the status byte.
const (
	version        = 3
	versionMask    = 0x07
	attributesFlag = 0x08
	locationMask   = 0x70 // area and point flags: all zero for a line
	reservedMask   = 0x80
	lineStatus     = attributesFlag | version
)

// Bits of `class`, `path` and `end`.
const (
	classReserved = 0xc0
	classShift    = 3 // shift of the road class in `class`
	pathShift     = 5 // shift of the road class in `path`
	threeBits     = 0x07
	bearingMask   = 0x1f
	endReserved   = 0x80
	positiveFlag  = 0x40
	negativeFlag  = 0x20
)

// Widths of the intervals.
const (
	bearingStep   = 360.0 / 32 // degrees
	distanceStep  = 58.6       // metres: 15 km in 256 intervals, rounded by the format
	offsetStep    = 1.0 / 256  // of the way between two points
	absoluteStep  = 360.0 / (1 << 24)
	relativeParts = 100_000.0 // in one degree

	maxDistance = 15_001 // metres, the largest whole number in 256 intervals
)

// degrees returns the midpoint of interval v. Interval 0 contains only the number 0, so the
// midpoints of the others are half a step closer to 0.
func degrees(v int32) float64 {
	return (float64(v) - half(float64(v))) * absoluteStep
}

// interval is the inverse of degrees. Degrees up to 1.5 steps beyond the limit become the last
// interval within the limit.
func interval(degrees, limit float64) int32 {
	v := math.Round(degrees/absoluteStep + half(degrees))
	limit /= absoluteStep
	return int32(max(-limit, min(v, limit, 1<<23-1)))
}

func half(x float64) float64 {
	if x == 0 {
		return 0
	}
	return math.Copysign(0.5, x)
}

// checkPosition returns an error for coordinates that are NaN or out of range. This rejects a line
// across the 180th meridian, because its longitudes continue beyond 180 in this format.
func checkPosition(lon, lat float64) error {
	if !(math.Abs(lon) <= 180) {
		return fmt.Errorf("longitude %.7f is not between -180 and 180", lon)
	}
	if !(math.Abs(lat) <= 90) {
		return fmt.Errorf("latitude %.7f is not between -90 and 90", lat)
	}
	return nil
}

// checkOffsets returns an error if the offsets, in intervals, leave nothing of a line with two
// points. On a longer line, they apply to different sections.
func checkOffsets(points int, positive, negative byte) error {
	if points == 2 && int(positive)+int(negative) >= 256 {
		return fmt.Errorf("offsets of %d/256 and %d/256 leave nothing of the line", positive, negative)
	}
	return nil
}
