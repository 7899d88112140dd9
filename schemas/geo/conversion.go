package geo

import (
	"errors"
	"fmt"
	"math"
)

// Conversion converts coordinates from one system to another. It is safe for concurrent use.
type Conversion struct{ from, to System }

// NewConversion returns a conversion. If both systems are the same, the conversion only checks that
// the coordinates are within the domain.
func NewConversion(from, to System) Conversion { return Conversion{from, to} }

// Apply converts g in place. The error is a *DomainError, unless g was read from EWKB with an SRID
// that contradicts the system. After an error, g may be partly converted.
func (c Conversion) Apply(g *Geometry) error {
	if g.SRID != 0 && !c.from.agrees(int(g.SRID)) {
		return fmt.Errorf("the geometry has SRID %d, but its coordinates are declared as %s", g.SRID, c.from)
	}
	before := 0 // number of points in earlier parts
	for p := range Parts(g) {
		if err := c.points(p.Flat, int(p.Layout), before); err != nil {
			return err
		}
		before += len(p.Flat) / max(int(p.Layout), 1)
	}
	if g.SRID != 0 {
		g.SRID = uint32(c.to.epsg)
	}
	return nil
}

// Points converts the x and y of consecutive points of stride numbers each, in place. The error is
// a *DomainError.
func (c Conversion) Points(flat []float64, stride int) error {
	return c.points(flat, stride, 0)
}

func (c Conversion) points(flat []float64, stride, before int) error {
	same := c.from.format == c.to.format && c.from.epsg == c.to.epsg
	for at := 0; at+1 < len(flat); at += stride {
		x, y := flat[at], flat[at+1]
		lon, lat, err := c.from.degrees(x, y)
		system := c.from
		if err == nil && !same {
			system = c.to
			flat[at], flat[at+1], err = c.to.forward(lon, lat)
		}
		if err != nil {
			return &DomainError{Point: before + at/stride, X: x, Y: y, From: c.from, System: system, Reason: err}
		}
	}
	return nil
}

func (s System) degrees(x, y float64) (lon, lat float64, err error) {
	if !finite(x) || !finite(y) {
		return 0, 0, ErrNotFinite
	}
	lon, lat, err = s.inverse(x, y)
	switch {
	case err != nil:
	case !(math.Abs(lon) <= 180+grace):
		err = errLongitude
	case !(math.Abs(lat) <= 90):
		err = errLatitude
	}
	return lon, lat, err
}

// DomainError is the error for a point outside the domain of a system.
type DomainError struct {
	Point  int     // index of the point in the geometry
	X, Y   float64 // coordinates before the conversion
	From   System  // system of X and Y
	System System  // system whose domain does not contain the point
	Reason error
}

func (e *DomainError) Error() string {
	return fmt.Sprintf("point %d (%v %v) in %s is outside the domain of %s: %v", e.Point, e.X, e.Y, e.From, e.System, e.Reason)
}

func (e *DomainError) Unwrap() error { return e.Reason }

// ErrNotFinite means that a coordinate is NaN or infinite. WKB and plain elements can represent
// these values, but WKT and KML cannot.
var ErrNotFinite = errors.New("not a finite number")

var (
	errLongitude = errors.New("longitude is not between -180 and 180")
	errLatitude  = errors.New("latitude is not between -90 and 90")
	errPole      = errors.New("the pole cannot be projected")
)

// grace is the number of degrees by which a longitude may exceed 180: about a metre. The edge of
// VENDOR_SMARTUNITS is 20 cm beyond 180°, because its offset is rounded.
const grace = 1e-5

// wrap returns the equivalent longitude between -180 and 180. It leaves longitudes within the grace
// alone, so that 180 does not become -180.
func wrap(lon float64) float64 {
	if math.Abs(lon) <= 180+grace {
		return lon
	}
	return math.Remainder(lon, 360)
}

const radian = math.Pi / 180
