package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"

	"github.com/paulmach/osm"
	"github.com/paulmach/osm/osmpbf"

	"trafficd/schemas/openlr"
)

// road is what the tags of a way say about it.
type road struct {
	class     uint8 // functional road class
	form      openlr.FormOfWay
	direction int8 // 1: only along the way, -1: only against it, 0: both
}

// classes maps the values of highway that cars may use to functional road classes.
var classes = map[string]uint8{
	"motorway": 0, "trunk": 1, "primary": 2, "secondary": 3, "tertiary": 4, "unclassified": 5, "residential": 6, "road": 6,
	"living_street": 7, "service": 7,
	"motorway_link": 0, "trunk_link": 1, "primary_link": 2, "secondary_link": 3, "tertiary_link": 4,
}

// closed lists the values of access that exclude through traffic by car.
var closed = []string{"no", "private", "agricultural", "forestry", "emergency", "military", "bus"}

// yards lists the values of service that mean the inside of a property.
var yards = []string{"driveway", "parking_aisle", "drive-through", "emergency_access"}

// roadOf returns the road of a way with these tags, and reports whether cars may use it.
func roadOf(tags osm.Tags) (r road, ok bool) {
	highway := tags.Find("highway")
	if r.class, ok = classes[highway]; !ok {
		return r, false
	}
	access := cmp.Or(tags.Find("motorcar"), tags.Find("motor_vehicle"), tags.Find("vehicle"), tags.Find("access"))
	if slices.Contains(closed, access) || slices.Contains(yards, tags.Find("service")) || tags.Find("area") == "yes" {
		return r, false
	}
	junction := tags.Find("junction")
	circle := junction == "roundabout" || junction == "circular"
	switch tags.Find("oneway") {
	case "yes", "true", "1":
		r.direction = 1
	case "-1", "reverse":
		r.direction = -1
	case "":
		if circle || highway == "motorway" {
			r.direction = 1
		}
	}
	switch {
	case circle:
		r.form = openlr.Roundabout
	case highway == "motorway":
		r.form = openlr.Motorway
	case len(highway) > 5 && highway[len(highway)-5:] == "_link":
		r.form = openlr.SlipRoad
	case r.direction != 0 && r.class <= 4 || tags.Find("dual_carriageway") == "yes":
		r.form = openlr.MultipleCarriageway
	default:
		r.form = openlr.SingleCarriageway
	}
	return r, true
}

// ways holds the roads of a map. The nodes of all ways are in one slice, because a country has
// millions of them.
type ways struct {
	ids   []int64
	roads []road
	ends  []int32 // of each way in nodes
	nodes []int64
}

// Read reads the roads in a file of OpenStreetMap in PBF, twice: their nodes precede the ways. It
// calls progress with the number of bytes that it has read since the last call.
func Read(ctx context.Context, path string, progress func(n int64)) (*Network, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the map: %w", err)
	}
	defer f.Close()
	n, err := read(ctx, f, progress)
	if err != nil {
		return nil, fmt.Errorf("cannot read the map %s: %w", path, err)
	}
	return n, nil
}

const wanted = "the map must be an extract of OpenStreetMap in PBF with complete ways, such as a region's .osm.pbf of Geofabrik"

func read(ctx context.Context, f io.ReadSeeker, progress func(n int64)) (*Network, error) {
	var all ways
	s := osmpbf.New(ctx, &counted{f, progress}, runtime.GOMAXPROCS(0))
	s.SkipNodes, s.SkipRelations = true, true
	s.FilterWay = func(w *osm.Way) bool {
		_, ok := roadOf(w.Tags)
		return ok
	}
	for s.Scan() {
		w, ok := s.Object().(*osm.Way)
		if !ok {
			continue
		}
		r, _ := roadOf(w.Tags)
		for _, n := range w.Nodes {
			all.nodes = append(all.nodes, int64(n.ID))
		}
		all.ids, all.roads, all.ends = append(all.ids, int64(w.ID)), append(all.roads, r), append(all.ends, int32(len(all.nodes)))
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		return nil, fmt.Errorf("%w; %s", err, wanted)
	}
	n := &Network{ids: slices.Clone(all.nodes)}
	slices.Sort(n.ids)
	n.ids = slices.Clip(slices.Compact(n.ids))
	if len(n.ids) == 0 {
		return nil, fmt.Errorf("it has no roads; %s", wanted)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := n.locate(ctx, &counted{f, progress}); err != nil {
		return nil, fmt.Errorf("%w; %s", err, wanted)
	}
	n.connect(&all)
	if len(n.links) == 0 {
		return nil, fmt.Errorf("the positions of the roads are missing; %s", wanted)
	}
	n.index()
	return n, nil
}

// locate reads the positions of the nodes.
func (n *Network) locate(ctx context.Context, r io.Reader) error {
	n.positions = make([][2]int32, len(n.ids))
	for i := range n.positions {
		n.positions[i] = unknown
	}
	s := osmpbf.New(ctx, r, runtime.GOMAXPROCS(0))
	s.SkipWays, s.SkipRelations = true, true
	// The filter takes the position, because a node that it keeps would be allocated. The decoders
	// call it concurrently, but a map has a node only once.
	s.FilterNode = func(node *osm.Node) bool {
		if i, ok := slices.BinarySearch(n.ids, int64(node.ID)); ok {
			n.positions[i] = [2]int32{int32(math.Round(node.Lon * degree)), int32(math.Round(node.Lat * degree))}
		}
		return false
	}
	for s.Scan() { // nothing passes the filter
	}
	return errors.Join(s.Err(), s.Close())
}

// counted reports the bytes that are read.
type counted struct {
	io.Reader
	add func(n int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}
