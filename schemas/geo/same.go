package geo

import (
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// sameDigits is the relative difference of two doubles that are the same in
// fifteen digits, which is what many programs print.
const sameDigits = 1e-14

// Same tells whether two geometries are the same: the parts, and the coordinates
// in order, as far as fifteen digits tell. The kind is the same as far as all
// encodings can tell: WKT and WKB have no word for a ring, and KML has one for all
// geometries with members.
func Same(a, b geom.T) bool {
	switch {
	case a.Layout() != b.Layout():
		return false
	case KindOf(a) == KindOf(b):
		return sameKind(a, b)
	case hasMembers(KindOf(a)) && hasMembers(KindOf(b)):
		return slices.EqualFunc(membersOf(a), membersOf(b), Same)
	}
	return isLine(a) && isLine(b) && sameKind(a, b)
}

// sameKind compares two of one kind, or a line and a ring.
func sameKind(a, b geom.T) bool {
	if a, ok := a.(*geom.GeometryCollection); ok {
		return slices.EqualFunc(a.Geoms(), b.(*geom.GeometryCollection).Geoms(), Same)
	}
	return slices.EqualFunc(a.FlatCoords(), b.FlatCoords(), sameNumber) &&
		slices.Equal(a.Ends(), b.Ends()) &&
		slices.EqualFunc(a.Endss(), b.Endss(), slices.Equal[[]int])
}

func isLine(g geom.T) bool { return multiOf(KindOf(g)) == MultiLineString }

// membersOf gives the members of a geometry that has some.
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

func sameNumber(a, b float64) bool {
	return math.Abs(a-b) <= sameDigits*max(math.Abs(a), math.Abs(b))
}
