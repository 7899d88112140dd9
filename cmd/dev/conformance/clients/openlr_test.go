package clients

import (
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/schemas/openlr"
)

// decoder decodes codes, one a line, with the Python package openlr.
const decoder = `
import json, sys, openlr
for code in sys.stdin.read().split():
    line = openlr.binary_decode(code)
    print(json.dumps([[p.lon, p.lat, p.bear, p.dnp, int(p.frc)] for p in line.points]))
`

// TestOtherDecoder checks that an independent decoder reads the same from the codes of long lines.
func TestOtherDecoder(t *testing.T) {
	var codes []string
	for _, line := range []openlr.Line{
		openlr.Straight([2]float64{10, 56}, [2]float64{10, 56.1}, 11_000, 1),
		openlr.Straight([2]float64{10, 56}, [2]float64{10, 56.1}, 31_000, 1),
		openlr.Straight([2]float64{18, 69}, [2]float64{18.31, 69}, 12_400, 1),
		openlr.Straight([2]float64{133, -28}, [2]float64{131.3, -29.3}, 220_000, 1),
		openlr.Straight([2]float64{179.95, -18}, [2]float64{179.9999, -17.95}, 7_700, 1),
	} {
		code, err := openlr.Encode(line)
		require.NoError(t, err)
		codes = append(codes, code)
	}
	p := exec.CommandContext(t.Context(), filepath.Join(openlrPython(t), "bin", "python"), "-c", decoder)
	p.Stdin = strings.NewReader(strings.Join(codes, "\n"))
	out, err := p.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(codes))
	for i, text := range lines {
		var points [][5]float64
		require.NoError(t, json.Unmarshal([]byte(text), &points))
		want, err := openlr.Decode(codes[i])
		require.NoError(t, err)
		require.Len(t, points, len(want.Points))
		for n, p := range points {
			w := want.Points[n]
			require.InDelta(t, w.Lon, p[0], 1e-9)
			require.InDelta(t, w.Lat, p[1], 1e-9)
			require.LessOrEqual(t, math.Abs(w.Bearing-p[2]), 1.0)
			require.InDelta(t, w.Distance, p[3], 1)
			require.InDelta(t, float64(w.FRC), p[4], 0)
		}
	}
}

// openlrPython returns the directory of an environment with the Python package openlr.
func openlrPython(t *testing.T) string {
	t.Helper()
	const pins = "testdata/openlr/requirements.txt"
	return foreign.Fetched(t, "openlr", pins, func(dir string) {
		foreign.Fetch(t, "an environment for openlr", "python3", "-m", "venv", dir)
		foreign.Fetch(t, "openlr", filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", pins)
	})
}
