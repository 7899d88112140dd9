package geo_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/schemas/geo"
)

// cs2cs converts points with PROJ, an independent implementation.
func cs2cs(t *testing.T, points []float64, args ...string) []float64 {
	t.Helper()
	path := needs.Program(t, "cs2cs")
	var in, errs bytes.Buffer
	for i := 0; i < len(points); i += 2 {
		fmt.Fprintf(&in, "%.10f %.10f\n", points[i], points[i+1])
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"-f", "%.10f"}, args...)...)
	cmd.Stdin, cmd.Stderr = &in, &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())

	converted := make([]float64, 0, len(points))
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var x, y float64
		_, err := fmt.Sscan(lines.Text(), &x, &y)
		require.NoError(t, err, lines.Text())
		converted = append(converted, x, y)
	}
	require.Len(t, converted, len(points))
	return converted
}

// area returns the corners and the centre of an area, and n random points in it, rounded to the
// decimal places that PROJ receives.
func area(n int, west, east, south, north float64) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	points := []float64{west, south, east, south, east, north, west, north, (west + east) / 2, (south + north) / 2}
	for range n {
		points = append(points, west+r.Float64()*(east-west), south+r.Float64()*(north-south))
	}
	for i, v := range points {
		points[i] = math.Round(v*1e10) / 1e10
	}
	return points
}

// latFirst returns points in the axis order of geographic coordinates in the EPSG registry.
func latFirst(points []float64) []float64 {
	swapped := make([]float64, len(points))
	for i := 0; i < len(points); i += 2 {
		swapped[i], swapped[i+1] = points[i+1], points[i]
	}
	return swapped
}

func system(t testing.TB, format geo.Format, srID string) geo.System {
	t.Helper()
	s, err := geo.ParseSystem(string(format), srID)
	require.NoError(t, err)
	return s
}

func converted(t testing.TB, from, to geo.System, points []float64) []float64 {
	t.Helper()
	points = append([]float64(nil), points...)
	require.NoError(t, geo.NewConversion(from, to).Points(points, 2), "%s → %s", from, to)
	return points
}

// maxDifference returns the largest difference between corresponding elements of a and b.
func maxDifference(a, b []float64) (d float64) {
	for i := range a {
		d = max(d, math.Abs(a[i]-b[i]))
	}
	return d
}

const (
	tenthOfMillimetre = 1e-4
	inDegrees         = 1e-9 // a tenth of a millimetre
)

// requireAgreement compares the forward and inverse conversion with PROJ's result.
func requireAgreement(t *testing.T, s geo.System, points, theirs []float64) {
	t.Helper()
	plain := system(t, geo.GeoDecimal, "")
	require.LessOrEqual(t, maxDifference(converted(t, plain, s, points), theirs), tenthOfMillimetre, "to %s", s)
	require.LessOrEqual(t, maxDifference(converted(t, s, plain, theirs), points), inDegrees, "from %s", s)
}

// TestProjUTM tests each zone with points up to 9 degrees from its central meridian. The zone
// itself extends only 3 degrees from it.
func TestProjUTM(t *testing.T) {
	step := 8
	if needs.Long() {
		step = 1
	}
	f := func(base, first, zone, last int, south, north float64) {
		for code := first; code <= last; code += step {
			centre := float64(6*(zone+code-first) - 183)
			points := area(1000, max(centre-9, -180), min(centre+9, 180), south, north)
			srID := fmt.Sprintf("EPSG:%d", code)
			theirs := cs2cs(t, latFirst(points), fmt.Sprintf("EPSG:%d", base), srID)
			requireAgreement(t, system(t, geo.SRID, srID), points, theirs)
		}
	}
	f(4258, 25828, 28, 25838, -10, 84)
	f(4326, 32601, 1, 32660, -10, 84)
	f(4326, 32701, 1, 32760, -80, 10)
}

// TestProjUTMOutsideZone tests points up to 40 degrees from the central meridian of a zone.
func TestProjUTMOutsideZone(t *testing.T) {
	points := area(5000, 9-40, 9+40, -85, 89)
	requireAgreement(t, system(t, geo.SRID, "EPSG:32632"), points, cs2cs(t, latFirst(points), "EPSG:4326", "EPSG:32632"))
}

func TestProjWebMercator(t *testing.T) {
	points := area(5000, -180, 180, -85.06, 85.06)
	requireAgreement(t, system(t, geo.SRID, "EPSG:3857"), points, cs2cs(t, latFirst(points), "EPSG:4326", "EPSG:3857"))
}

func TestProjSpheres(t *testing.T) {
	f := func(format geo.Format, points []float64, sphere, definition string) {
		t.Helper()
		args := append([]string{"+proj=longlat", sphere, "+to"}, strings.Fields(definition+" "+sphere)...)
		requireAgreement(t, system(t, format, ""), points, cs2cs(t, points, args...))
	}
	world := area(5000, -179.9, 179.9, -85, 85)
	f(geo.Mercator, world, "+R=6371000", "+proj=merc")
	const cone = "+proj=lcc +lat_1=45 +lat_2=55 +lat_0=30 +lon_0=10"
	f(geo.Conform, area(5000, -169.9, 179.9, -30, 89), "+R=6365000", cone+" +x_0=1800000 +y_0=-500000")
	f(geo.SuperConform, area(5000, -30, 70, 20, 80), "+R=6365000", cone+" +x_0=5200000 +y_0=1200000")
}
