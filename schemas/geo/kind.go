package geo

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Kind is the kind of a geometry. Point through GeometryCollection have their numbers in WKB.
type Kind uint8

// The kinds. Any means that no particular kind is wanted.
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

var kinds = [...]struct {
	name, wkt string
	part      Kind // kind of its parts, if they are all of one kind
	multi     Kind // kind of a geometry with several members of this kind
}{
	Any:                {"geometry", "GEOMETRY", Any, GeometryCollection},
	Point:              {"Point", "POINT", Any, MultiPoint},
	LineString:         {"LineString", "LINESTRING", Any, MultiLineString},
	Polygon:            {"Polygon", "POLYGON", LinearRing, MultiPolygon},
	MultiPoint:         {"MultiPoint", "MULTIPOINT", Point, GeometryCollection},
	MultiLineString:    {"MultiLineString", "MULTILINESTRING", LineString, GeometryCollection},
	MultiPolygon:       {"MultiPolygon", "MULTIPOLYGON", Polygon, GeometryCollection},
	GeometryCollection: {"GeometryCollection", "GEOMETRYCOLLECTION", Any, GeometryCollection},
	LinearRing:         {"LinearRing", "LINEARRING", Any, MultiLineString},
}

// String returns the name that the contract uses.
func (k Kind) String() string { return kinds[k].name }

// hasMembers reports whether a geometry of this kind consists of other geometries.
func (k Kind) hasMembers() bool { return k >= MultiPoint && k <= GeometryCollection }

// hasParts reports whether a geometry of this kind consists of other geometries or of rings.
func (k Kind) hasParts() bool { return k >= Polygon && k <= GeometryCollection }

// Layout is the number of coordinates of each point.
type Layout uint8

// The layouts. NoLayout is that of a geometry whose first point has not been read.
const (
	NoLayout Layout = 0
	XY       Layout = 2
	XYZ      Layout = 3
)

// Geometry is a geometry of any kind but Any. All members of a collection have the same layout.
type Geometry struct {
	Kind   Kind
	Layout Layout
	SRID   uint32 // 0 if unknown

	Flat    []float64   // coordinates of all points, in order
	Ends    []int       // of a Polygon, MultiPoint or MultiLineString: where its parts end in Flat
	Endss   [][]int     // of a MultiPolygon: the same for each polygon
	Members []*Geometry // of a GeometryCollection, which has no other contents
}

// ErrKind means that a geometry is well-formed but not of the wanted kind.
var ErrKind = errors.New("wrong kind of geometry")

func kindError(got, want Kind) error {
	return fmt.Errorf("%w: got a %s, expected a %s", ErrKind, got, want)
}

// asKind returns g as the wanted kind. It converts only between rings and closed lines.
func asKind(g *Geometry, want Kind) (*Geometry, error) {
	got := g.Kind
	switch {
	case want == Any || got == want:
		return g, nil
	case got == LineString && want == LinearRing:
		if err := checkPath(LinearRing, g.Flat, int(g.Layout)); err != nil {
			return nil, fmt.Errorf("%w: a LineString is a LinearRing only if it is closed: %w", ErrKind, err)
		}
	case got != LinearRing || want != LineString:
		return nil, kindError(got, want)
	}
	converted := *g
	converted.Kind = want
	return &converted, nil
}

// maxDifference is the maximum relative difference between doubles that agree to fifteen digits,
// which is what most programs print.
const maxDifference = 1e-14

// Same reports whether two geometries have the same parts in the same order, with coordinates that
// agree to fifteen digits. It ignores differences in kind that an encoding loses: WKT and WKB do
// not distinguish rings from lines, and KML does not distinguish kinds that have members.
func Same(a, b *Geometry) bool {
	return slices.EqualFunc(slices.Collect(Parts(a)), slices.Collect(Parts(b)), Part.same)
}

func (p Part) same(q Part) bool {
	isLine := func(k Kind) bool { return k == LineString || k == LinearRing }
	sameNumber := func(a, b float64) bool { return math.Abs(a-b) <= maxDifference*max(math.Abs(a), math.Abs(b)) }
	return (p.Kind == q.Kind || isLine(p.Kind) && isLine(q.Kind) || p.Kind.hasMembers() && q.Kind.hasMembers()) &&
		p.Layout == q.Layout && p.Len == q.Len && p.End == q.End && slices.EqualFunc(p.Flat, q.Flat, sameNumber)
}
