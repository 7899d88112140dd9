package geo_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// TestTooLarge reads each geometry as WKT and as WKB. The errors contain different byte offsets.
func TestTooLarge(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		small := geo.Limits{Points: 4, Depth: 2}
		_, asWKT := small.ParseWKT(text, geo.Any)
		_, asWKB := small.ParseWKB(geo.AppendWKB(nil, parsed(t, text), binary.BigEndian), geo.Any)
		if want == nil {
			require.NoError(t, asWKT)
			require.NoError(t, asWKB)
			return
		}
		for i, err := range []error{asWKT, asWKB} {
			require.ErrorIs(t, err, geo.ErrTooLarge)
			require.ErrorContains(t, err, want[i%len(want)])
		}
	}
	f("LINESTRING (1 2, 3 4, 5 6)")
	f("LINESTRING (1 2, 3 4, 5 6, 7 8)", "byte 26: geometry is too large: more than 4 points and parts", "byte 9: geometry is too large: more than 4 points and parts")
	f(withEmptyParts("MULTIPOINT", 3))
	f(withEmptyParts("MULTIPOINT", 4), "more than 4")
	f(withEmptyParts("MULTIPOLYGON", 4), "more than 4")
	f(withEmptyParts("POLYGON", 4), "more than 4")
	f("GEOMETRYCOLLECTION (GEOMETRYCOLLECTION EMPTY, GEOMETRYCOLLECTION EMPTY)")
	f("GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (GEOMETRYCOLLECTION EMPTY))", "deeper than 2")
}

// withEmptyParts returns a geometry with n empty parts.
func withEmptyParts(kind string, n int) string {
	return kind + " (EMPTY" + strings.Repeat(", EMPTY", n-1) + ")"
}

// TestTooDeep reads very deeply nested collections.
func TestTooDeep(t *testing.T) {
	const deep = 1_000_000
	_, asWKT := limits.ParseWKT(strings.Repeat("GEOMETRYCOLLECTION (", deep), geo.Any)
	_, asWKB := limits.ParseWKB([]byte(strings.Repeat("\x00\x00\x00\x00\x07\x00\x00\x00\x01", deep)), geo.Any)
	for _, err := range []error{asWKT, asWKB} {
		require.ErrorIs(t, err, geo.ErrTooLarge)
		require.ErrorContains(t, err, "deeper than 32")
	}
}
