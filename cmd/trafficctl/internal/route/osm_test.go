package route

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/paulmach/osm"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/traffic/roads"
	"trafficd/schemas/openlr"
)

func TestRoadOf(t *testing.T) {
	f := func(want road, tags ...string) {
		t.Helper()
		var all osm.Tags
		for i := 0; i < len(tags); i += 2 {
			all = append(all, osm.Tag{Key: tags[i], Value: tags[i+1]})
		}
		got, ok := roadOf(all)
		require.Equal(t, want != road{}, ok)
		if ok {
			require.Equal(t, want, got)
		}
	}
	f(road{6, openlr.SingleCarriageway, 0}, "highway", "residential")
	f(road{6, openlr.SingleCarriageway, 1}, "highway", "residential", "oneway", "yes")
	f(road{2, openlr.MultipleCarriageway, -1}, "highway", "primary", "oneway", "-1")
	f(road{0, openlr.Motorway, 1}, "highway", "motorway")
	f(road{0, openlr.Motorway, 0}, "highway", "motorway", "oneway", "no")
	f(road{0, openlr.SlipRoad, 1}, "highway", "motorway_link", "oneway", "yes")
	f(road{4, openlr.Roundabout, 1}, "highway", "tertiary", "junction", "roundabout")
	f(road{3, openlr.SingleCarriageway, 0}, "highway", "secondary", "access", "private", "motor_vehicle", "yes")
	f(road{7, openlr.SingleCarriageway, 0}, "highway", "service", "service", "alley")
	f(road{}, "highway", "residential", "access", "private")
	f(road{}, "highway", "residential", "motor_vehicle", "no")
	f(road{}, "highway", "service", "service", "driveway")
	f(road{}, "highway", "service", "area", "yes")
	f(road{}, "highway", "cycleway")
	f(road{}, "building", "yes")
}

// TestConnect checks where ways are divided, and that a way beyond the border of an extract is cut.
func TestConnect(t *testing.T) {
	node := func(id int64, lon, lat float64) roads.Node { return roads.Node{ID: id, Lon: lon, Lat: lat} }
	m := &roads.Map{
		Nodes: []roads.Node{
			node(1, 10, 56), node(2, 10.001, 56), node(3, 10.002, 56), node(4, 10.001, 56.001), node(5, 10.003, 56), node(6, 10.004, 56),
		},
		Ways: []roads.Way{
			{ID: 10, Nodes: []int64{1, 2, 3, 99, 5, 6}, Tags: [][2]string{{"highway", "primary"}}},
			{ID: 11, Nodes: []int64{4, 2}, Tags: [][2]string{{"highway", "residential"}, {"oneway", "yes"}}},
		},
	}
	n := networkOf(t, m.WritePBF)
	var got [][]int64
	for i, l := range n.links {
		ids := []int64{l.way}
		for _, node := range n.nodes(nil, edge(2*i)) {
			ids = append(ids, n.ids[node])
		}
		got = append(got, ids)
	}
	require.Equal(t, [][]int64{{10, 1, 2}, {10, 2, 3}, {10, 5, 6}, {11, 4, 2}}, got)
	require.InDelta(t, 62.2, n.metres(0), 0.1)
	require.False(t, n.allowed(edge(7)), "against the one-way street")
	two := n.outgoing[n.out[1]:n.out[2]]
	require.ElementsMatch(t, []edge{1, 2}, two, "from node 2 to 1 and 3")
}

func TestReadErrors(t *testing.T) {
	f := func(content []byte, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "a.osm.pbf")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := Read(t.Context(), path, func(int64) {})
		require.ErrorContains(t, err, "cannot read the map "+path+": ")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "; the map must be an extract of OpenStreetMap in PBF")
	}
	pbf := func(m *roads.Map) []byte {
		var b bytes.Buffer
		require.NoError(t, m.WritePBF(&b))
		return b.Bytes()
	}
	f(nil, "it has no roads")
	f([]byte("<osm version='0.6' generator='x'><node id='1'/></osm>"), "blobHeader size")
	town := pbf(roads.Town(4, 1))
	f(town[:len(town)/2], "EOF")
	f(pbf(&roads.Map{Nodes: roads.Town(4, 1).Nodes}), "it has no roads")
	f(pbf(&roads.Map{Ways: roads.Town(4, 1).Ways}), "the positions of the roads are missing")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "town.osm.pbf")
	require.NoError(t, os.WriteFile(path, town, 0o600))
	_, err := Read(ctx, path, func(int64) {})
	require.ErrorIs(t, err, context.Canceled)
}
