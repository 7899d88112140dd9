package roads

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// The centre of the towns, and the length of a block in metres.
const (
	centreLon = 10.2
	centreLat = 56.15
	blockSide = 160.0
)

// Town returns the map of a town of size × size blocks. Its roads are straight or curved; some are
// one-way or missing. It has, at regular distances,
//
//   - dual carriageways: two ways, 14 m apart
//   - primary roads with service roads beside them
//   - tertiary roads with roundabouts
//   - a motorway that crosses everything on bridges, without junctions but at its ends
func Town(size int, seed uint64) *Map {
	b := &builder{Rand: rand.New(rand.NewPCG(seed, 0)), crossings: map[[3]int]int64{}, size: size}
	for line := range size + 1 {
		b.line(line, false)
		b.line(line, true)
	}
	b.roundabouts()
	b.bridges()
	return &b.Map
}

type builder struct {
	Map
	*rand.Rand
	size      int
	crossings map[[3]int]int64 // the node of a crossing, by column, row and carriageway
}

// kind is what a line of the grid is.
type kind struct {
	highway    string
	dual       bool
	roundabout bool
	beside     bool // a service road is beside it
}

func (b *builder) kind(line int) kind {
	switch {
	case line%16 == 8:
		return kind{highway: "trunk", dual: true}
	case line%16 == 0:
		return kind{highway: "primary", beside: true}
	case line%8 == 4:
		return kind{highway: "secondary"}
	case line%4 == 2:
		return kind{highway: "tertiary", roundabout: true}
	case line%2 == 1 && line%3 == 0:
		return kind{highway: "unclassified"}
	}
	return kind{highway: "residential"}
}

func (b *builder) add(x, y float64) int64 {
	id := int64(len(b.Nodes) + 1)
	b.Nodes = append(b.Nodes, Node{
		ID:  id,
		Lon: math.Round((centreLon+x/(111_195*math.Cos(centreLat*math.Pi/180)))*1e7) / 1e7,
		Lat: math.Round((centreLat+y/111_195)*1e7) / 1e7,
	})
	return id
}

// metres returns the position of a node in metres east and north of the centre.
func (b *builder) metres(id int64) (x, y float64) {
	n := b.Nodes[id-1]
	return (n.Lon - centreLon) * 111_195 * math.Cos(centreLat*math.Pi/180), (n.Lat - centreLat) * 111_195
}

func (b *builder) way(nodes []int64, tags ...string) {
	w := Way{ID: int64(len(b.Ways) + 1), Nodes: nodes}
	for i := 0; i < len(tags); i += 2 {
		w.Tags = append(w.Tags, [2]string{tags[i], tags[i+1]})
	}
	b.Ways = append(b.Ways, w)
}

// jitter returns a number that depends on a crossing only, from -1 to 1.
func (b *builder) jitter(column, row, salt int) float64 {
	h := uint64(column+1000)*0x9E3779B97F4A7C15 ^ uint64(row+1000)*0xC2B2AE3D27D4EB4F ^ uint64(salt)*0x165667B19E3779F9
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	return float64(h%2001)/1000 - 1
}

// centre returns the position of a crossing.
func (b *builder) centre(column, row int) (x, y float64) {
	half := float64(b.size) / 2
	x, y = (float64(column)-half)*blockSide, (float64(row)-half)*blockSide
	return x + 25*b.jitter(column, row, 1), y + 25*b.jitter(column, row, 2)
}

const carriageways = 7.0 // metres from the middle of a dual carriageway to each side

// crossing returns the node at which the sideways column and row meet. Where one of them is a dual
// carriageway, there are two, or four.
func (b *builder) crossing(column, row, side int) int64 {
	c, r := b.kind(column), b.kind(row)
	if !c.dual {
		side &^= 1
	}
	if !r.dual {
		side &^= 2
	}
	key := [3]int{column, row, side}
	if id, ok := b.crossings[key]; ok {
		return id
	}
	x, y := b.centre(column, row)
	if c.dual {
		x += carriageways * float64(side&1*2-1)
	}
	if r.dual {
		y += carriageways * float64(side&2-1)
	}
	id := b.add(x, y)
	b.crossings[key] = id
	return id
}

// line adds the roads of a column or, if across, of a row.
func (b *builder) line(line int, across bool) {
	k := b.kind(line)
	if k.dual {
		// Traffic keeps right: northwards in the east, eastwards in the south.
		b.carriageway(line, across, 0)
		b.carriageway(line, across, 1)
		return
	}
	var current []int64
	tags := []string{"highway", k.highway}
	flush := func() {
		if len(current) > 1 {
			b.way(current, tags...)
		}
		current, tags = nil, []string{"highway", k.highway}
		if small := k.highway == "residential"; small && b.IntN(5) == 0 {
			tags = append(tags, "oneway", []string{"yes", "-1"}[b.IntN(2)])
		}
	}
	for i := range b.size {
		if k.highway == "residential" && b.IntN(12) == 0 { // no road here
			flush()
			continue
		}
		from, to := b.node(line, i, across, 1), b.node(line, i+1, across, 0)
		if len(current) == 0 {
			current = []int64{from}
		}
		b.bend(&current, to, 18*(b.Float64()-0.5))
		if far := b.node(line, i+1, across, 1); far != to { // through a dual carriageway
			current = append(current, far)
		}
		if b.IntN(4) == 0 {
			flush()
		}
		if k.beside && i%2 == 0 {
			b.service(from, to)
		}
	}
	flush()
}

// node returns the node of a line at the crossing with another line, on its near or far side.
func (b *builder) node(line, at int, across bool, far int) int64 {
	if across {
		return b.crossing(at, line, far)
	}
	return b.crossing(line, at, far<<1)
}

// bend adds nodes of an arc to a way, and its end.
func (b *builder) bend(way *[]int64, to int64, left float64) {
	x0, y0 := b.metres((*way)[len(*way)-1])
	x1, y1 := b.metres(to)
	length := math.Hypot(x1-x0, y1-y0)
	parts := 1 + b.IntN(5)
	for i := 1; i < parts; i++ {
		t := float64(i) / float64(parts)
		off := 4 * t * (1 - t) * left
		*way = append(*way, b.add(x0+t*(x1-x0)-off*(y1-y0)/length, y0+t*(y1-y0)+off*(x1-x0)/length))
	}
	*way = append(*way, to)
}

// carriageway adds one side of a dual carriageway.
func (b *builder) carriageway(line int, across bool, side int) {
	forward := side == 1 // a column's eastern side leads north
	if across {
		forward = side == 0 // a row's southern side leads east
	}
	current := []int64{}
	for i := range b.size + 1 {
		for far := range 2 {
			id := b.crossing(line, i, side|far<<1)
			if across {
				id = b.crossing(i, line, far|side<<1)
			}
			switch {
			case len(current) == 0:
				current = append(current, id)
			case current[len(current)-1] == id:
			case far == 1:
				current = append(current, id)
			default:
				b.bend(&current, id, 0)
			}
		}
		if i%5 == 4 || i == b.size {
			nodes := current
			current = []int64{nodes[len(nodes)-1]}
			if len(nodes) < 2 {
				continue
			}
			if !forward {
				slices.Reverse(nodes)
			}
			b.way(nodes, "highway", "trunk", "oneway", "yes", "name", fmt.Sprint("Ring ", line))
		}
	}
}

// service adds a service road beside a road, joined to it near both ends.
func (b *builder) service(from, to int64) {
	x0, y0 := b.metres(from)
	x1, y1 := b.metres(to)
	length := math.Hypot(x1-x0, y1-y0)
	at := func(along, left float64) int64 {
		return b.add(x0+along*(x1-x0)/length-left*(y1-y0)/length, y0+along*(y1-y0)/length+left*(x1-x0)/length)
	}
	nodes := []int64{from, at(12, 15), at(length/2, 15), at(length-12, 15), to}
	b.way(nodes, "highway", "service")
}

// roundabouts replaces crossings by rings.
func (b *builder) roundabouts() {
	through := map[int64][]int{} // the ways through a node
	for w, way := range b.Ways {
		for _, id := range way.Nodes {
			through[id] = append(through[id], w)
		}
	}
	for column := range b.size {
		for row := range b.size {
			if b.kind(column).roundabout && b.kind(row).roundabout {
				b.roundabout(b.crossing(column, row, 0), through)
			}
		}
	}
}

// roundabout cuts the ways through a node and leads their ends to a ring around it.
func (b *builder) roundabout(middle int64, through map[int64][]int) {
	x, y := b.metres(middle)
	const parts = 12
	radius := 14 + 8*b.Float64()
	ring := make([]int64, 0, parts+1)
	for i := range parts { // against the clock, as where traffic keeps right
		angle := 2 * math.Pi * float64(i) / parts
		ring = append(ring, b.add(x+radius*math.Cos(angle), y+radius*math.Sin(angle)))
	}
	for _, w := range through[middle] {
		i := slices.Index(b.Ways[w].Nodes, middle)
		if i < 0 {
			continue // the way was cut at another node, and this part has moved
		}
		tags, before, after := b.Ways[w].Tags, b.Ways[w].Nodes[:i:i], b.Ways[w].Nodes[i+1:]
		if i > 0 {
			b.Ways[w].Nodes = append(before, b.nearest(ring, before[i-1]))
		}
		if len(after) == 0 {
			continue
		}
		after = append([]int64{b.nearest(ring, after[0])}, after...)
		if i == 0 {
			b.Ways[w].Nodes = after
			continue
		}
		for _, id := range after {
			through[id] = append(through[id], len(b.Ways))
		}
		b.Ways = append(b.Ways, Way{ID: int64(len(b.Ways) + 1), Nodes: after, Tags: tags})
	}
	b.way(append(ring, ring[0]), "highway", "tertiary", "junction", "roundabout")
}

func (b *builder) nearest(nodes []int64, to int64) int64 {
	x, y := b.metres(to)
	best, least := nodes[0], math.Inf(1)
	for _, id := range nodes {
		nx, ny := b.metres(id)
		if d := math.Hypot(nx-x, ny-y); d < least {
			best, least = id, d
		}
	}
	return best
}

// bridges adds a motorway from corner to corner, which crosses the streets without junctions. Slip
// roads connect its ends.
func (b *builder) bridges() {
	half := float64(b.size)/2*blockSide - 90
	parts := max(4, b.size)
	for side := range 2 {
		var nodes []int64
		off := 9 * float64(side*2-1)
		for i := range parts + 1 {
			t := float64(i)/float64(parts)*2 - 1
			x, y := t*half, t*half+60*math.Sin(3*t)
			nodes = append(nodes, b.add(x+off*0.7, y-off*0.7))
		}
		starts, ends := b.crossing(0, 0, 0), b.crossing(b.size, b.size, 0)
		if side == 0 { // the other direction
			slices.Reverse(nodes)
			starts, ends = ends, starts
		}
		for i := 0; i+1 < len(nodes); i += 8 {
			b.way(nodes[i:min(i+9, len(nodes))], "highway", "motorway", "bridge", "yes", "layer", "1")
		}
		b.way([]int64{starts, nodes[0]}, "highway", "motorway_link", "oneway", "yes")
		b.way([]int64{nodes[len(nodes)-1], ends}, "highway", "motorway_link", "oneway", "yes")
	}
}
