package openlr

import (
	"math"
	"slices"
)

// Line is a path along the road network, described by points on it and the roads at these points.
type Line struct {
	Points []Point // at least two, in the direction of travel

	// PositiveOffset is the fraction of the section between the first two points that precedes the
	// location: from 0 (none) to less than 1, within ±OffsetTolerance. NegativeOffset is the fraction
	// of the section between the last two points that follows the location.
	PositiveOffset, NegativeOffset float64
}

// Point is a location reference point, with attributes of the road that leaves it or, for the last
// point, of the road that arrives.
type Point struct {
	Lon float64 // WGS84 degrees, -180 to 180
	Lat float64 // WGS84 degrees, -90 to 90

	// Bearing is the direction of the road in degrees clockwise from north, from 0 to less than 360,
	// within ±BearingTolerance. At the last point, it is the direction back along the line.
	Bearing float64

	// Distance is the distance to the next point along the road in whole metres, within
	// ±DistanceTolerance; 0 at the last point.
	Distance int

	FRC FunctionalRoadClass
	FOW FormOfWay

	LowestFRC FunctionalRoadClass // least important class up to the next point; 0 at the last point
}

// Half the widths of the format's intervals.
const (
	BearingTolerance  = bearingStep / 2  // degrees
	DistanceTolerance = distanceStep / 2 // metres, before rounding
	OffsetTolerance   = offsetStep / 2   // of the way between two points
)

// FunctionalRoadClass is the importance of a road: 0 (main road) to 7.
type FunctionalRoadClass uint8

// FormOfWay is the physical type of a road.
type FormOfWay uint8

// The forms of way, with their numbers in the format.
const (
	Undefined FormOfWay = iota
	Motorway
	MultipleCarriageway
	SingleCarriageway
	Roundabout
	TrafficSquare
	SlipRoad
	OtherForm
)

// The largest sections into which Straight divides a line. The format can express distances of up
// to 15 km, and points up to 0.32767 degrees apart.
const (
	maxSectionMetres  = 15_000
	maxSectionDegrees = 0.3
	maxSections       = 400 // 120 degrees or 6000 km; with more, the code exceeds the daemon's 4 KiB
)

// Ends returns a line of which only the end points, given as [longitude, latitude] in degrees, and
// the length in whole metres are known: its class is a guess, and its form of way is undefined.
func Ends(start, end [2]float64, metres int) Line {
	line := Straight(start, end, metres, guessedClass)
	for i := range line.Points {
		line.Points[i].FOW = Undefined
	}
	return line
}

const guessedClass = 3

// Guessed reports whether the class and the form of way of all points are those of Ends.
func (l Line) Guessed() bool {
	return !slices.ContainsFunc(l.Points, func(p Point) bool { return p.FRC != guessedClass || p.FOW != Undefined })
}

// Straight returns a line between two points, given as [longitude, latitude] in degrees, along a
// road of one class and the given length in whole metres. It adds intermediate points, because the
// format limits the distance between points. Encode returns an error for a line that is too long
// or crosses the 180th meridian.
func Straight(start, end [2]float64, metres int, class FunctionalRoadClass) Line {
	lon, lat := end[0]-start[0], end[1]-start[1]
	n := 1
	if parts := max(math.Abs(lon)/maxSectionDegrees, math.Abs(lat)/maxSectionDegrees, float64(metres)/maxSectionMetres); parts <= maxSections {
		n = max(1, int(math.Ceil(parts)))
	}
	line := Line{Points: make([]Point, n+1)}
	done := 0 // metres up to the point
	for i := range line.Points {
		share := float64(i) / float64(n)
		p := Point{Lon: start[0] + share*lon, Lat: start[1] + share*lat, FRC: class, FOW: SingleCarriageway}
		east := lon * math.Cos(p.Lat*math.Pi/180)
		p.Bearing = math.Mod(math.Atan2(east, lat)*180/math.Pi+360, 360)
		if i < n {
			next := metres * (i + 1) / n
			p.LowestFRC, p.Distance, done = class, next-done, next
		} else {
			p.Bearing = math.Mod(p.Bearing+180, 360)
		}
		line.Points[i] = p
	}
	return line
}
