package openlr

import "math"

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

// Straight returns a line between two points, given as [longitude, latitude] in degrees, along a
// road of one class and the given length in whole metres.
func Straight(start, end [2]float64, metres int, class FunctionalRoadClass) Line {
	east, north := (end[0]-start[0])*math.Cos(start[1]*math.Pi/180), end[1]-start[1]
	bearing := math.Mod(math.Atan2(east, north)*180/math.Pi+360, 360)
	return Line{Points: []Point{
		{Lon: start[0], Lat: start[1], Bearing: bearing, Distance: metres, FRC: class, FOW: SingleCarriageway, LowestFRC: class},
		{Lon: end[0], Lat: end[1], Bearing: math.Mod(bearing+180, 360), FRC: class, FOW: SingleCarriageway},
	}}
}
