package openlr

// Line is a path along the road network, given by points on it and by what the
// road looks like there. It belongs to the caller; nothing of it is shared.
type Line struct {
	// Points, at least two, in the direction of travel.
	Points []Point

	// PositiveOffset is the part of the way from the first point to the second
	// that lies before the location's start: 0 (none) up to, not including, 1,
	// within ±OffsetTolerance.
	PositiveOffset float64

	// NegativeOffset is the part of the way from the last point but one to the
	// last that lies behind the location's end, as PositiveOffset.
	NegativeOffset float64
}

// Point is a location reference point: a place and the road that leaves it (at
// the last point, the road that arrives).
type Point struct {
	Lon float64 // WGS84 degrees, -180 to 180
	Lat float64 // WGS84 degrees, -90 to 90

	// Bearing of the road in degrees clockwise from north, 0 up to, not
	// including, 360, within ±BearingTolerance. That of the last point looks
	// back along the line.
	Bearing float64

	// Distance to the next point along the road, in whole metres, within
	// ±DistanceTolerance; 0 at the last point.
	Distance int

	FRC FunctionalRoadClass
	FOW FormOfWay

	// LowestFRC is the least important class on the way to the next point; 0
	// at the last point, where it says nothing.
	LowestFRC FunctionalRoadClass
}

// Half the width of the intervals that the format knows.
const (
	BearingTolerance  = bearingStep / 2  // degrees
	DistanceTolerance = distanceStep / 2 // metres, before the middle is rounded
	OffsetTolerance   = offsetStep / 2   // of the way between two points
)

// FunctionalRoadClass says how important a road is: 0 (main road) to 7.
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

var formNames = [...]string{
	"undefined", "motorway", "multiple carriageway", "single carriageway",
	"roundabout", "traffic square", "slip road", "other",
}

// String gives the name in lower case, "invalid" for a number past OtherForm.
func (f FormOfWay) String() string {
	if int(f) >= len(formNames) {
		return "invalid"
	}
	return formNames[f]
}

// Geometry gives the points as [longitude, latitude], the coordinates of a
// GeoJSON LineString. It joins them straight, does not follow the road, and
// takes nothing off for the offsets.
func (l Line) Geometry() [][2]float64 {
	geometry := make([][2]float64, len(l.Points))
	for i, p := range l.Points {
		geometry[i] = [2]float64{p.Lon, p.Lat}
	}
	return geometry
}
