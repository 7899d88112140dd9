package xroute_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// TestPlainRoundTrip checks that a geometry can be converted to plain elements and back, and that
// the element has the kind of the geometry.
func TestPlainRoundTrip(t *testing.T) {
	f := func(text string, kind geo.Kind) {
		t.Helper()
		g, err := geo.DefaultLimits().ParseWKT(text, kind)
		require.NoError(t, err)
		require.False(t, xroute.HasEmptyPoint(g))
		e := xroute.NewElement(kind, xroute.ToPlain(g))
		require.Equal(t, kind, xroute.KindOf(e))
		back, err := xroute.FromPlain(xroute.PlainOf(e), geo.DefaultLimits())
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

func TestInvalidPlain(t *testing.T) {
	z := 1.0
	f := func(p xroute.PlainGeometry, want string) error {
		t.Helper()
		g, err := xroute.FromPlain(p, geo.DefaultLimits())
		require.ErrorContains(t, err, want)
		require.Nil(t, g)
		return err
	}
	f(&xroute.PlainGeometryBase{}, "invalid geometry: a PlainGeometryBase has no coordinates")
	f(&xroute.PlainGeometryCollection{Geometries: []xroute.PlainGeometry{&xroute.PlainPoint{}, &xroute.PlainGeometryBase{}}}, "member 1: invalid geometry")
	f(&xroute.PlainLineString{Points: []xroute.PlainPoint{{}, {Z: &z}}}, "some points have a z coordinate and others do not")
	f(&xroute.PlainPolygon{LinearRings: []xroute.PlainLinearRing{{}, {Points: []xroute.PlainPoint{{Z: &z}, {}}}}}, "some points have a z")
	f(&xroute.PlainMultiLineString{LineStrings: []xroute.PlainLineString{{Points: []xroute.PlainPoint{{}, {}}}, {Points: []xroute.PlainPoint{{Z: &z}}}}}, "some points have a z")
	f(&xroute.PlainMultiPolygon{Polygons: []xroute.PlainPolygon{{LinearRings: []xroute.PlainLinearRing{{Points: []xroute.PlainPoint{{}, {Z: &z}}}}}}}, "some points have a z")
	f(&xroute.PlainGeometryCollection{Geometries: []xroute.PlainGeometry{&xroute.PlainPoint{}, &xroute.PlainPoint{Z: &z}}}, "some points have a z")

	line, ring := []xroute.PlainPoint{{X: 1}}, []xroute.PlainPoint{{}, {X: 1}, {X: 1, Y: 1}, {}}
	f(&xroute.PlainLineString{Points: line}, "a line must have no points or at least 2, got 1")
	f(&xroute.PlainLinearRing{Points: append(ring[:3:3], line...)}, "ring is not closed")
	f(&xroute.PlainPolygon{LinearRings: []xroute.PlainLinearRing{{Points: ring}, {Points: line}}}, "ring 1: a ring must have no points or at least 4, got 1")
	f(&xroute.PlainMultiLineString{LineStrings: []xroute.PlainLineString{{Points: ring}, {Points: line}}}, "line 1: a line must have no points or at least 2, got 1")
	f(&xroute.PlainMultiPolygon{Polygons: []xroute.PlainPolygon{{LinearRings: []xroute.PlainLinearRing{{Points: ring}}}, {LinearRings: []xroute.PlainLinearRing{{Points: line}}}}},
		"polygon 1: ring 0: a ring must have no points or at least 4, got 1")
	err := f(&xroute.PlainLineString{Points: []xroute.PlainPoint{{}, {X: math.Inf(1)}}}, "point 1: coordinate +Inf is not a finite number")
	require.ErrorIs(t, err, geo.ErrNotFinite)
	err = f(&xroute.PlainPoint{Z: new(math.NaN())}, "point 0: coordinate NaN is not a finite number")
	require.ErrorIs(t, err, geo.ErrNotFinite)
	deep := &xroute.PlainGeometryCollection{}
	for range 40 {
		deep = &xroute.PlainGeometryCollection{Geometries: []xroute.PlainGeometry{deep}}
	}
	require.ErrorIs(t, f(deep, "deeper than 32"), geo.ErrTooLarge)
	text := 0 // the text of the error and its causes
	for err := f(deep, strings.Repeat("member 0: ", 32)); err != nil; err = errors.Unwrap(err) {
		text += len(err.Error())
	}
	require.Less(t, text, 600, "the causes must not repeat the places")
	_, err = xroute.FromPlain(&xroute.PlainLineString{Points: ring}, geo.Limits{Points: 4, Depth: 1})
	require.ErrorIs(t, err, geo.ErrTooLarge)
}

func TestHasEmptyPoint(t *testing.T) {
	f := func(want bool, g *geo.Geometry) {
		t.Helper()
		require.Equal(t, want, xroute.HasEmptyPoint(g))
	}
	collection := func(member *geo.Geometry) *geo.Geometry {
		return &geo.Geometry{Kind: geo.GeometryCollection, Layout: geo.XY, Members: []*geo.Geometry{member}}
	}
	empty := &geo.Geometry{Kind: geo.Point, Layout: geo.XY}
	f(true, empty)
	f(false, &geo.Geometry{Kind: geo.Point, Layout: geo.XY, Flat: []float64{0, 0}})
	f(false, &geo.Geometry{Kind: geo.LineString, Layout: geo.XY})
	f(true, collection(collection(empty)))
}
