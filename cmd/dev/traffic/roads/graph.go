package roads

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"trafficd/schemas/openlr"
)

// Graph is the road network of a map, for paths whose course is known. It is read from the tags
// without the code that it tests.
type Graph struct {
	Nodes    []Node
	Crossing bool // random paths may cross themselves
	out      [][]Arc
	junction []bool
}

// Arc leads from a node to the next one of a way.
type Arc struct {
	From, To int // in Nodes
	Way      int64
	Class    openlr.FunctionalRoadClass
	Form     openlr.FormOfWay
	Metres   float64
}

// Path is a course along the map without U-turns. Its ends are in its first and last stretch
// between two junctions.
type Path struct {
	Arcs       []Arc
	Start, End float64 // metres of the first and the last stretch that do not belong to it
}

// NewGraph returns the network of a map.
func NewGraph(m *Map) *Graph {
	g := &Graph{Nodes: m.Nodes, out: make([][]Arc, len(m.Nodes)), junction: make([]bool, len(m.Nodes))}
	index := make(map[int64]int, len(m.Nodes))
	for i, n := range m.Nodes {
		index[n.ID] = i
	}
	uses := make([]int, len(m.Nodes))
	for _, w := range m.Ways {
		class, form, forward, backward := describe(w.Tags)
		for i, id := range w.Nodes {
			at, ok := index[id]
			if !ok {
				continue
			}
			uses[at]++
			before := -1
			if i > 0 {
				if k, ok := index[w.Nodes[i-1]]; ok {
					before = k
				}
			}
			if before < 0 || i == len(w.Nodes)-1 {
				uses[at] += 2
			}
			if before < 0 || before == at {
				continue
			}
			metres := distance(g.Nodes[before], g.Nodes[at])
			if forward {
				g.out[before] = append(g.out[before], Arc{before, at, w.ID, class, form, metres})
			}
			if backward {
				g.out[at] = append(g.out[at], Arc{at, before, w.ID, class, form, metres})
			}
		}
	}
	for i, n := range uses {
		g.junction[i] = n > 1
	}
	return g
}

func describe(tags [][2]string) (class openlr.FunctionalRoadClass, form openlr.FormOfWay, forward, backward bool) {
	values := map[string]string{}
	for _, t := range tags {
		values[t[0]] = t[1]
	}
	highway := values["highway"]
	for i, names := range [][]string{
		{"motorway", "motorway_link"},
		{"trunk", "trunk_link"},
		{"primary", "primary_link"},
		{"secondary", "secondary_link"},
		{"tertiary", "tertiary_link"},
		{"unclassified"},
		{"residential", "road"},
		{"living_street", "service"},
	} {
		if slices.Contains(names, highway) {
			class = openlr.FunctionalRoadClass(i)
		}
	}
	round := values["junction"] == "roundabout" || values["junction"] == "circular"
	oneway := values["oneway"]
	implied := oneway == "" && (round || highway == "motorway")
	forward = oneway != "-1" && oneway != "reverse"
	backward = !implied && oneway != "yes" && oneway != "true" && oneway != "1"
	form = openlr.SingleCarriageway
	switch {
	case round:
		form = openlr.Roundabout
	case highway == "motorway":
		form = openlr.Motorway
	case len(highway) > 5 && highway[len(highway)-5:] == "_link":
		form = openlr.SlipRoad
	case forward != backward && class <= 4:
		form = openlr.MultipleCarriageway
	}
	return class, form, forward, backward
}

func distance(a, b Node) float64 {
	x := (b.Lon - a.Lon) * math.Cos((a.Lat+b.Lat)*math.Pi/360)
	return math.Hypot(x, b.Lat-a.Lat) * 6_371_008.8 * math.Pi / 180
}

// Random returns a random path of about the given length between two junctions, or with ends in
// between. ok is false if it came to a dead end.
func (g *Graph) Random(r *rand.Rand, metres float64) (p Path, ok bool) {
	at := r.IntN(len(g.Nodes))
	if !g.junction[at] || len(g.out[at]) == 0 {
		return p, false
	}
	next := g.out[at][r.IntN(len(g.out[at]))]
	visited := map[int]bool{at: true}
	for total := 0.0; ; {
		p.Arcs = append(p.Arcs, next)
		visited[next.To] = true
		total += next.Metres
		if total >= metres && g.junction[next.To] {
			break
		}
		var choices []Arc
		for _, a := range g.out[next.To] {
			if !visited[a.To] || g.Crossing && a.To != next.From {
				choices = append(choices, a)
			}
		}
		if len(choices) == 0 || total > 3*metres+1000 {
			return p, false
		}
		next = choices[r.IntN(len(choices))]
	}
	if r.IntN(2) == 0 {
		p.Start = g.inside(r, g.stretches(p.Arcs)[0])
	}
	if stretches := g.stretches(p.Arcs); len(stretches) > 1 && r.IntN(2) == 0 {
		p.End = g.inside(r, reverse(stretches[len(stretches)-1]))
	}
	return p, true
}

func reverse(arcs []Arc) []Arc {
	arcs = slices.Clone(arcs)
	slices.Reverse(arcs)
	return arcs
}

// inside returns a position in a stretch: at a node, or far enough from all nodes for the tolerance
// of an offset in a code.
func (g *Graph) inside(r *rand.Rand, stretch []Arc) float64 {
	const least = 12
	k := r.IntN(len(stretch))
	before := 0.0
	for _, a := range stretch[:k] {
		before += a.Metres
	}
	switch size := stretch[k].Metres; {
	case size > 2*least && r.IntN(2) == 0:
		return before + least + r.Float64()*(size-2*least)
	case size > least && (k == 0 || stretch[k-1].Metres > least):
		return before
	}
	return 0
}

// Pairs returns the IDs of the nodes that the path has a part between.
func (g *Graph) Pairs(p Path) (nodes []int64) {
	total, at := p.Metres(), 0.0
	for _, a := range p.Arcs {
		if at+a.Metres > p.Start+1e-6 && at < total-p.End-1e-6 {
			if nodes == nil {
				nodes = []int64{g.Nodes[a.From].ID}
			}
			nodes = append(nodes, g.Nodes[a.To].ID)
		}
		at += a.Metres
	}
	return nodes
}

// Metres returns the length of the stretches of the path.
func (p Path) Metres() (total float64) {
	for _, a := range p.Arcs {
		total += a.Metres
	}
	return total
}

// Course returns the positions of the path's nodes, with its ends.
func (g *Graph) Course(p Path) (line [][2]float64) {
	total, at := p.Metres(), 0.0
	low, high := p.Start, total-p.End
	point := func(a Arc, share float64) [2]float64 {
		from, to := g.Nodes[a.From], g.Nodes[a.To]
		return [2]float64{from.Lon + share*(to.Lon-from.Lon), from.Lat + share*(to.Lat-from.Lat)}
	}
	for _, a := range p.Arcs {
		if at+a.Metres > low && at < high {
			if line == nil {
				line = append(line, point(a, max(0, (low-at)/a.Metres)))
			}
			line = append(line, point(a, min(1, (high-at)/a.Metres)))
		}
		at += a.Metres
	}
	return line
}

// stretches divides arcs at junctions.
func (g *Graph) stretches(arcs []Arc) (all [][]Arc) {
	start := 0
	for i, a := range arcs {
		if g.junction[a.To] || i == len(arcs)-1 {
			all = append(all, arcs[start:i+1])
			start = i + 1
		}
	}
	return all
}

// Line returns the OpenLR reference of a path. Between two of its points, the path is the shortest.
func (g *Graph) Line(p Path) openlr.Line {
	stretches := g.stretches(p.Arcs)
	var line openlr.Line
	last := len(stretches) - 1
	for i := 0; i <= last; {
		next := last + 1 // the leg is stretches i to next-1
		for j := last; j > i && !g.shortest(stretches[i], stretches[i+1:j], stretches[j]); j-- {
			next = min(next-1, last-1)
		}
		next = max(next, i+1)
		leg := slices.Concat(stretches[i:next]...)
		metres := Path{Arcs: leg}.Metres()
		point := g.point(stretches[i], false)
		point.Distance = int(metres + 0.5)
		for _, a := range leg {
			point.LowestFRC = max(point.LowestFRC, a.Class)
		}
		if i == 0 {
			line.PositiveOffset = p.Start / metres
		}
		if next > last {
			line.NegativeOffset = p.End / metres
		}
		line.Points = append(line.Points, point)
		i = next
	}
	line.Points = append(line.Points, g.point(stretches[last], true))
	return line
}

// point returns the point at the start of a stretch or, if last, at its end.
func (g *Graph) point(stretch []Arc, last bool) openlr.Point {
	a := stretch[0]
	from := g.Nodes[a.From]
	if last {
		stretch = reverse(stretch)
		a = stretch[0]
		from = g.Nodes[a.To]
	}
	rest := 20.0
	to := from
	for _, b := range stretch {
		x, y := g.Nodes[b.From], g.Nodes[b.To]
		if last {
			x, y = y, x
		}
		share := min(1, rest/b.Metres)
		to = Node{Lon: x.Lon + share*(y.Lon-x.Lon), Lat: x.Lat + share*(y.Lat-x.Lat)}
		if rest -= b.Metres; rest <= 0 {
			break
		}
	}
	angle := math.Atan2((to.Lon-from.Lon)*math.Cos(from.Lat*math.Pi/180), to.Lat-from.Lat) * 180 / math.Pi
	return openlr.Point{Lon: from.Lon, Lat: from.Lat, Bearing: math.Mod(angle+360, 360), FRC: a.Class, FOW: a.Form}
}

// shortest reports whether the stretches between two are the shortest path.
func (g *Graph) shortest(first []Arc, between [][]Arc, last []Arc) bool {
	want := slices.Concat(between...)
	metres := Path{Arcs: want}.Metres()
	from, to := first[len(first)-1].To, last[0].From
	best := map[int]float64{from: 0}
	queue := &arrivals{{0, from}}
	for queue.Len() > 0 {
		next := heap.Pop(queue).(arrival)
		if next.node == to {
			return next.metres >= metres-1e-6
		}
		if next.metres > best[next.node] {
			continue
		}
		for _, a := range g.out[next.node] {
			total := next.metres + a.Metres
			if before, ok := best[a.To]; (!ok || total < before) && total <= metres+1 {
				best[a.To] = total
				heap.Push(queue, arrival{total, a.To})
			}
		}
	}
	return false
}

type arrival struct {
	metres float64
	node   int
}

type arrivals []arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].metres < a[j].metres }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// Perturbed returns the line as a map of another maker has it: its points are moved by a number of
// metres in random directions, and their classes by one.
func Perturbed(r *rand.Rand, line openlr.Line, metres float64) openlr.Line {
	line.Points = slices.Clone(line.Points)
	for i := range line.Points {
		p := &line.Points[i]
		angle := r.Float64() * 2 * math.Pi
		p.Lon += metres * math.Cos(angle) / (111_195 * math.Cos(p.Lat*math.Pi/180))
		p.Lat += metres * math.Sin(angle) / 111_195
		p.FRC = openlr.FunctionalRoadClass(min(7, max(0, int(p.FRC)+2*r.IntN(2)-1)))
	}
	return line
}

// Stretches returns all stretches between two junctions, in each direction in which they may be
// travelled.
func (g *Graph) Stretches() (all [][]Arc) {
	for from, arcs := range g.out {
		if !g.junction[from] {
			continue
		}
		for _, next := range arcs {
			stretch := []Arc{next}
			for !g.junction[next.To] {
				i := slices.IndexFunc(g.out[next.To], func(a Arc) bool { return a.To != next.From })
				if i < 0 {
					break
				}
				next = g.out[next.To][i]
				stretch = append(stretch, next)
			}
			all = append(all, stretch)
		}
	}
	return all
}
