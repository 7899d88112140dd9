package openlr

import "math"

// Straight returns a line between two points, given as [longitude, latitude] in degrees, along a
// road of the given length in whole metres and one class.
func Straight(start, end [2]float64, metres int, class FunctionalRoadClass) Line {
	east, north := (end[0]-start[0])*math.Cos(start[1]*math.Pi/180), end[1]-start[1]
	bearing := math.Mod(math.Atan2(east, north)*180/math.Pi+360, 360)
	return Line{Points: []Point{
		{Lon: start[0], Lat: start[1], Bearing: bearing, Distance: metres, FRC: class, FOW: SingleCarriageway, LowestFRC: class},
		{Lon: end[0], Lat: end[1], Bearing: math.Mod(bearing+180, 360), FRC: class, FOW: SingleCarriageway},
	}}
}
