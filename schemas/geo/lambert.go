package geo

import (
	"errors"
	"math"
)

// lambert is Lambert's conformal projection of a sphere on a cone (Snyder, Map
// Projections, equations 15-1 to 15-11).
type lambert struct {
	lon0          float64 // degrees, of the origin
	east, north   float64 // metres at the origin
	n             float64 // of the cone: its share of the full circle
	scale, radius float64 // metres: of the cone, and to the origin
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

// conformal grows from 0 at the south pole to infinity at the north pole.
func conformal(lat float64) float64 { return math.Tan((45 + lat/2) * radian) }

// distance of a parallel from the tip of the cone, which is the north pole.
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

var errGap = errors.New("it lies where the cone is cut open")

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
