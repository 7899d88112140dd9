package geo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

var limits = geo.DefaultLimits()

// canonical contains geometries of each kind in the form in which this package writes them.
var canonical = []string{
	"POINT (1 2)",
	"POINT Z (1 2 3)",
	"POINT EMPTY",
	"POINT Z EMPTY",
	"LINESTRING (1 2, 3 4)",
	"LINESTRING Z (1 2 3, 4 5 6)",
	"LINESTRING EMPTY",
	"POLYGON ((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))",
	"POLYGON Z ((0 0 1, 4 0 1, 4 4 1, 0 0 1))",
	"POLYGON EMPTY",
	"MULTIPOINT ((1 2), (3 4))",
	"MULTIPOINT Z ((1 2 3), EMPTY, (3 4 5))",
	"MULTIPOINT EMPTY",
	"MULTILINESTRING ((1 2, 3 4), EMPTY, (5 6, 7 8, 9 10))",
	"MULTILINESTRING Z EMPTY",
	"MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1)), EMPTY, ((9 9, 10 9, 10 10, 9 9)))",
	"MULTIPOLYGON EMPTY",
	"GEOMETRYCOLLECTION (POINT (1 2), LINESTRING EMPTY, GEOMETRYCOLLECTION (MULTIPOINT ((3 4))))",
	"GEOMETRYCOLLECTION Z (POINT Z EMPTY, LINESTRING Z (1 2 3, 4 5 6), GEOMETRYCOLLECTION Z EMPTY)",
	"GEOMETRYCOLLECTION EMPTY",
	"POINT (-0 0.000001)",
	"POINT (1e-7 -1.7976931348623157e+308)",
	"POINT (123456789012345680000 5e-324)",
}

// TestWKTCanonical reads texts and writes them again. TestWKBCanonical compares the geometries with
// another library's.
func TestWKTCanonical(t *testing.T) {
	for _, text := range canonical {
		g, err := limits.ParseWKT(text, geo.Any)
		require.NoError(t, err, text)
		require.Equal(t, text, string(geo.AppendWKT(nil, g)))
		require.NoError(t, check(limits, g), text)
	}
}

func parsed(t testing.TB, text string) *geo.Geometry {
	t.Helper()
	g, err := limits.ParseWKT(text, geo.Any)
	require.NoError(t, err, text)
	return g
}

func TestWKTSpellings(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.Equal(t, want, string(geo.AppendWKT(nil, parsed(t, text))), text)
	}
	f("point(1 2)", "POINT (1 2)")
	f(" \t\r\n Point \n(\t1\n2 ) ", "POINT (1 2)")
	f("POINT(1 2 3)", "POINT Z (1 2 3)")
	f("POINTZ(1 2 3)", "POINT Z (1 2 3)")
	f("point z(1 2 3)", "POINT Z (1 2 3)")
	f("POINT(+1.50 -.5e+01)", "POINT (1.5 -5)")
	f("POINT(1E3 2.e-2)", "POINT (1000 0.02)")
	f("MULTIPOINT(1 2,3 4)", "MULTIPOINT ((1 2), (3 4))")
	f("MULTIPOINT(1 2,3 4,EMPTY)", "MULTIPOINT ((1 2), (3 4), EMPTY)")
	f("linearring(0 0,1 0,1 1,0 0)", "LINESTRING (0 0, 1 0, 1 1, 0 0)")
	f("LINEARRING EMPTY", "LINESTRING EMPTY")
	f("PolygonZ empty", "POLYGON Z EMPTY")
	f("POLYGON((0 0,1 0,1 1,0 0),EMPTY)", "POLYGON ((0 0, 1 0, 1 1, 0 0), EMPTY)")
	f("MULTIPOLYGON(EMPTY,((0 0,1 0,1 1,0 0)))", "MULTIPOLYGON (EMPTY, ((0 0, 1 0, 1 1, 0 0)))")
	f("GEOMETRYCOLLECTION(POINT EMPTY,POINT(1 2 3))", "GEOMETRYCOLLECTION Z (POINT Z EMPTY, POINT Z (1 2 3))")
}

func TestWKTInvalid(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		g, err := limits.ParseWKT(text, geo.Any)
		require.ErrorContains(t, err, want, text)
		require.Nil(t, g)
	}
	f("", "byte 0: unexpected end of the text, expected the name of a geometry")
	f("CIRCLE (1 2)", `byte 0: unexpected "CIRCLE (1 2)", expected the name`)
	f("POINTS (1 2)", `byte 0: unexpected "POINTS (1 2)", expected the name`)
	f("POINT", "byte 5: unexpected end of the text, expected ( or EMPTY")
	f("POINT 1 2", `byte 6: unexpected "1 2", expected ( or EMPTY`)
	f("POINT (1)", `byte 8: unexpected ")", expected a number; points have 2`)
	f("POINT (1 2", "byte 10: unexpected end of the text, expected )")
	f("POINT (1,2)", `byte 8: unexpected ",2)", expected a number`)
	f("POINT (1 2 3 4)", `byte 13: unexpected "4)", but points have 3 numbers`)
	f("POINT (1 2) x", `byte 12: unexpected "x" after the geometry`)
	f("POINT (1 2)POINT (1 2)", `byte 11: unexpected "POINT (1 2)" after`)
	f("POINT (1 NaN)", `byte 9: unexpected "NaN)", expected a number`)
	f("POINT (1 1e999)", `byte 9: "1e999" is not a number within the range`)
	f("POINT (1 1-2)", `byte 9: "1-2" is not a number`)
	f("POINT (1 0x10)", `byte 10: unexpected "x10)", expected )`)
	f("POINT (1 1_0)", `byte 10: unexpected "_0)", expected )`)
	f("POINT M (1 2 3)", "byte 7: M: measures (M) are not supported")
	f("POINTZM (1 2 3 4)", "byte 8: ZM: measures (M) are not supported")
	f("POINT Z (1 2)", "byte 7: Z, but the first point has no z")
	f("LINESTRING (1 2, 3 4 5)", `byte 21: unexpected "5)", but points have 2 numbers`)
	f("LINESTRING (1 2 3, 4 5)", `byte 22: unexpected ")", expected a number; points have 3`)
	f("LINESTRING (1 2)", "byte 16: a line must have no points or at least 2, got 1")
	f("LINESTRING (1 2,)", `byte 16: unexpected ")", expected a number`)
	f("LINESTRING ()", `byte 12: unexpected ")", expected a number`)
	f("POLYGON ((0 0, 1 0, 1 1))", "byte 24: a ring must have no points or at least 4, got 3")
	f("POLYGON ((0 0, 1 0, 1 1, 0 1))", "byte 29: ring is not closed: starts at (0 0) and ends at (0 1)")
	f("POLYGON (0 0, 1 0, 1 1, 0 0)", `byte 9: unexpected "0 0, 1 0, 1 1, 0 0)", expected ( or EMPTY`)
	f("POLYGON (EMPTY, (0 0, 1 0, 1 1, 0 0))", "the first ring of a polygon, its boundary, is empty, but another ring is not")
	f("MULTIPOLYGON (EMPTY, (EMPTY, EMPTY, (0 0, 1 0, 1 1, 0 0)))", "the first ring of a polygon, its boundary, is empty")
	f("GEOMETRYCOLLECTION (POINT (1 2), 3 4)", `byte 33: unexpected "3 4)", expected the name`)
	f("GEOMETRYCOLLECTION (POINT (1 2), POINT Z (1 2 3))", "byte 40: Z, but the first point has no z")
	f("MULTIPOINT (1 2, (3 4))", "byte 17: a MULTIPOINT must have parentheses around all of its points or around none")
	f("MULTIPOINT ((1 2), EMPTY, 3 4)", "byte 26: a MULTIPOINT must have parentheses around all of its points or around none")
	f("SRID=4326;POINT (1 2)", "byte 0: SRID=…; is an extension of PostGIS (EWKT)")
	f("POINT (1 \x00)", `byte 9: unexpected "\x00)", expected a number`)
	f("PÖINT (1 2)", `byte 0: unexpected "PÖINT (1 2)", expected the name`)
	f("POINT\u00a0(1 2)", "byte 5:")
}

func TestWKTTruncated(t *testing.T) {
	for _, text := range canonical {
		end := len(text) - 1
		for n := range end {
			_, err := limits.ParseWKT(text[:n], geo.Any)
			require.Error(t, err, text[:n])
		}
	}
}

func TestWKTKinds(t *testing.T) {
	const ring, open = "LINESTRING (0 0, 1 0, 1 1, 0 0)", "LINESTRING (0 0, 1 0, 1 1, 0 1)"
	f := func(text string, want geo.Kind, wantError string) {
		t.Helper()
		g, err := limits.ParseWKT(text, want)
		if wantError == "" {
			require.NoError(t, err)
			require.Equal(t, want, g.Kind)
			return
		}
		require.ErrorIs(t, err, geo.ErrKind)
		require.ErrorContains(t, err, wantError)
		require.Nil(t, g)
	}
	f("POINT (1 2)", geo.Point, "")
	f("POINT (1 2)", geo.LineString, "got a Point, expected a LineString")
	f(ring, geo.LineString, "")
	f(ring, geo.LinearRing, "")
	f("LINEARRING (0 0, 1 0, 1 1, 0 0)", geo.LinearRing, "")
	f("LINEARRING (0 0, 1 0, 1 1, 0 0)", geo.LineString, "")
	f("LINESTRING EMPTY", geo.LinearRing, "")
	f(open, geo.LinearRing, "a LineString is a LinearRing only if it is closed: ring is not closed")
	f("LINESTRING (0 0, 1 0, 0 0)", geo.LinearRing, "a ring must have no points or at least 4, got 3")
	f("POLYGON ((0 0, 1 0, 1 1, 0 0))", geo.LinearRing, "got a Polygon, expected a LinearRing")
	f("MULTIPOINT ((1 2))", geo.GeometryCollection, "got a MultiPoint, expected a GeometryCollection")
}
