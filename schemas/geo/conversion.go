package geo

import (
	"errors"
	"fmt"
	"math"

	"github.com/twpayne/go-geom"
)

// Conversion turns coordinates of one system into those of another. It is a
// value that any number of goroutines may use.
type Conversion struct{ from, to System }

// NewConversion prepares a conversion. Between a system and itself it changes
// nothing, but holds the coordinates against the domain.
func NewConversion(from, to System) Conversion { return Conversion{from, to} }

// Apply converts g in place. After an error g is spoilt: its first points are
// converted. The error is a *DomainError, or says that g, read from EWKB, has an
// SRID that contradicts the system it is said to be in.
func (c Conversion) Apply(g geom.T) error {
	srID := g.SRID()
	if srID != 0 && !c.from.agrees(srID) {
		return fmt.Errorf("the geometry has SRID %d, but its coordinates are said to be in %s", srID, c.from)
	}
	err := c.apply(g, new(int))
	if err == nil && srID != 0 {
		_, err = geom.SetSRID(g, c.to.epsg)
	}
	return err
}

// apply counts the points before those of g.
func (c Conversion) apply(g geom.T, before *int) error {
	members, ok := g.(*geom.GeometryCollection)
	if !ok {
		flat, stride := g.FlatCoords(), g.Stride()
		err := c.points(flat, stride, *before)
		*before += len(flat) / max(stride, 1)
		return err
	}
	for _, member := range members.Geoms() {
		if err := c.apply(member, before); err != nil {
			return err
		}
	}
	return nil
}

// Points converts, in place, the x and y of points that follow one another with
// so many numbers each. The error is a *DomainError.
func (c Conversion) Points(flat []float64, stride int) error {
	return c.points(flat, stride, 0)
}

func (c Conversion) points(flat []float64, stride, before int) error {
	same := c.from.same(c.to)
	for at := 0; at+1 < len(flat); at += stride {
		x, y := flat[at], flat[at+1]
		lon, lat, err := c.from.degrees(x, y)
		system := c.from
		if err == nil && !same {
			system = c.to
			flat[at], flat[at+1], err = c.to.forward(lon, lat)
		}
		if err != nil {
			return &DomainError{Point: before + at/stride, X: x, Y: y, From: c.from, Of: system, Reason: err}
		}
	}
	return nil
}

func (s System) same(other System) bool { return s.format == other.format && s.epsg == other.epsg }

// degrees gives the point on earth.
func (s System) degrees(x, y float64) (lon, lat float64, err error) {
	if !finite(x) || !finite(y) {
		return 0, 0, errNotFinite
	}
	lon, lat, err = s.inverse(x, y)
	if err == nil {
		err = onEarth(lon, lat)
	}
	return lon, lat, err
}

// A DomainError says that a point is outside the domain of a system.
type DomainError struct {
	Point  int     // its number in the geometry, from 0
	X, Y   float64 // as they were given
	From   System  // the system that X and Y are given in
	Of     System  // whose domain it is
	Reason error
}

// Error implements error.
func (e *DomainError) Error() string {
	return fmt.Sprintf("point %d (%v %v) in %s is outside the domain of %s: %v", e.Point, e.X, e.Y, e.From, e.Of, e.Reason)
}

// Unwrap gives the reason.
func (e *DomainError) Unwrap() error { return e.Reason }

var (
	errNotFinite = errors.New("not a finite number")
	errLongitude = errors.New("longitude is not within -180 and 180")
	errLatitude  = errors.New("latitude is not within -90 and 90")
	errPole      = errors.New("the projection has no place for the pole")
)

// grace is what a longitude may lie beyond 180, in degrees: about a metre. The
// edge of VENDOR_SMARTUNITS lies 20 cm beyond, since its offset is rounded.
const grace = 1e-5

func onEarth(lon, lat float64) error {
	switch {
	case !(math.Abs(lon) <= 180+grace):
		return errLongitude
	case !(math.Abs(lat) <= 90):
		return errLatitude
	}
	return nil
}

// wrap gives the longitude within -180 and 180. One that is no more than rounded
// beyond stays where it is: 180 does not become -180.
func wrap(lon float64) float64 {
	if math.Abs(lon) <= 180+grace {
		return lon
	}
	return math.Remainder(lon, 360)
}

const radian = math.Pi / 180
