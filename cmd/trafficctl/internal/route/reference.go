package route

import (
	"math"

	"trafficd/schemas/openlr"
)

// Street is what is known of the course of a street in one direction.
type Street struct {
	Street, FromNode int32
	OpenLR           string
	Geometry         [][2]float64 // [longitude, latitude] in degrees, in the direction of travel; may be nil
}

// reference describes a path by points on it.
type reference struct {
	points             []point
	tolerance          float64 // of the distances between the points, in metres
	positive, negative float64 // the shares of the first and the last section that do not belong to the path
}

// point is a location reference point.
type point struct {
	position [2]float64
	bearing  float64 // of the road that leaves the point or, for the last point, back along it
	metres   float64 // to the next point along the road
	snap     float64 // the point is at a junction that is so near, in metres
	inside   float64 // cost of a point that is not at a junction

	guessed   bool // bearing is that of the straight line to the other end
	described bool // the following is known
	class     uint8
	lowest    uint8 // least important class up to the next point
	form      openlr.FormOfWay
}

// fromCode returns the reference of an OpenLR code. Its points are junctions of another map.
func fromCode(code string) (reference, error) {
	line, err := openlr.Decode(code)
	if err != nil {
		return reference{}, err
	}
	r := reference{tolerance: openlr.DistanceTolerance + 1, positive: line.PositiveOffset, negative: line.NegativeOffset}
	for _, p := range line.Points {
		r.points = append(r.points, point{
			position: [2]float64{p.Lon, p.Lat}, bearing: p.Bearing, metres: float64(p.Distance), snap: snapMetres, inside: insideCost,
			described: !line.Guessed(), guessed: line.Guessed(), class: uint8(p.FRC), lowest: uint8(p.LowestFRC), form: p.FOW,
		})
	}
	return r, nil
}

const (
	bearingMetres  = 20 // OpenLR measures a bearing to the point at this distance
	pointMetres    = 60 // least distance between the points of a geometry that are searched
	snapMetres     = 12
	insideCost     = 6
	drawnTolerance = 5 // of a distance in a geometry, in metres
)

// fromGeometry returns the reference of a line: its ends, and points at its bends. ok is false if
// it has no length.
func fromGeometry(line [][2]float64) (r reference, ok bool) {
	r.tolerance = drawnTolerance
	at := make([]float64, len(line)) // metres from the start
	for i := 1; i < len(line); i++ {
		at[i] = at[i-1] + Distance(line[i-1], line[i])
	}
	last := len(line) - 1
	if last < 1 || at[last] == 0 {
		return r, false
	}
	before := 0.0
	for i, p := range line {
		end := i == 0 || i == last
		if !end && (at[i]-before < pointMetres || at[last]-at[i] < pointMetres) {
			continue
		}
		to := at[i] + bearingMetres
		if i == last {
			to = at[i] - bearingMetres
		}
		next := point{position: p, bearing: bearing(p, pointAt(line, at, to))}
		if end {
			next.snap = snapMetres
		}
		if i > 0 {
			r.points[len(r.points)-1].metres = at[i] - before
		}
		before = at[i]
		r.points = append(r.points, next)
	}
	return r, true
}

// pointAt returns the point of a line at a number of metres from its start.
func pointAt(line [][2]float64, at []float64, metres float64) [2]float64 {
	metres = min(max(metres, 0), at[len(at)-1])
	for i := 1; ; i++ {
		if size := at[i] - at[i-1]; metres <= at[i] && size > 0 || i == len(at)-1 {
			return between(line[i-1], line[i], (metres-at[i-1])/math.Max(size, 1e-9))
		}
	}
}
