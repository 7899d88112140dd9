package openlr_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/openlr"
)

// Codes with known contents. Many decoders use the second code in their tests. The points of the
// third code are less than one distance interval apart.
const (
	twoPoints   = "CwNhbCU+jzPLAwD0/34zGw=="
	threePoints = "CwRbWyNG9RpsCQCb/jsbtAT/6/+jK1lE"
	nearPoints  = "Cwi0eR203iOOAAAN/+UjHg=="
)

func TestDecode(t *testing.T) {
	f := func(code string, want openlr.Line) {
		t.Helper()
		got, err := openlr.Decode(code)
		require.NoError(t, err, code)
		require.Len(t, got.Points, len(want.Points), code)
		for i, p := range want.Points {
			// The seventh decimal place of a degree is a centimetre.
			require.InDelta(t, p.Lon, got.Points[i].Lon, 0.6e-7, "longitude of point %d of %s", i, code)
			require.InDelta(t, p.Lat, got.Points[i].Lat, 0.6e-7, "latitude of point %d of %s", i, code)
			want.Points[i].Lon, want.Points[i].Lat = got.Points[i].Lon, got.Points[i].Lat
		}
		require.Equal(t, want, got, code)
	}
	f(twoPoints, openlr.Line{Points: []openlr.Point{
		{Lon: 4.7538936, Lat: 52.3748839, Bearing: 129.375, Distance: 205, FRC: 6, FOW: openlr.SingleCarriageway, LowestFRC: 6},
		{Lon: 4.7563336, Lat: 52.3735839, Bearing: 309.375, FRC: 6, FOW: openlr.SingleCarriageway},
	}})
	f(threePoints, openlr.Line{
		Points: []openlr.Point{
			{Lon: 6.1268198, Lat: 49.6085179, Bearing: 140.625, Distance: 557, FRC: 3, FOW: openlr.MultipleCarriageway, LowestFRC: 3},
			{Lon: 6.1283698, Lat: 49.6039879, Bearing: 230.625, Distance: 264, FRC: 3, FOW: openlr.SingleCarriageway, LowestFRC: 5},
			{Lon: 6.1281598, Lat: 49.6030579, Bearing: 286.875, FRC: 5, FOW: openlr.SingleCarriageway},
		},
		PositiveOffset: 0.267578125,
	})
	f(nearPoints, openlr.Line{Points: []openlr.Point{
		{Lon: 12.2413552, Lat: 41.7747724, Bearing: 163.125, Distance: 29, FRC: 4, FOW: openlr.SingleCarriageway, LowestFRC: 4},
		{Lon: 12.2414852, Lat: 41.7745024, Bearing: 343.125, FRC: 4, FOW: openlr.SingleCarriageway},
	}})
}

func TestDecodeOffsets(t *testing.T) {
	f := func(end byte, offsets []byte, positive, negative float64) {
		t.Helper()
		code := append(with(raw(t, twoPoints), 15, end), offsets...)
		line, err := decodeBinary(code)
		require.NoError(t, err)
		require.Equal(t, positive, line.PositiveOffset)
		require.Equal(t, negative, line.NegativeOffset)
	}
	f(0x00, nil, 0, 0)
	f(0x40, []byte{0}, 0.5/256, 0)
	f(0x20, []byte{0}, 0, 0.5/256)
	f(0x40, []byte{255}, 255.5/256, 0)
	f(0x20, []byte{64}, 0, 64.5/256)
	f(0x60, []byte{1, 254}, 1.5/256, 254.5/256)
}

func TestDecodeDistance(t *testing.T) {
	f := func(interval byte, metres int) {
		t.Helper()
		line, err := decodeBinary(with(raw(t, twoPoints), 9, interval))
		require.NoError(t, err)
		require.Equal(t, metres, line.Points[0].Distance)
		require.Zero(t, line.Points[1].Distance)
	}
	f(0, 29)
	f(1, 88)
	f(9, 557)
	f(255, 14972) // with intervals of 58.6 m; 15 km / 256 would result in 14971
}

func TestDecodeCoordinates(t *testing.T) {
	f := func(lon, lat uint32, wantLon, wantLat float64) {
		t.Helper()
		code := raw(t, twoPoints)
		copy(code[1:], []byte{byte(lon >> 16), byte(lon >> 8), byte(lon), byte(lat >> 16), byte(lat >> 8), byte(lat)})
		copy(code[10:], []byte{0, 0, 0, 0})
		line, err := decodeBinary(code)
		require.NoError(t, err)
		for _, p := range line.Points {
			require.Equal(t, [2]float64{wantLon, wantLat}, [2]float64{p.Lon, p.Lat})
		}
	}
	const step = 360.0 / (1 << 24)
	f(0, 0, 0, 0)
	f(1, 0xffffff, 0.5*step, -0.5*step)
	f(0x7fffff, 0x400000, 180-1.5*step, 90-0.5*step)
	f(0x800000, 0xc00000, -180+0.5*step, -90+0.5*step)
}

// TestDecodeInvalid checks that the error contains the byte offset and the reason.
func TestDecodeInvalid(t *testing.T) {
	two, three := raw(t, twoPoints), raw(t, threePoints)
	f := func(code []byte, want string) {
		t.Helper()
		line, err := decodeBinary(code)
		require.ErrorContains(t, err, want)
		require.Zero(t, line)
	}
	f(nil, "empty code")
	f(with(two, 0, 0x0a), "byte 0: version is 2, must be 3")
	f(with(two, 0, 0x4b), "byte 0: status 0x4b means an area or point")
	f(with(two, 0, 0x2b), "byte 0: status 0x2b means an area or point")
	f(with(two, 0, 0x1b), "byte 0: status 0x1b means an area or point")
	f(with(two, 0, 0x03), "byte 0: status 0x03 means no attributes")
	f(with(two, 0, 0x8b), "byte 0: status 0x8b has the reserved bit set")
	f(two[:15], "byte 15: unexpected end of data: a line has at least 16 bytes")
	f(append(two[:16:16], 1, 2, 3), "byte 19: unexpected end of data: the 3 bytes after 2 points")
	f(append(two[:16:16], 1), "byte 15: attributes 0x1b: got 1 offset bytes, expected 0")
	f(append(two[:16:16], 1, 2), "byte 15: attributes 0x1b: got 2 offset bytes, expected 0")
	f(with(two, 15, 0x5b), "byte 15: attributes 0x5b: got 0 offset bytes, expected 1")
	f(append(with(two, 15, 0x7b), 1), "byte 15: attributes 0x7b: got 1 offset bytes, expected 2")
	f(with(two, 15, 0x9b), "byte 15: attributes 0x9b have the reserved bit set")
	f(append(with(two, 15, 0x7b), 128, 128), "byte 15: offsets of 128/256 and 128/256 leave nothing")
	f(with(two, 7, 0x73), "point 0 at byte 1: attributes 0x73 at byte 7 have a reserved bit set")
	f(with(three, 14, 0x9b), "point 1 at byte 10: attributes 0x9b at byte 14 have a reserved bit set")
	f(with(two, 14, 0x73), "point 1 at byte 10: attributes 0x73 at byte 14 have a reserved bit set")
	f(with(two, 4, 0x40, 0x00, 0x01), "point 0 at byte 1: latitude 90.0000107 is not between")
	f(with(two, 4, 0xbf, 0xff, 0xff), "point 0 at byte 1: latitude -90.0000107 is not between")
	f(with(with(two, 4, 0x40, 0, 0), 12, 0, 2), "point 1 at byte 10: latitude 90.0000093 is not between")
	f(with(with(two, 1, 0x7f, 0xff, 0xff), 10, 0, 4), "point 1 at byte 10: longitude 180.0000078 is not between")
	f(with(with(two, 1, 0x80, 0, 0), 10, 0xff, 0xfe), "point 1 at byte 10: longitude -180.0000093 is not between")
}

func TestDecodeInvalidText(t *testing.T) {
	f := func(code, want string) {
		t.Helper()
		line, err := openlr.Decode(code)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "cannot decode OpenLR code ")
		require.Zero(t, line)
	}
	f("", `code "": empty code`)
	f("CwNhbCU+jzPLAwD0/34zGw", "illegal base64 data at input byte 20")
	f("CwNhbCU-jzPLAwD0_34zGw==", "illegal base64 data at input byte 7")
	f("CwNhbCU+jzPLAwD0/34zGx==", "illegal base64 data") // bits after the last byte
	f("CwNhbCU+jzPLAwD0/34zGw===", "illegal base64 data")
	f(" "+twoPoints, "illegal base64 data at input byte 0")
	f(twoPoints+"\n", "line break at character 24")
	f(twoPoints[:8]+"\r\n"+twoPoints[8:], "line break at character 8")
	f(twoPoints+twoPoints, "illegal base64 data at input byte 24")
	f("CgNhbCU+jzPLAwD0/34zGw==", `"CgNhbCU+jzPLAwD0/34zGw==": byte 0: version is 2`)
	f(strings.Repeat("A", 100_000), `code "`+strings.Repeat("A", 64)+`": byte 0: version is 0`)
}

// TestTruncated checks that no prefix of these codes is valid. (A prefix of another code may be
// valid if the path byte of an inner point is a valid `end`.)
func TestTruncated(t *testing.T) {
	for _, code := range []string{twoPoints, threePoints, nearPoints} {
		whole := raw(t, code)
		for n := range len(whole) {
			line, err := decodeBinary(whole[:n])
			require.Error(t, err, "%d bytes of %s", n, code)
			require.Zero(t, line)
		}
		for n := range len(code) {
			_, err := openlr.Decode(code[:n])
			require.Error(t, err, "%d characters of %s", n, code)
		}
	}
}

// TestDecodeAllocates checks that Decode allocates only the points.
func TestDecodeAllocates(t *testing.T) {
	f := func(code string) {
		t.Helper()
		require.Equal(t, 1.0, testing.AllocsPerRun(100, func() { openlr.Decode(code) }), code)
	}
	f(twoPoints)
	f(threePoints)
}

func decodeBinary(code []byte) (openlr.Line, error) {
	return openlr.Decode(base64.StdEncoding.EncodeToString(code))
}

func raw(t testing.TB, code string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(code)
	require.NoError(t, err)
	return b
}

// with returns a copy of code with the bytes from an index on replaced.
func with(code []byte, at int, other ...byte) []byte {
	changed := append([]byte(nil), code...)
	copy(changed[at:], other)
	return changed
}
