package geo_test

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

var orders = []interface {
	binary.ByteOrder
	binary.AppendByteOrder
}{binary.LittleEndian, binary.BigEndian}

// othersWKB returns the geometries of canonical, in the same order, as the library
// github.com/twpayne/go-geom 1.6.1 writes them: as ISO WKB in both orders, and as EWKB with SRID
// 25832 in both orders, all in hexadecimal.
func othersWKB(t *testing.T) (list [][]string) {
	text, err := os.ReadFile("testdata/canonical.tsv")
	require.NoError(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		fields := strings.Split(line, "\t")
		require.Equal(t, canonical[i], fields[0])
		list = append(list, fields[1:])
	}
	require.Len(t, list, len(canonical))
	return list
}

// TestWKBCanonical compares the output with another library's in both byte orders, and reads it
// back.
func TestWKBCanonical(t *testing.T) {
	for n, want := range othersWKB(t) {
		text := canonical[n]
		g := parsed(t, text)
		for i, order := range orders {
			data := geo.AppendWKB(nil, g, order)
			require.Equal(t, want[i], hex.EncodeToString(data), text)

			back, err := limits.ParseWKB(data, geo.Any)
			require.NoError(t, err, text)
			require.Equal(t, text, string(geo.AppendWKT(nil, back)))
			require.Zero(t, back.SRID)
		}
	}
}

// TestWKBExtended checks that the flags of PostGIS have the same meaning as the ISO type codes, and
// that the SRID is kept.
func TestWKBExtended(t *testing.T) {
	for n, want := range othersWKB(t) {
		for i := range orders {
			back, err := limits.ParseWKB(wkbOf(t, want[len(orders)+i]), geo.Any)
			require.NoError(t, err, canonical[n])
			require.Equal(t, canonical[n], string(geo.AppendWKT(nil, back)))
			require.EqualValues(t, 25832, back.SRID)
		}
	}
}

func wkbOf(t testing.TB, digits string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	require.NoError(t, err)
	return data
}

const (
	one   = "000000000000f03f"
	two   = "0000000000000040"
	three = "0000000000000840"
	nan   = "000000000000f87f"
)

func TestWKBForms(t *testing.T) {
	f := func(digits, want string, srid int) {
		t.Helper()
		g, err := limits.ParseWKB(wkbOf(t, digits), geo.Any)
		require.NoError(t, err)
		require.Equal(t, want, string(geo.AppendWKT(nil, g)))
		require.EqualValues(t, srid, g.SRID)
	}
	f("01 01000000"+one+two, "POINT (1 2)", 0)
	f("00 00000001 3ff0000000000000 4000000000000000", "POINT (1 2)", 0)
	f("01 e9030000"+one+two+three, "POINT Z (1 2 3)", 0)
	f("01 01000080"+one+two+three, "POINT Z (1 2 3)", 0)
	f("01 e9030080"+one+two+three, "POINT Z (1 2 3)", 0)
	f("01 01000020 e6100000"+one+two, "POINT (1 2)", 4326)
	f("01 010000a0 e6100000"+one+two+three, "POINT Z (1 2 3)", 4326)
	f("01 01000000"+nan+nan, "POINT EMPTY", 0)
	f("01 e9030000"+nan+nan+nan, "POINT Z EMPTY", 0)
	f("01 04000000 02000000  00 00000001 3ff0000000000000 4000000000000000  01 01000000"+two+one, "MULTIPOINT ((1 2), (2 1))", 0)
	for _, id := range []string{"e6100000", "00000000"} { // some writers repeat the SRID, or write 0
		f("01 07000020 e6100000 01000000  01 01000020 "+id+one+two, "GEOMETRYCOLLECTION (POINT (1 2))", 4326)
		f("01 07000020 "+id+" 01000000  01 01000020 e6100000"+one+two, "GEOMETRYCOLLECTION (POINT (1 2))", 4326)
	}
	f("01 04000000 01000000  01 01000020 e6100000"+one+two, "MULTIPOINT ((1 2))", 4326)

	// GEOS writes members without points as XY, whatever the layout of the collection.
	const point, line = "01 01000080" + one + two + three, "01 02000000 00000000"
	f("01 07000080 02000000"+point+line, "GEOMETRYCOLLECTION Z (POINT Z (1 2 3), LINESTRING Z EMPTY)", 0)
	f("01 07000080 02000000"+line+point, "GEOMETRYCOLLECTION Z (LINESTRING Z EMPTY, POINT Z (1 2 3))", 0)
	f("01 07000080 02000000 01 01000000"+nan+nan+point, "GEOMETRYCOLLECTION Z (POINT Z EMPTY, POINT Z (1 2 3))", 0)
	f("01 07000080 02000000 01 03000000 01000000 00000000"+point, "GEOMETRYCOLLECTION Z (POLYGON Z (EMPTY), POINT Z (1 2 3))", 0)
}

func TestWKBInvalid(t *testing.T) {
	f := func(digits, want string) {
		t.Helper()
		g, err := limits.ParseWKB(wkbOf(t, digits), geo.Any)
		require.ErrorContains(t, err, want, digits)
		require.Nil(t, g)
	}
	const point = "01 01000000" + one + two
	const zero = "0000000000000000"
	f("01 03000000 02000000 00000000 04000000"+zero+zero+one+zero+one+one+zero+zero, "the first ring of a polygon, its boundary, is empty")
	f("", "byte 0: unexpected end of data: 0 bytes left, need 5")
	f("01 010000", "byte 0: unexpected end of data: 4 bytes left, need 5")
	f("02 01000000", "byte 0: byte order 2, must be 0")
	f("01 00000000", "byte 0: unknown geometry type code 0x0")
	f("01 08000000", "unknown geometry type code 0x8")
	f("01 11000000", "unknown geometry type code 0x11")
	f("01 a10f0000", "unknown geometry type code 0xfa1")
	f("01 01010000", "unknown geometry type code 0x101")
	f("01 d1070000", "type code 0x7d1: measures (M) are not supported")
	f("01 b90b0000", "type code 0xbb9: measures (M) are not supported")
	f("01 01000040", "type code 0x40000001: measures (M)")
	f("01 01000000"+one, "byte 5: unexpected end of data: 8 bytes left, need 16")
	f("01 01000020 e610", "byte 5: unexpected end of data: 2 bytes left, need 4")
	f(point+"00", "byte 21: unexpected data after the geometry")
	f("01 07000020 e6100000 01000000  01 01000020 e7100000"+one+two, "byte 18: SRID 4327 of a member contradicts the SRID 4326")
	f("01 01000000"+one+nan, "byte 13: coordinate NaN is not a finite number")
	f("01 01000000"+nan+one, "byte 5: coordinate NaN")
	f("01 01000000"+one+"000000000000f07f", "byte 13: coordinate +Inf")
	f("01 02000000", "byte 5: unexpected end of data: 0 bytes left, need 4")
	f("01 02000000 01000000"+one+two, "byte 25: a line must have no points or at least 2, got 1")
	f("01 02000000 ffffffff", "byte 5: 4294967295 points of at least 16 bytes each declared, but only 0 bytes left")
	f("01 03000000 ffffffff", "byte 5: 4294967295 rings of at least 4 bytes each")
	f("01 04000000 ffffffff", "byte 5: 4294967295 members of at least 9 bytes each")
	f("01 06000000 ffffffff", "byte 5: 4294967295 polygons of at least 9 bytes each")
	f("01 07000000 ffffffff", "byte 5: 4294967295 members of at least 9 bytes each")
	f("01 03000000 01000000 ffffff7f", "byte 9: 2147483647 points")
	f("01 03000000 01000000 02000000"+one+two+one+two, "byte 45: a ring must have no points or at least 4, got 2")
	f("01 04000000 01000000 01 02000000 00000000", "byte 9: member is a LineString, must be a Point")
	f("01 07000080 01000000 01 01000000"+one+two, "byte 14: some points have a z coordinate and others do not")
	f("01 07000000 01000000 01 e9030000"+one+two+three, "byte 14: some points have a z coordinate and others do not")
	f("01 07000000 01000000 01 04000000 ffffffff", "byte 14: 4294967295 members")
}

func TestWKBKind(t *testing.T) {
	ring := geo.AppendWKB(nil, parsed(t, "LINESTRING (0 0, 1 0, 1 1, 0 0)"), binary.LittleEndian)
	g, err := limits.ParseWKB(ring, geo.LinearRing)
	require.NoError(t, err)
	require.Equal(t, geo.LinearRing, g.Kind)
	require.Equal(t, ring, geo.AppendWKB(nil, g, binary.LittleEndian))
	_, err = limits.ParseWKB(ring, geo.Polygon)
	require.ErrorIs(t, err, geo.ErrKind)
}

func TestWKBTruncated(t *testing.T) {
	for _, text := range canonical {
		data := geo.AppendWKB(nil, parsed(t, text), binary.LittleEndian)
		for n := range data {
			_, err := limits.ParseWKB(data[:n], geo.Any)
			require.Error(t, err)
		}
	}
}
