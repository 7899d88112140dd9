package xroute_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// TestPlainThereAndBack: a geometry is the same after it was plain elements, and its
// element says its kind.
func TestPlainThereAndBack(t *testing.T) {
	f := func(text string, kind geo.Kind) {
		t.Helper()
		g, err := geo.DefaultLimits().ParseWKT(text, kind)
		require.NoError(t, err)
		require.False(t, xroute.HasEmptyPoint(g))
		e := xroute.NewElement(kind, xroute.ToPlain(g))
		require.Equal(t, kind, xroute.KindOf(e))
		back, err := xroute.FromPlain(xroute.PlainOf(e))
		require.NoError(t, err)
		require.Equal(t, g, back)
		require.Nil(t, xroute.PlainOf(xroute.NewElement(kind, nil)))
	}
	for _, z := range []struct{ name, a, b, c string }{{"", "8 48", "9 48.5", "9 49"}, {" Z", "8 48 1", "9 48.5 -2", "9 49 3.5"}} {
		ring := "(" + z.a + ", " + z.b + ", " + z.c + ", " + z.a + ")"
		line := "(" + z.a + ", " + z.b + ")"
		f("POINT"+z.name+" ("+z.a+")", geo.Point)
		f("LINESTRING"+z.name+" "+line, geo.LineString)
		f("LINESTRING"+z.name+" "+ring, geo.LinearRing)
		f("POLYGON"+z.name+" ("+ring+", "+ring+")", geo.Polygon)
		f("MULTIPOINT"+z.name+" (("+z.a+"), ("+z.b+"))", geo.MultiPoint)
		f("MULTILINESTRING"+z.name+" ("+line+", "+ring+")", geo.MultiLineString)
		f("MULTIPOLYGON"+z.name+" (("+ring+"), ("+ring+", "+ring+"))", geo.MultiPolygon)
		f("GEOMETRYCOLLECTION"+z.name+" (POINT"+z.name+" ("+z.a+"), LINESTRING"+z.name+" "+line+")", geo.GeometryCollection)
	}
	require.Nil(t, xroute.NewElement(geo.Any, nil))
	require.Equal(t, geo.Any, xroute.KindOf(nil))
}

func TestPlainThatIsNoGeometry(t *testing.T) {
	z := 1.0
	f := func(p xroute.PlainGeometry, want string) {
		t.Helper()
		_, err := xroute.FromPlain(p)
		require.ErrorContains(t, err, want)
	}
	f(&xroute.PlainGeometryBase{}, "invalid geometry: a PlainGeometryBase has no coordinates")
	f(&xroute.PlainGeometryCollection{Geometries: []xroute.PlainGeometry{&xroute.PlainPoint{}, &xroute.PlainGeometryBase{}}}, "member 1: invalid geometry")
	f(&xroute.PlainLineString{Points: []xroute.PlainPoint{{}, {Z: &z}}}, "some points have a z and others have none")
	f(&xroute.PlainPolygon{LinearRings: []xroute.PlainLinearRing{{}, {Points: []xroute.PlainPoint{{Z: &z}, {}}}}}, "some points have a z")
	f(&xroute.PlainMultiLineString{LineStrings: []xroute.PlainLineString{{Points: []xroute.PlainPoint{{}}}, {Points: []xroute.PlainPoint{{Z: &z}}}}}, "some points have a z")
	f(&xroute.PlainMultiPolygon{Polygons: []xroute.PlainPolygon{{LinearRings: []xroute.PlainLinearRing{{Points: []xroute.PlainPoint{{}, {Z: &z}}}}}}}, "some points have a z")
}

func TestEmptyPointsHaveNoPlainForm(t *testing.T) {
	f := func(want bool, g geom.T) {
		t.Helper()
		require.Equal(t, want, xroute.HasEmptyPoint(g))
	}
	f(true, geom.NewPointEmpty(geom.XY))
	f(false, geom.NewPointFlat(geom.XY, []float64{0, 0}))
	f(false, geom.NewLineString(geom.XY))
	f(true, geom.NewGeometryCollection().MustPush(geom.NewGeometryCollection().MustPush(geom.NewPointEmpty(geom.XY))))
}
