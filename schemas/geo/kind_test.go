package geo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

func TestSame(t *testing.T) {
	f := func(want bool, a, b string) {
		t.Helper()
		first, err := geo.DefaultLimits().ParseWKT(a, geo.Any)
		require.NoError(t, err)
		second, err := geo.DefaultLimits().ParseWKT(b, geo.Any)
		require.NoError(t, err)
		require.Equal(t, want, geo.Same(first, second))
		require.Equal(t, want, geo.Same(second, first))
	}
	f(true, "POINT(1 2)", "POINT(1.000000000000000001 2)")
	f(false, "POINT(1 2)", "POINT(1.0000000000001 2)")
	f(false, "POINT(1 2)", "POINT EMPTY")
	f(false, "POINT(1 2)", "POINT(1 2 0)")
	f(false, "POINT(1 2)", "MULTIPOINT(1 2)")
	f(true, "LINESTRING(0 0,1 0,1 1,0 0)", "LINEARRING(0 0,1 0,1 1,0 0)")
	f(false, "LINESTRING(0 0,1 0,1 2,0 0)", "LINEARRING(0 0,1 0,1 1,0 0)")
	f(false, "POLYGON((0 0,1 0,1 1,0 0))", "LINEARRING(0 0,1 0,1 1,0 0)")
	f(true, "MULTIPOINT(1 2,EMPTY)", "MULTIPOINT(1 2,EMPTY)")
	f(false, "MULTIPOINT(1 2,EMPTY)", "MULTIPOINT(EMPTY,1 2)")
	f(true, "MULTIPOINT(1 2,3 4)", "GEOMETRYCOLLECTION(POINT(1 2),POINT(3 4))")
	f(false, "MULTIPOINT(1 2,3 4)", "GEOMETRYCOLLECTION(POINT(1 2))")
	f(false, "MULTIPOINT(1 2)", "GEOMETRYCOLLECTION(LINESTRING EMPTY)")
	f(true, "MULTIPOINT EMPTY", "GEOMETRYCOLLECTION EMPTY")
	f(true, "MULTILINESTRING EMPTY", "MULTIPOLYGON EMPTY")
	f(true, "MULTILINESTRING((0 0,1 0,1 1,0 0))", "GEOMETRYCOLLECTION(LINEARRING(0 0,1 0,1 1,0 0))")
	f(true, "MULTIPOLYGON(((0 0,1 0,1 1,0 0)),EMPTY)", "GEOMETRYCOLLECTION(POLYGON((0 0,1 0,1 1,0 0)),POLYGON EMPTY)")
	f(true, "GEOMETRYCOLLECTION(POINT(5 5),MULTIPOINT(1 2))", "GEOMETRYCOLLECTION(POINT(5 5),GEOMETRYCOLLECTION(POINT(1 2)))")
	f(false, "GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT(1 2)))", "GEOMETRYCOLLECTION(POINT(1 2))")
}
