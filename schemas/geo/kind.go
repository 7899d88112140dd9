package geo

import (
	"errors"
	"fmt"

	"github.com/twpayne/go-geom"
)

// Kind is what a geometry is. The numbers of those that WKB has are its codes.
type Kind uint8

// The kinds. Any stands for a wish that is none.
const (
	Any Kind = iota
	Point
	LineString
	Polygon
	MultiPoint
	MultiLineString
	MultiPolygon
	GeometryCollection
	LinearRing
)

var kindNames = [...]string{
	"geometry", "Point", "LineString", "Polygon", "MultiPoint", "MultiLineString",
	"MultiPolygon", "GeometryCollection", "LinearRing",
}

// String gives the name in the interface specification.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// KindOf gives the kind of a geometry, Any for what is none of ours.
func KindOf(g geom.T) Kind {
	switch g.(type) {
	case *geom.Point:
		return Point
	case *geom.LineString:
		return LineString
	case *geom.LinearRing:
		return LinearRing
	case *geom.Polygon:
		return Polygon
	case *geom.MultiPoint:
		return MultiPoint
	case *geom.MultiLineString:
		return MultiLineString
	case *geom.MultiPolygon:
		return MultiPolygon
	case *geom.GeometryCollection:
		return GeometryCollection
	}
	return Any
}

// ErrKind says that a geometry is well-formed, but not of the kind that is wanted.
var ErrKind = errors.New("geometry of another kind")

func kindError(got, want Kind) error {
	return fmt.Errorf("%w: it is a %s, wanted is a %s", ErrKind, got, want)
}

// as gives g as the kind that is wanted. Beside the same kind that is a line for
// a ring if it is closed, and a ring for a line.
func as(g geom.T, want Kind) (geom.T, error) {
	got := KindOf(g)
	switch {
	case want == Any || got == want:
		return g, nil
	case got == LineString && want == LinearRing:
		if err := checkRing(g.FlatCoords(), g.Stride()); err != nil {
			return nil, fmt.Errorf("%w: a LineString is a LinearRing if it is closed, but %w", ErrKind, err)
		}
		return geom.NewLinearRingFlat(g.Layout(), g.FlatCoords()).SetSRID(g.SRID()), nil
	case got == LinearRing && want == LineString:
		return geom.NewLineStringFlat(g.Layout(), g.FlatCoords()).SetSRID(g.SRID()), nil
	}
	return nil, kindError(got, want)
}
