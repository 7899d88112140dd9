package geo

import (
	"errors"
	"math"
)

// degrees is a projection to longitude and latitude; its value is the number of units per degree.
type degrees float64

func (d degrees) forward(lon, lat float64) (x, y float64, err error) {
	return lon * float64(d), lat * float64(d), nil
}

func (d degrees) inverse(x, y float64) (lon, lat float64, err error) {
	return x / float64(d), y / float64(d), nil
}

// minutesSeconds concatenates the digits of degrees, minutes and tenths of seconds: 8° 15' 2.00016"
// is 815020.0016.
type minutesSeconds struct{}

func (minutesSeconds) forward(lon, lat float64) (x, y float64, err error) {
	return toDigits(lon), toDigits(lat), nil
}

func (minutesSeconds) inverse(x, y float64) (lon, lat float64, err error) {
	if lon, err = fromDigits(x); err != nil {
		return 0, 0, err
	}
	lat, err = fromDigits(y)
	return lon, lat, err
}

// wholeSeconds is the distance from a whole number within which seconds are rounded to it. Degrees
// times 3600 are slightly off: 8.1° are 29159.999999999996 seconds, which would be written as
// 8° 5' 59.999…" instead of 8° 6'. The distance is 0.03 micrometres on the ground, three times the
// resolution of a double.
const wholeSeconds = 1e-9

// toDigits returns an angle in degrees as the digits of minutesSeconds.
func toDigits(angle float64) float64 {
	seconds := roundNear(math.Abs(angle)*3600, wholeSeconds)
	whole := uint64(seconds)
	g, m, s := whole/3600, whole/60%60, float64(whole%60)+(seconds-float64(whole))
	return math.Copysign(10*(float64(10_000*g+100*m)+s), angle)
}

var errMinutes = errors.New("minutes and seconds must be at most 60")

// fromDigits is the inverse of toDigits.
func fromDigits(v float64) (float64, error) {
	const limit = 1e9 // larger values might overflow uint64; returned as degrees, they are outside the domain
	if math.Abs(v) > limit {
		return v, nil
	}
	seconds := roundNear(math.Abs(v)/10, wholeSeconds)
	whole := uint64(seconds)
	g, m, s := whole/10_000, whole/100%100, float64(whole%100)+(seconds-float64(whole))
	if m > 60 || s > 60 { // rounding may turn 59.999999999… into 60
		return 0, errMinutes
	}
	return math.Copysign(float64(g)+(float64(60*m)+s)/3600, v), nil
}

func roundNear(v, width float64) float64 {
	if near := math.Round(v); math.Abs(v-near) < width {
		return near
	}
	return v
}

// mercator is the Mercator projection of a sphere.
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

// lambert is the Lambert conformal conic projection of a sphere (Snyder, Map Projections, equations
// 15-1 to 15-11).
type lambert struct {
	lon0          float64 // longitude of the origin in degrees
	east, north   float64 // metres at the origin
	n             float64 // cone constant: the fraction of a full circle that the unrolled cone covers
	scale, radius float64 // in metres: factor used by distance, and distance of the origin from the apex
}

var (
	conform      = newLambert(6_365_000, 45, 55, 10, 30, 1_800_000, -500_000)
	superConform = newLambert(6_365_000, 45, 55, 10, 30, 1_800_000+3_400_000, -500_000+1_700_000)
)

func newLambert(sphere, parallel1, parallel2, lon0, lat0, east, north float64) lambert {
	cos1, cos2 := math.Cos(parallel1*radian), math.Cos(parallel2*radian)
	n := math.Log(cos1/cos2) / math.Log(conformal(parallel2)/conformal(parallel1))
	l := lambert{lon0: lon0, east: east, north: north, n: n}
	l.scale = sphere * cos1 * math.Pow(conformal(parallel1), n) / n
	l.radius = l.distance(lat0)
	return l
}

// conformal returns tan(45° + lat/2), which grows from 0 at the south pole to infinity at the north
// pole.
func conformal(lat float64) float64 { return math.Tan((45 + lat/2) * radian) }

// distance returns the distance of a parallel from the apex of the cone, which is the north pole.
func (l *lambert) distance(lat float64) float64 {
	return l.scale / math.Pow(conformal(lat), l.n)
}

func (l lambert) forward(lon, lat float64) (x, y float64, err error) {
	if lat <= -90 {
		return 0, 0, errPole
	}
	rho := 0.0
	if lat < 90 {
		rho = l.distance(lat)
	}
	sin, cos := math.Sincos(l.n * math.Remainder(lon-l.lon0, 360) * radian)
	return l.east + rho*sin, l.north + l.radius - rho*cos, nil
}

var errGap = errors.New("point is in the gap where the cone is cut open")

func (l lambert) inverse(x, y float64) (lon, lat float64, err error) {
	dx, dy := x-l.east, l.north+l.radius-y
	rho, theta := math.Hypot(dx, dy), math.Atan2(dx, dy)
	if rho == 0 {
		return l.lon0, 90, nil
	}
	lon = theta / l.n / radian
	if math.Abs(lon) > 180+grace {
		return 0, 0, errGap
	}
	lat = 2*math.Atan(math.Pow(l.scale/rho, 1/l.n))/radian - 90
	if lat <= -90 {
		return 0, 0, errPole
	}
	return wrap(lon + l.lon0), lat, nil
}
