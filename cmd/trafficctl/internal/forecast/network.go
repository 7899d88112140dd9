package forecast

import (
	"math"
	"math/rand/v2"

	"trafficd/schemas/openlr"
)

// Shape of the network: roads of some streets each, both directions of a street
// one after the other.
const (
	streetsPerRoad  = 40
	centreLatitude  = 50.0
	centreLongitude = 10.0
	metresPerDegree = 111_320.0
	streetMetres    = 400
)

// roadStream keeps the random numbers of roads apart from those of streets.
const roadStream = 1 << 63

// newCode makes the location reference of street i: a straight piece of its road.
func newCode(seed uint64, i int) string {
	street, back := i/2, i%2 == 1
	r := rand.New(rand.NewPCG(seed, roadStream|uint64(street/streetsPerRoad)))
	lat, lon := centreLatitude+r.NormFloat64()*0.2, centreLongitude+r.NormFloat64()*0.3
	heading, class := r.Float64()*2*math.Pi, openlr.FunctionalRoadClass(1+r.IntN(6))
	place := func(metre float64) openlr.Point {
		latitude := lat + metre/metresPerDegree*math.Cos(heading)
		longitude := lon + metre/metresPerDegree*math.Sin(heading)/math.Cos(latitude*math.Pi/180)
		return openlr.Point{Lon: longitude, Lat: latitude, FRC: class, FOW: openlr.SingleCarriageway}
	}
	at := float64(street%streetsPerRoad) * streetMetres
	first, last := place(at), place(at+streetMetres)
	if back {
		first, last, heading = last, first, heading+math.Pi
	}
	first.Bearing = math.Mod(heading*180/math.Pi, 360)
	last.Bearing = math.Mod(first.Bearing+180, 360)
	first.Distance, first.LowestFRC = streetMetres, class
	code, err := openlr.Encode(openlr.Line{Points: []openlr.Point{first, last}})
	if err != nil {
		return "" // only a random number at the very edge of the earth
	}
	return code
}

// freeSpeeds in km/h, by the functional road class of a street's beginning.
var freeSpeeds = [8]float64{110, 90, 80, 60, 50, 50, 40, 30}

const usualSpeed = 50

func freeSpeed(code string) float64 {
	line, err := openlr.Decode(code)
	if err != nil {
		return usualSpeed
	}
	return freeSpeeds[line.Points[0].FRC%8]
}
