package geo

import (
	"errors"
	"math"
)

// degrees is a system of so many units to a degree.
type degrees float64

func (d degrees) forward(lon, lat float64) (x, y float64, err error) {
	return lon * float64(d), lat * float64(d), nil
}

func (d degrees) inverse(x, y float64) (lon, lat float64, err error) {
	return x / float64(d), y / float64(d), nil
}

// minutesSeconds writes 8° 15' 2.00016" as 815020.0016: the digits of degrees,
// minutes and tenths of seconds.
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

// The product with 3600 misses whole seconds by some last bits, 8.1° are
// 29159.999999999996. Without rounding over that, 8° 6' would be 8° 5' 59.999…",
// which is the same place, but not what a reader of digits expects. The width is
// 0.03 micrometres; doubles have a third of it.
const wholeSeconds = 1e-9

func toDigits(angle float64) float64 {
	seconds := snap(math.Abs(angle)*3600, wholeSeconds)
	whole := uint64(seconds)
	g, m, s := whole/3600, whole/60%60, float64(whole%60)+(seconds-float64(whole))
	return math.Copysign(10*(float64(10_000*g+100*m)+s), angle)
}

var errMinutes = errors.New("minutes and seconds have to be below 60")

func fromDigits(v float64) (float64, error) {
	const farOut = 1e9 // in degrees too, and still a whole number for sure
	if math.Abs(v) > farOut {
		return v, nil
	}
	seconds := snap(math.Abs(v)/10, wholeSeconds)
	whole := uint64(seconds)
	g, m, s := whole/10_000, whole/100%100, float64(whole%100)+(seconds-float64(whole))
	if m >= 60 || s >= 60 {
		return 0, errMinutes
	}
	return math.Copysign(float64(g)+(float64(60*m)+s)/3600, v), nil
}

func snap(v, width float64) float64 {
	if near := math.Round(v); math.Abs(v-near) < width {
		return near
	}
	return v
}
