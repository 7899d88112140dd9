package geo

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// Kind is the kind of a geometry. From Point to GeometryCollection the numbers are those of WKB.
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

// kinds has the names of each kind, and the kind that several geometries of it have together.
var kinds = [...]struct {
	name, wkt string
	multi     Kind
}{
	Any:                {"geometry", "GEOMETRY", GeometryCollection},
	Point:              {"Point", "POINT", MultiPoint},
	LineString:         {"LineString", "LINESTRING", MultiLineString},
	Polygon:            {"Polygon", "POLYGON", MultiPolygon},
	MultiPoint:         {"MultiPoint", "MULTIPOINT", GeometryCollection},
	MultiLineString:    {"MultiLineString", "MULTILINESTRING", GeometryCollection},
	MultiPolygon:       {"MultiPolygon", "MULTIPOLYGON", GeometryCollection},
	GeometryCollection: {"GeometryCollection", "GEOMETRYCOLLECTION", GeometryCollection},
	LinearRing:         {"LinearRing", "LINEARRING", MultiLineString},
}

// String returns the name that the contract uses.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// hasMembers reports whether a geometry of this kind consists of other geometries.
func (k Kind) hasMembers() bool { return k >= MultiPoint && k <= GeometryCollection }

// KindOf returns the kind of a geometry, Any for an unknown type.
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

// New returns the geometry of a kind other than Any and GeometryCollection that has these
// coordinates. Ends of its parts are indexes into flat: ends for a Polygon, MultiPoint and
// MultiLineString, endss for a MultiPolygon. The geometry keeps the slices.
func New(kind Kind, layout geom.Layout, flat []float64, ends []int, endss [][]int) geom.T {
	switch kind {
	case Point:
		return geom.NewPointFlat(layout, flat)
	case LineString:
		return geom.NewLineStringFlat(layout, flat)
	case LinearRing:
		return geom.NewLinearRingFlat(layout, flat)
	case Polygon:
		return geom.NewPolygonFlat(layout, flat, ends)
	case MultiPoint:
		return geom.NewMultiPointFlat(layout, flat, geom.NewMultiPointFlatOptionWithEnds(ends))
	case MultiLineString:
		return geom.NewMultiLineStringFlat(layout, flat, ends)
	case MultiPolygon:
		return geom.NewMultiPolygonFlat(layout, flat, endss)
	}
	panic(fmt.Sprintf("geo: a %s has no coordinates of its own", kind))
}

// collect returns a collection, which has the layout even if it is empty.
func collect(layout geom.Layout, members []geom.T) *geom.GeometryCollection {
	return geom.NewGeometryCollection().MustPush(members...).MustSetLayout(layout)
}

// ErrKind means that a geometry is well-formed, but not of the kind that is wanted.
var ErrKind = errors.New("geometry of another kind")

func kindError(got, want Kind) error {
	return fmt.Errorf("%w: got a %s, want a %s", ErrKind, got, want)
}

// as returns g as the kind that is wanted: g itself, a closed line as a ring, or a ring as a line.
func as(g geom.T, want Kind) (geom.T, error) {
	got := KindOf(g)
	switch {
	case want == Any || got == want:
		return g, nil
	case got == LineString && want == LinearRing:
		if err := checkRing(g.FlatCoords(), g.Stride()); err != nil {
			return nil, fmt.Errorf("%w: a LineString is a LinearRing only if it is closed: %w", ErrKind, err)
		}
	case got != LinearRing || want != LineString:
		return nil, kindError(got, want)
	}
	return geom.SetSRID(New(want, g.Layout(), g.FlatCoords(), nil, nil), g.SRID())
}

// sameDigits is the relative difference of two doubles that agree in fifteen digits, which is what
// many programs print.
const sameDigits = 1e-14

// Same reports whether two geometries are equal: their parts, and their coordinates in order, to
// fifteen digits. Kinds are equal as far as all encodings can tell: WKT and WKB do not distinguish
// rings from lines, KML does not distinguish the geometries that have members.
func Same(a, b geom.T) bool {
	kindA, kindB := KindOf(a), KindOf(b)
	switch line := kinds[LineString].multi; {
	case a.Layout() != b.Layout():
		return false
	case kindA.hasMembers() && kindB.hasMembers() && (kindA != kindB || kindA == GeometryCollection):
		return slices.EqualFunc(membersOf(a), membersOf(b), Same)
	case kindA != kindB && (kinds[kindA].multi != line || kinds[kindB].multi != line):
		return false
	}
	sameNumber := func(a, b float64) bool { return math.Abs(a-b) <= sameDigits*max(math.Abs(a), math.Abs(b)) }
	return slices.EqualFunc(a.FlatCoords(), b.FlatCoords(), sameNumber) &&
		slices.Equal(a.Ends(), b.Ends()) && slices.EqualFunc(a.Endss(), b.Endss(), slices.Equal[[]int])
}

// membersOf returns the members of a geometry that has members.
func membersOf(g geom.T) (members []geom.T) {
	switch g := g.(type) {
	case *geom.MultiPoint:
		for i := range g.NumPoints() {
			members = append(members, g.Point(i))
		}
	case *geom.MultiLineString:
		for i := range g.NumLineStrings() {
			members = append(members, g.LineString(i))
		}
	case *geom.MultiPolygon:
		for i := range g.NumPolygons() {
			members = append(members, g.Polygon(i))
		}
	case *geom.GeometryCollection:
		members = g.Geoms()
	}
	return members
}

// parts calls f with each part of the flat coordinates from start on.
func parts(flat []float64, start int, ends []int, f func(i int, part []float64)) {
	for i, end := range ends {
		f(i, flat[start:end])
		start = end
	}
}

// polygons calls f with the start of each polygon in the flat coordinates, and the ends of its rings.
func polygons(endss [][]int, f func(i, start int, ends []int)) {
	start := 0
	for i, ends := range endss {
		f(i, start, ends)
		if len(ends) > 0 {
			start = ends[len(ends)-1]
		}
	}
}
