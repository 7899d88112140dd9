package route

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/paulmach/osm"
	"github.com/paulmach/osm/osmpbf"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/traffic/roads"
	"trafficd/cmd/dev/traffic/town"
	"trafficd/schemas/openlr"
)

// networkOf writes a map as a file and reads it.
func networkOf(t testing.TB, write func(io.Writer) error) *Network {
	t.Helper()
	path := filepath.Join(t.TempDir(), "town.osm.pbf")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, write(f))
	require.NoError(t, f.Close())
	n, err := Read(t.Context(), path, func(int64) {})
	require.NoError(t, err)
	return n
}

// outcome counts the matches of paths whose course is known.
type outcome struct {
	right, ambiguous, unmatched, wrong int
	examples                           []string
}

func (o *outcome) String() string {
	return fmt.Sprintf("%d right, %d ambiguous, %d not matched, %d wrong\n%s", o.right, o.ambiguous, o.unmatched, o.wrong, strings.Join(o.examples, "\n"))
}

// try matches count random paths; describe returns the street of a path.
func try(t testing.TB, g *roads.Graph, n *Network, count int, describe func(r *rand.Rand, g *roads.Graph, p roads.Path) Street) *outcome {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var streets []Street
	var truth [][]int64
	for len(streets) < count {
		p, ok := g.Random(r, 100+1500*r.Float64())
		if !ok {
			continue
		}
		s := describe(r, g, p)
		s.Street = int32(len(streets))
		streets, truth = append(streets, s), append(truth, g.Pairs(p))
	}
	return judge(t, n, streets, truth)
}

// judge matches streets and compares the results with the nodes of their paths.
func judge(t testing.TB, n *Network, streets []Street, truth [][]int64) *outcome {
	matches, err := MatchAll(t.Context(), n, streets, func() {})
	require.NoError(t, err)
	var o outcome
	for i, got := range matches {
		right := slices.Equal(got.Nodes, truth[i])
		switch {
		case got.State == Matched && right:
			o.right++
			continue
		case got.State == Ambiguous:
			o.ambiguous++
		case got.State == Unmatched:
			o.unmatched++
		default:
			o.wrong++
		}
		if len(o.examples) < 40 {
			line, _ := openlr.Decode(streets[i].OpenLR)
			o.examples = append(o.examples, fmt.Sprintf("%s (right: %v) %s\n  want %v\n  got  %v +%.1f -%.1f\n  %v", got.State, right, got.Reason, truth[i], got.Nodes,
				got.PositiveOffset, got.NegativeOffset, line.Points))
		}
	}
	return &o
}

func code(t testing.TB, line openlr.Line) string {
	code, err := openlr.Encode(line)
	require.NoError(t, err)
	return code
}

// fromCodes and its siblings describe a path as a feed does.
func fromCodes(t testing.TB) func(*rand.Rand, *roads.Graph, roads.Path) Street {
	return func(_ *rand.Rand, g *roads.Graph, p roads.Path) Street { return Street{OpenLR: code(t, g.Line(p))} }
}

// fromOther describes paths by codes of another map: points are moved by 5 m, classes by one.
func fromOther(t testing.TB) func(*rand.Rand, *roads.Graph, roads.Path) Street {
	return func(r *rand.Rand, g *roads.Graph, p roads.Path) Street {
		return Street{OpenLR: code(t, roads.Perturbed(r, g.Line(p), 5))}
	}
}

func fromGeometries(_ *rand.Rand, g *roads.Graph, p roads.Path) Street {
	return Street{Geometry: g.Course(p)}
}

// require fails if fewer than a share of the streets are right, or more are wrong without a notice.
func (o *outcome) require(t testing.TB, right, wrong float64) {
	t.Helper()
	total := float64(o.right + o.ambiguous + o.unmatched + o.wrong)
	t.Logf("%d right, %d ambiguous, %d not matched, %d wrong", o.right, o.ambiguous, o.unmatched, o.wrong)
	require.GreaterOrEqual(t, float64(o.right)/total, right, o)
	require.LessOrEqual(t, float64(o.wrong)/total, wrong, o)
}

// TestTown checks that streets of a town are matched with exactly the nodes of their paths.
func TestTown(t *testing.T) {
	m := roads.Town(40, 1)
	n := networkOf(t, m.WritePBF)
	g := roads.NewGraph(m)
	try(t, g, n, 2000, fromCodes(t)).require(t, 0.995, 0)
	try(t, g, n, 2000, fromOther(t)).require(t, 0.995, 0)
	try(t, g, n, 2000, fromGeometries).require(t, 0.995, 0)

	// Whether a path goes around a small roundabout once more is within the tolerance of a length.
	g.Crossing = true
	try(t, g, n, 2000, fromCodes(t)).require(t, 0.995, 0.002)
	try(t, g, n, 2000, fromOther(t)).require(t, 0.995, 0.002)
	try(t, g, n, 2000, fromGeometries).require(t, 0.995, 0.002)
}

func readMap(t testing.TB, path string) *roads.Map {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s := osmpbf.New(context.Background(), f, 2)
	defer s.Close()
	s.SkipRelations = true
	var m roads.Map
	for s.Scan() {
		switch o := s.Object().(type) {
		case *osm.Node:
			m.Nodes = append(m.Nodes, roads.Node{ID: int64(o.ID), Lon: o.Lon, Lat: o.Lat})
		case *osm.Way:
			if _, ok := roadOf(o.Tags); !ok {
				continue
			}
			w := roads.Way{ID: int64(o.ID)}
			for _, n := range o.Nodes {
				w.Nodes = append(w.Nodes, int64(n.ID))
			}
			for _, tag := range o.Tags {
				w.Tags = append(w.Tags, [2]string{tag.Key, tag.Value})
			}
			m.Ways = append(m.Ways, w)
		}
	}
	require.NoError(t, s.Err())
	return &m
}

// TestRealMap matches streets of Delaware, whose map the library for the format is tested with. It
// is © OpenStreetMap contributors, ODbL 1.0.
func TestRealMap(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/paulmach/osm").Output()
	require.NoError(t, err)
	path := filepath.Join(strings.TrimSpace(string(dir)), "testdata", "delaware-latest.osm.pbf")
	m := readMap(t, path)
	n, err := Read(t.Context(), path, func(int64) {})
	require.NoError(t, err)
	t.Log(n.Links(), "links")
	g := roads.NewGraph(m)
	try(t, g, n, 2000, fromCodes(t)).require(t, 0.99, 0.002)
	try(t, g, n, 2000, fromOther(t)).require(t, 0.97, 0.002)
	try(t, g, n, 2000, fromGeometries).require(t, 0.97, 0.005)
}

// TestQuickstartTown checks that the streets of the town of make run are found on its map by the
// codes of the layer.
func TestQuickstartTown(t *testing.T) {
	c := town.DefaultMeasurementConfig()
	c.Streets = 1000
	network, err := town.New(c)
	require.NoError(t, err)
	n := networkOf(t, network.WriteMap)
	var streets []Street
	all := town.NewTown(c.Config).Streets
	for _, s := range all {
		streets = append(streets, Street{Street: s.Number, FromNode: s.From, OpenLR: s.OpenLR()})
	}
	matches, err := MatchAll(t.Context(), n, streets, func() {})
	require.NoError(t, err)
	for i, m := range matches {
		require.Equal(t, Matched, m.State, m.Reason)
		require.Len(t, m.Nodes, 7)
		require.Equal(t, []int64{int64(all[i].Number), int64(all[i].From), int64(all[i].To)}, []int64{m.Ways[0], m.Nodes[0], m.Nodes[6]})
	}
}

// TestEnds checks that streets between two junctions are found by the codes that the forecaster
// derives from end points, with a class that is a guess. Between some junctions, there are two
// roads of about the same length.
func TestEnds(t *testing.T) {
	m := roads.Town(40, 1)
	g := roads.NewGraph(m)
	var streets []Street
	var truth [][]int64
	for _, arcs := range g.Stretches() {
		p := roads.Path{Arcs: arcs}
		line := g.Course(p)
		streets = append(streets, Street{OpenLR: code(t, openlr.Ends(line[0], line[len(line)-1], int(p.Metres())))})
		truth = append(truth, g.Pairs(p))
	}
	judge(t, networkOf(t, m.WritePBF), streets, truth).require(t, 0.9, 0)
}
