package geo

import (
	"errors"
	"math"
)

// ellipsoid is defined by its semi-major axis in metres and the inverse of its flattening.
type ellipsoid struct{ a, inverseFlattening float64 }

var (
	wgs84 = ellipsoid{6_378_137, 298.257223563}
	grs80 = ellipsoid{6_378_137, 298.257222101}
)

// transverse is the transverse Mercator projection of an ellipsoid, by Krüger's series up to the
// sixth power of the third flattening (Karney, Transverse Mercator with an accuracy of a few
// nanometers, 2011, equations 7 to 36).
type transverse struct {
	lon0        float64 // degrees
	east, north float64 // metres
	e           float64 // eccentricity
	radius      float64 // radius of the rectified meridian times its scale, in metres
	alpha, beta [6]float64
}

func newUTM(on ellipsoid, zone int, north float64) *transverse {
	const scale = 0.9996
	f := 1 / on.inverseFlattening
	n := f / (2 - f)
	t := &transverse{
		lon0: float64(6*zone - 183), east: 500_000, north: north,
		e:      math.Sqrt(f * (2 - f)),
		radius: scale * on.a / (1 + n) * (1 + n*n/4 + n*n*n*n/64 + n*n*n*n*n*n/256),
	}
	t.alpha = series(n, [6][6]float64{
		{1. / 2, -2. / 3, 5. / 16, 41. / 180, -127. / 288, 7891. / 37800},
		{13. / 48, -3. / 5, 557. / 1440, 281. / 630, -1983433. / 1935360},
		{61. / 240, -103. / 140, 15061. / 26880, 167603. / 181440},
		{49561. / 161280, -179. / 168, 6601661. / 7257600},
		{34729. / 80640, -3418889. / 1995840},
		{212378941. / 319334400},
	})
	t.beta = series(n, [6][6]float64{
		{1. / 2, -2. / 3, 37. / 96, -1. / 360, -81. / 512, 96199. / 604800},
		{1. / 48, 1. / 15, -437. / 1440, 46. / 105, -1118711. / 3870720},
		{17. / 480, -37. / 840, -209. / 4480, 5569. / 90720},
		{4397. / 161280, -11. / 504, -830251. / 7257600},
		{4583. / 161280, -108847. / 3991680},
		{20648693. / 638668800},
	})
	return t
}

// series returns, for each row j, the sum of its coefficients multiplied by n^(j+1), n^(j+2), …
func series(n float64, rows [6][6]float64) (sums [6]float64) {
	for j, row := range rows {
		power := math.Pow(n, float64(j+1))
		for _, c := range row {
			sums[j] += c * power
			power *= n
		}
	}
	return sums
}

// maxWidth is the maximum distance from the central meridian in degrees. A zone is designed for 3
// degrees, but even at 40 degrees the error of the series is far less than a millimetre.
const maxWidth = 40

var (
	errZone  = errors.New("point is more than 40 degrees of longitude from the central meridian of the zone")
	errPlane = errors.New("point is beyond the pole or the width of the projection")
)

func (t *transverse) forward(lon, lat float64) (x, y float64, err error) {
	delta := math.Remainder(lon-t.lon0, 360)
	if math.Abs(delta) > maxWidth+grace {
		return 0, 0, errZone
	}
	tau := math.Tan(lat * radian)
	tauC := t.conformal(tau)
	sin, cos := math.Sincos(delta * radian)
	xi, eta := math.Atan2(tauC, cos), math.Asinh(sin/math.Hypot(tauC, cos))
	dXi, dEta := wave(&t.alpha, xi, eta)
	return t.east + t.radius*(eta+dEta), t.north + t.radius*(xi+dXi), nil
}

func (t *transverse) inverse(x, y float64) (lon, lat float64, err error) {
	xi, eta := (y-t.north)/t.radius, (x-t.east)/t.radius
	if math.Abs(xi) > math.Pi/2*(1+1e-12) || math.Abs(eta) > 1 {
		return 0, 0, errPlane
	}
	dXi, dEta := wave(&t.beta, xi, eta)
	xi, eta = xi-dXi, eta-dEta
	sin, cos := math.Sincos(xi)
	sinh := math.Sinh(eta)
	delta := math.Atan2(sinh, cos) / radian
	if math.Abs(delta) > maxWidth+grace {
		return 0, 0, errZone
	}
	tau := t.geographic(sin / math.Hypot(sinh, cos))
	return wrap(t.lon0 + delta), math.Atan(tau) / radian, nil
}

// conformal converts the tangent of a geographic latitude to that of the conformal latitude.
func (t *transverse) conformal(tau float64) float64 {
	root := math.Hypot(1, tau)
	sigma := math.Sinh(t.e * math.Atanh(t.e*tau/root))
	return tau*math.Hypot(1, sigma) - sigma*root
}

// geographic is the inverse of conformal, by Newton's method. Each step doubles the number of exact
// digits and the initial value is off by the flattening, so two steps are usually enough.
func (t *transverse) geographic(tauC float64) float64 {
	const steps, enough = 5, 1e-9 // after a step this small, another step would change nothing
	e2m := 1 - t.e*t.e
	tau := tauC / e2m
	if math.Abs(tau) > 1e15 { // the pole
		return tau
	}
	for range steps {
		c := t.conformal(tau)
		step := (tauC - c) / math.Hypot(1, c) * (1 + e2m*tau*tau) / (e2m * math.Hypot(1, tau))
		tau += step
		if math.Abs(step) < enough*max(1, math.Abs(tau)) {
			break
		}
	}
	return tau
}

// wave returns the sums of c[j]·sin(2jξ)·cosh(2jη) and c[j]·cos(2jξ)·sinh(2jη) by Clenshaw's
// recurrence over complex numbers, which needs only one sine.
func wave(c *[6]float64, xi, eta float64) (dXi, dEta float64) {
	sin, cos := math.Sincos(2 * xi)
	sinh, cosh := math.Sinh(2*eta), math.Cosh(2*eta)
	twice := complex(2*cos*cosh, -2*sin*sinh) // 2·cos(2ζ), ζ = ξ + iη
	var u1, u2 complex128
	for j := len(c) - 1; j >= 0; j-- {
		u1, u2 = complex(c[j], 0)+twice*u1-u2, u1
	}
	sum := u1 * complex(sin*cosh, cos*sinh) // sin(2ζ)
	return real(sum), imag(sum)
}
