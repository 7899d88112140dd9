package openlr_test

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mikelolasagasti/xz"
	"github.com/stretchr/testify/require"

	"trafficd/schemas/openlr"
)

// realCodes returns the codes of 20,000 Swiss streets, or nil if their file, which is not part of
// the repository, is missing.
func realCodes(t testing.TB) []string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", "openlr", "lines.txt.xz")
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		t.Logf("no real codes: %s does not exist", path)
		return nil
	}
	require.NoError(t, err)
	defer file.Close()
	unpacked, err := xz.NewReader(bufio.NewReader(file), xz.DefaultDictMax)
	require.NoError(t, err)
	var codes []string
	for lines := bufio.NewScanner(unpacked); lines.Scan(); {
		codes = append(codes, lines.Text())
	}
	require.Len(t, codes, 20_000)
	return codes
}

// TestRealCodes checks that the lines are in or near Switzerland, and that no way is shorter than
// the straight line between its ends.
func TestRealCodes(t *testing.T) {
	points := 0
	for _, code := range realCodes(t) {
		line, err := openlr.Decode(code)
		require.NoError(t, err)
		again, err := openlr.Encode(line)
		require.NoError(t, err)
		require.Equal(t, code, again)
		for i, p := range line.Points {
			points++
			require.InDelta(t, 8.2, p.Lon, 2.5, code)
			require.InDelta(t, 46.8, p.Lat, 1.2, code)
			if i > 0 {
				before := line.Points[i-1]
				require.LessOrEqual(t, straight(before, p), float64(before.Distance)+openlr.DistanceTolerance+2.5, code)
			}
		}
	}
	t.Logf("points: %d", points)
}

// straight returns the distance in metres on a sphere, approximated by a plane.
func straight(a, b openlr.Point) float64 {
	const metres = 6_371_000 * math.Pi / 180 // in one degree
	east := (b.Lon - a.Lon) * math.Cos((a.Lat+b.Lat)/2*math.Pi/180)
	return metres * math.Hypot(east, b.Lat-a.Lat)
}

func BenchmarkDecode(b *testing.B) {
	for name, code := range map[string]string{"2points": twoPoints, "3points": threePoints} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(code)))
			for b.Loop() {
				if _, err := openlr.Decode(code); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecodeReal decodes the real codes, or the codes with known contents if they are missing.
func BenchmarkDecodeReal(b *testing.B) {
	codes := realCodes(b)
	if codes == nil {
		codes = []string{twoPoints, threePoints, nearPoints}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := openlr.Decode(codes[i%len(codes)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkEncode(b *testing.B) {
	line, err := openlr.Decode(threePoints)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := openlr.Encode(line); err != nil {
			b.Fatal(err)
		}
	}
}
