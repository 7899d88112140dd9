package geo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// TestMeasuresAreDropped checks that geometries with an M of any value are read as if they had
// none.
func TestMeasuresAreDropped(t *testing.T) {
	dropping := limits
	dropping.DropMeasures = true
	f := func(text, want string) {
		t.Helper()
		g, err := dropping.ParseWKT(text, geo.Any)
		require.NoError(t, err, text)
		require.Equal(t, want, string(geo.AppendWKT(nil, g)), text)
	}
	f("POINT M (1 2 3)", "POINT (1 2)")
	f("pointm(1 2 3)", "POINT (1 2)")
	f("POINT ZM (1 2 3 4)", "POINT Z (1 2 3)")
	f("POINT (1 2 3 4)", "POINT Z (1 2 3)")
	f("POINT (1 2 3)", "POINT Z (1 2 3)")
	f("POINT M (1 2 NaN)", "POINT (1 2)")
	f("LINESTRING ZM (1 2 3 4, 4 5 6 nan)", "LINESTRING Z (1 2 3, 4 5 6)")
	f("POINT M EMPTY", "POINT EMPTY")
	f("POINT ZM EMPTY", "POINT Z EMPTY")
	f("LINESTRING M (1 2 3, 4 5 6)", "LINESTRING (1 2, 4 5)")
	f("MULTIPOINT ZM (1 2 3 4, 5 6 7 8)", "MULTIPOINT Z ((1 2 3), (5 6 7))")
	f("GEOMETRYCOLLECTION M (POINT M EMPTY, LINESTRING M (1 2 0, 3 4 1))", "GEOMETRYCOLLECTION (POINT EMPTY, LINESTRING (1 2, 3 4))")
	for _, text := range canonical {
		f(text, text)
	}

	invalid := func(text, want string) {
		t.Helper()
		_, err := dropping.ParseWKT(text, geo.Any)
		require.ErrorContains(t, err, want, text)
	}
	invalid("POINT M (1 NaN 2)", "expected a number; points have 3")
	invalid("POINT M (1 2 x)", `"x" is not a number`)
	invalid("POINT M (1 2)", "expected a number; points have 3")
	invalid("POINT M (1 2 3 4)", "M, but the first point has 4 numbers")
	invalid("POINT Z (1 2 3 4)", "Z, but the first point has 4 numbers")
	invalid("POINT ZM (1 2 3)", "first point has")
	invalid("GEOMETRYCOLLECTION (POINT (1 2), POINT M (1 2 3))", "M, but the first point has 2 numbers")

	g := func(digits, want string) {
		t.Helper()
		g, err := dropping.ParseWKB(wkbOf(t, digits), geo.Any)
		require.NoError(t, err)
		require.Equal(t, want, string(geo.AppendWKT(nil, g)))
	}
	g("01 d1070000"+one+two+nan, "POINT (1 2)")
	g("01 b90b0000"+one+two+three+nan, "POINT Z (1 2 3)")
	g("01 01000040"+one+two+three, "POINT (1 2)")
	g("01 010000c0"+one+two+three+one, "POINT Z (1 2 3)")
	g("01 d1070000"+nan+nan+one, "POINT EMPTY")
	g("01 d2070000 02000000"+one+two+three+two+one+three, "LINESTRING (1 2, 2 1)")
	_, err := dropping.ParseWKB(wkbOf(t, "01 d4070000 01000000 01 01000000"+one+two), geo.Any)
	require.Error(t, err, "members without M")
}
