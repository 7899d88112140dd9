package geo

import "math"

// mercator is Mercator's projection of a sphere, perhaps in other units than
// metres and from another origin.
type mercator struct {
	radius float64 // metres
	origin float64 // metres, added to both axes
	unit   float64 // metres
}

var (
	vendorMercator = mercator{radius: 6_371_000, unit: 1}
	smartUnits     = mercator{radius: 6_371_000, origin: 20_015_087, unit: 4.809543}
	webMercator    = mercator{radius: 6_378_137, unit: 1} // EPSG:3857
)

func (m mercator) forward(lon, lat float64) (x, y float64, err error) {
	if math.Abs(lat) >= 90 {
		return 0, 0, errPole
	}
	x = m.radius * lon * radian
	y = m.radius * math.Asinh(math.Tan(lat*radian))
	return (x + m.origin) / m.unit, (y + m.origin) / m.unit, nil
}

func (m mercator) inverse(x, y float64) (lon, lat float64, err error) {
	x, y = x*m.unit-m.origin, y*m.unit-m.origin
	lat = math.Atan(math.Sinh(y/m.radius)) / radian
	if math.Abs(lat) >= 90 {
		return 0, 0, errPole
	}
	return x / m.radius / radian, lat, nil
}
