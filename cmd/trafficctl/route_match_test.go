package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/traffic/roads"
	"trafficd/cmd/internal/streets"
	"trafficd/cmd/trafficctl/internal/route"
	"trafficd/schemas/openlr"
)

// townMap writes the map of a small town, and returns its file and a path on it with its code.
func townMap(t *testing.T) (file string, g *roads.Graph, p roads.Path, code string) {
	t.Helper()
	m := roads.Town(12, 3)
	file = filepath.Join(t.TempDir(), "town.osm.pbf")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, m.WritePBF(f))
	require.NoError(t, f.Close())
	g = roads.NewGraph(m)
	r := rand.New(rand.NewPCG(1, 1))
	for ok := false; !ok; {
		p, ok = g.Random(r, 700)
	}
	code, err = openlr.Encode(g.Line(p))
	require.NoError(t, err)
	return file, g, p, code
}

// TestRouteMatchList checks the matches of a list, the report, and the list with the paths.
func TestRouteMatchList(t *testing.T) {
	town, g, p, code := townMap(t)
	far, err := openlr.Encode(openlr.Straight([2]float64{20, 40}, [2]float64{20.1, 40}, 9000, 3))
	require.NoError(t, err)
	var course []string
	for _, p := range g.Course(p) {
		course = append(course, fmt.Sprintf("%.6f %.6f", p[0], p[1]))
	}
	drawn := fmt.Sprintf("LINESTRING (%s)", strings.Join(course, ", "))
	list := file(t, "list.csv", strings.Join([]string{
		"detectorCode;street;fromnode;openlr;length",
		"A;7;1;" + code + ";700",
		"B;8;;" + far + ";9000",
		"C;;;;",
	}, "\n")+"\n")
	output, listOutput := filepath.Join(t.TempDir(), "town.ndjson.gz"), filepath.Join(t.TempDir(), "drawn.csv")
	r := runWith(t, "", "route", "match", "--map", town, "--list", list, "--output", output, "--list-output", listOutput)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Contains(t, r.err, "1 street matched, 0 ambiguous, 1 not matched\n")
	require.Contains(t, r.err, "trafficctl: outside the map: 1 street\n"+"   street 8 from node 0: (20.00000, 40.00001) is far from all roads\n")
	cfg := streets.DefaultConfig()
	cfg.Path = listOutput
	content, err := streets.Read(cfg)
	require.NoError(t, err)
	require.Len(t, content.Streets, 2)
	require.Nil(t, content.Streets[1].Geometry)
	require.Len(t, content.Streets[0].Geometry, 2*len(course), "the course of the map")

	// The list with the paths matches by them. Now the list has a column for the geometry.
	both := "detectorCode,street,openlr,geometry\nA,7,,\"" + drawn + "\"\nB,7,,\n"
	r = runWith(t, "", "route", "match", "--map", town, "--list", file(t, "drawn.csv", both), "--list-output", listOutput, "--quiet")
	require.Equal(t, exitDone, r.code, r.err)
	matches, err := route.ReadMatches(strings.NewReader(r.out))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	require.Equal(t, g.Pairs(p), matches[0].Nodes)
	text, err := os.ReadFile(listOutput)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), "LINESTRING ("), "both detectors of the street")
}

// TestRouteMatchLayer checks that the streets come from the layer without a list.
func TestRouteMatchLayer(t *testing.T) {
	town, _, _, _ := townMap(t)
	s := serveLayer(t)
	args := func(more ...string) []string {
		return append([]string{"route", "match"}, append(s.args()[2:], more...)...)
	}
	requireFailure(t, "", "--map must be set to an extract", args()...)
	requireFailure(t, "", "--list-output requires --list", args("--map", town, "--list-output", "a.csv")...)
	requireFailure(t, "", "503 GENERAL_SERVICE_UNAVAILABLE", args("--map", town)...)
	s.put(60, 50)
	waitForStreets(t, s.Layer, 2)
	requireFailure(t, "", "cannot read the map", args("--map", town+"x")...)
	r := runWith(t, "", args("--map", town)...)
	require.Equal(t, exitRejected, r.code, r.err)
	require.Contains(t, r.err, "0 streets matched, 0 ambiguous, 2 not matched")
	matches, err := route.ReadMatches(strings.NewReader(r.out))
	require.NoError(t, err)
	require.Len(t, matches, 2)
}
