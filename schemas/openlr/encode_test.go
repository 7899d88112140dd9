package openlr_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/openlr"
)

// street returns a line with values that are not in the middle of an interval.
func street() openlr.Line {
	return openlr.Line{
		Points: []openlr.Point{
			{Lon: 10.2039, Lat: 56.1629, Bearing: 11.2, Distance: 117, FRC: 2, FOW: openlr.Motorway, LowestFRC: 3},
			{Lon: 10.2041, Lat: 56.1642, Bearing: 359.9, Distance: 0, FRC: 3, FOW: openlr.SlipRoad, LowestFRC: 7},
			{Lon: 10.2039, Lat: 56.1640, Bearing: 0, FRC: 7, FOW: openlr.OtherForm},
		},
		PositiveOffset: 0.6, // on a different way than the negative offset, so that both can be long
		NegativeOffset: 0.9999,
	}
}

func TestEncodeTolerance(t *testing.T) {
	line := street()
	code, err := openlr.Encode(line)
	require.NoError(t, err)
	got, err := openlr.Decode(code)
	require.NoError(t, err)
	requireClose(t, line, got)
}

func TestEncodeBoundaries(t *testing.T) {
	f := func(lon, lat float64) {
		t.Helper()
		line := openlr.Line{Points: []openlr.Point{{Lon: lon, Lat: lat}, {Lon: lon, Lat: lat}}}
		code, err := openlr.Encode(line)
		require.NoError(t, err)
		got, err := openlr.Decode(code)
		require.NoError(t, err)
		requireClose(t, line, got)
	}
	f(0, 0)
	f(1e-9, -1e-9)
	f(-180, -89.9999)
	f(180, 89.9999)
	f(179.99999, 0)
}

func TestEncodeOffset(t *testing.T) {
	f := func(part, want float64) {
		t.Helper()
		line := street()
		line.PositiveOffset, line.NegativeOffset = part, part
		code, err := openlr.Encode(line)
		require.NoError(t, err)
		got, err := openlr.Decode(code)
		require.NoError(t, err)
		require.Equal(t, want, got.PositiveOffset)
		require.Equal(t, want, got.NegativeOffset)
	}
	f(0, 0)
	f(1e-300, 0.5/256)
	f(0.25, 64.5/256)
	f(math.Nextafter(0.25, 0), 63.5/256)
	f(math.Nextafter(1, 0), 255.5/256)
}

// requireClose requires coordinates within half a step of the format (one and a half at 180° E),
// and everything else within its tolerance.
func requireClose(t *testing.T, want, got openlr.Line) {
	t.Helper()
	require.Len(t, got.Points, len(want.Points))
	last := len(want.Points) - 1
	for i, w := range want.Points {
		g := got.Points[i]
		require.InDelta(t, w.Lon, g.Lon, 3.3e-5)
		require.InDelta(t, w.Lat, g.Lat, 1.1e-5)
		require.InDelta(t, w.Bearing, g.Bearing, openlr.BearingTolerance)
		require.Equal(t, w.FRC, g.FRC)
		require.Equal(t, w.FOW, g.FOW)
		if i < last {
			require.InDelta(t, w.Distance, g.Distance, openlr.DistanceTolerance+0.5)
			require.Equal(t, w.LowestFRC, g.LowestFRC)
		}
	}
	require.InDelta(t, want.PositiveOffset, got.PositiveOffset, openlr.OffsetTolerance)
	require.InDelta(t, want.NegativeOffset, got.NegativeOffset, openlr.OffsetTolerance)
}

func TestEncodeInvalid(t *testing.T) {
	f := func(change func(*openlr.Line), want string) {
		t.Helper()
		line := street()
		change(&line)
		code, err := openlr.Encode(line)
		require.ErrorContains(t, err, want)
		require.Empty(t, code)
	}
	f(func(l *openlr.Line) { l.Points = nil }, "line with 0 points: a line needs at least two points")
	f(func(l *openlr.Line) { l.Points = l.Points[:1] }, "line with 1 points: a line needs at least two points")
	f(func(l *openlr.Line) { l.Points[1].Lon = 180.1 }, "point 1: longitude 180.1")
	f(func(l *openlr.Line) { l.Points[1].Lon = math.NaN() }, "point 1: longitude NaN")
	f(func(l *openlr.Line) { l.Points[0].Lat = math.Inf(-1) }, "point 0: latitude -Inf")
	f(func(l *openlr.Line) { l.Points[2].Lon = 10.6 }, "point 2: (10.60000, 56.16400) is more than 0.32767 degrees")
	f(func(l *openlr.Line) { l.Points[1].Lat = 55.8 }, "point 1: (10.20410, 55.80000) is more than 0.32767 degrees")
	f(func(l *openlr.Line) { l.Points[0].Lon, l.Points[1].Lon = 179.9, -179.9 }, "cannot express a line across the 180th meridian")
	f(func(l *openlr.Line) { l.Points[2].Bearing = 360 }, "point 2: bearing 360")
	f(func(l *openlr.Line) { l.Points[2].Bearing = math.NaN() }, "point 2: bearing NaN")
	f(func(l *openlr.Line) { l.Points[0].Distance = 15_002 }, "point 0: distance 15002 m")
	f(func(l *openlr.Line) { l.Points[0].Distance = -1 }, "point 0: distance -1 m")
	f(func(l *openlr.Line) { l.Points[2].FRC = 8 }, "point 2: road class 8")
	f(func(l *openlr.Line) { l.Points[2].FOW = 8 }, "point 2: road class 7 and form of way 8")
	f(func(l *openlr.Line) { l.Points[1].LowestFRC = 8 }, "point 1: lowest road class 8")
	f(func(l *openlr.Line) { l.PositiveOffset = 1 }, "positive offset: 1 must be at least 0")
	f(func(l *openlr.Line) { l.NegativeOffset = -0.1 }, "negative offset: -0.1 must be at least 0")
	f(func(l *openlr.Line) { l.NegativeOffset = math.NaN() }, "negative offset: NaN must be at least 0")
	f(func(l *openlr.Line) {
		l.Points = l.Points[:2]
		l.PositiveOffset, l.NegativeOffset = 0.5, 0.5
	}, "offsets of 128/256 and 128/256 leave nothing of the line")
	f(func(l *openlr.Line) {
		l.Points[0].Lat, l.Points[1].Lat = 89.999925, 90 // 90.0000049 for a reader
		l.Points = l.Points[:2]
	}, "point 1: latitude 90.0000049 is not between")
}

// FuzzDecodeBinary checks that a code that can be decoded is encoded to the same bits, and that its
// coordinates are valid.
func FuzzDecodeBinary(f *testing.F) {
	for _, code := range []string{twoPoints, threePoints, nearPoints} {
		f.Add(raw(f, code))
	}
	street, err := openlr.Encode(street())
	require.NoError(f, err)
	f.Add(raw(f, street))
	f.Fuzz(func(t *testing.T, code []byte) {
		line, err := decodeBinary(code)
		if err != nil {
			require.Zero(t, line)
			return
		}
		for _, p := range line.Points {
			require.LessOrEqual(t, math.Abs(p.Lon), 180.0)
			require.LessOrEqual(t, math.Abs(p.Lat), 90.0)
		}
		again, err := openlr.Encode(line)
		require.NoError(t, err)
		require.Equal(t, code, raw(t, again))
	})
}

// FuzzDecode checks that each line has only one valid text.
func FuzzDecode(f *testing.F) {
	for _, code := range []string{twoPoints, threePoints, nearPoints, twoPoints + "\n"} {
		f.Add(code)
	}
	f.Fuzz(func(t *testing.T, code string) {
		line, err := openlr.Decode(code)
		if err != nil {
			return
		}
		again, err := openlr.Encode(line)
		require.NoError(t, err)
		require.Equal(t, code, again)
	})
}

// FuzzEncode checks that decoding an encoded line returns its values within the tolerances.
func FuzzEncode(f *testing.F) {
	f.Add(4.75, 52.37, 0.002, -0.001, 129.0, 205, 0.25, 0.5)
	f.Add(-180.0, -89.9, 0.3, 0.3, 359.99, 15_001, 0.0, 0.999)
	f.Add(179.9999999, 90.0, 0.0, -1e-9, 0.0, 0, 1e-300, 0.0)
	f.Fuzz(func(t *testing.T, lon, lat, east, north, bearing float64, distance int, positive, negative float64) {
		line := openlr.Line{
			Points: []openlr.Point{
				{Lon: lon, Lat: lat, Bearing: bearing, Distance: distance},
				{Lon: lon + east, Lat: lat + north, Bearing: bearing},
			},
			PositiveOffset: positive,
			NegativeOffset: negative,
		}
		code, err := openlr.Encode(line)
		if err != nil {
			return
		}
		got, err := openlr.Decode(code)
		require.NoError(t, err)
		requireClose(t, line, got)
	})
}

func TestStraight(t *testing.T) {
	f := func(end [2]float64, bearing float64) {
		t.Helper()
		line := openlr.Straight([2]float64{10, 60}, end, 700, 3)
		require.InDelta(t, bearing, line.Points[0].Bearing, 0.1)
		require.InDelta(t, math.Mod(bearing+180, 360), line.Points[1].Bearing, 0.1)
		code, err := openlr.Encode(line)
		require.NoError(t, err)
		got, err := openlr.Decode(code)
		require.NoError(t, err)
		requireClose(t, line, got)
		require.EqualValues(t, 3, got.Points[0].FRC)
	}
	f([2]float64{10, 60.01}, 0)
	f([2]float64{10.02, 60.01}, 45)
	f([2]float64{10.01, 60}, 90)
	f([2]float64{10, 59.99}, 180)
	f([2]float64{9.99, 60}, 270)
	f([2]float64{10, 60}, 0)
}

// TestStraightLong checks that a long line gets intermediate points that the format can express,
// and that their distances add up to the length.
func TestStraightLong(t *testing.T) {
	for name, line := range longLines() {
		start, end := line.Points[0], line.Points[len(line.Points)-1]
		metres, straightMetres := 0, 0.0
		code, err := openlr.Encode(line)
		require.NoError(t, err, name)
		got, err := openlr.Decode(code)
		require.NoError(t, err, name)
		requireClose(t, line, got)
		for i, p := range line.Points[1:] {
			before := line.Points[i]
			require.LessOrEqual(t, math.Abs(p.Lon-before.Lon), 0.3+1e-9, name)
			require.LessOrEqual(t, math.Abs(p.Lat-before.Lat), 0.3+1e-9, name)
			require.LessOrEqual(t, before.Distance, 15_000, name)
			metres += before.Distance
			straightMetres += straight(before, p)
		}
		require.InDelta(t, straight(start, end), straightMetres, 0.01*straightMetres, name)
		require.Equal(t, longLineMetres[name], metres, name)
	}
}

// longLineMetres holds the lengths of longLines.
var longLineMetres = map[string]int{
	"15 km": 15_000, "longer than 15 km": 15_001, "longer than 0.3 degrees": 12_000, "through the desert": 250_000, "at the meridian": 9_000,
}

func longLines() map[string]openlr.Line {
	f := func(name string, lon, lat, east, north float64) openlr.Line {
		return openlr.Straight([2]float64{lon, lat}, [2]float64{lon + east, lat + north}, longLineMetres[name], 1)
	}
	return map[string]openlr.Line{
		"15 km":                   f("15 km", 10, 56, 0, 0.1),
		"longer than 15 km":       f("longer than 15 km", 10, 56, 0, 0.1),
		"longer than 0.3 degrees": f("longer than 0.3 degrees", 18, 69, 0.31, 0),
		"through the desert":      f("through the desert", 133, -28, -1.7, -1.3),
		"at the meridian":         f("at the meridian", 179.95, -18, 0.0499, 0.05),
	}
}

// TestStraightInvalid checks the errors for lines that cannot be encoded.
func TestStraightInvalid(t *testing.T) {
	f := func(start, end [2]float64, metres int, want string) {
		t.Helper()
		_, err := openlr.Encode(openlr.Straight(start, end, metres, 3))
		require.ErrorContains(t, err, want)
	}
	f([2]float64{179.9, 10}, [2]float64{-179.9, 10}, 22_000, "across the 180th meridian")
	f([2]float64{10, 95}, [2]float64{10, 95.1}, 10_000, "latitude 95.0000000 is not between -90 and 90")
	f([2]float64{10, 89.9}, [2]float64{10, 90.1}, 10_000, "latitude 90.1")
	f([2]float64{10, math.NaN()}, [2]float64{10, 56}, 10_000, "latitude NaN")
	f([2]float64{-150, 0}, [2]float64{0, 0}, 10_000, "more than 0.32767 degrees from the previous point")
	f([2]float64{10, 56}, [2]float64{10, 56.1}, 7_000_000, "distance 7000000 m")
}
