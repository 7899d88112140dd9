package geo

import (
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// sameDigits is the relative difference of two doubles that are the same in
// fifteen digits, which is what many programs print.
const sameDigits = 1e-14

// Same tells whether two geometries are the same: the kind, the parts, and the
// coordinates in order, as far as fifteen digits tell.
func Same(a, b geom.T) bool {
	if KindOf(a) != KindOf(b) || a.Layout() != b.Layout() {
		return false
	}
	if a, ok := a.(*geom.GeometryCollection); ok {
		return slices.EqualFunc(a.Geoms(), b.(*geom.GeometryCollection).Geoms(), Same)
	}
	return slices.EqualFunc(a.FlatCoords(), b.FlatCoords(), sameNumber) &&
		slices.Equal(a.Ends(), b.Ends()) &&
		slices.EqualFunc(a.Endss(), b.Endss(), slices.Equal[[]int])
}

func sameNumber(a, b float64) bool {
	return math.Abs(a-b) <= sameDigits*max(math.Abs(a), math.Abs(b))
}
