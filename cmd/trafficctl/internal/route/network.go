package route

import (
	"cmp"
	"math"
	"slices"

	"trafficd/schemas/openlr"
)

// Network is a road network. It is immutable, and has arrays without pointers, because a region has
// hundreds of thousands of links.
type Network struct {
	ids       []int64    // of the OSM nodes, sorted; all else refers to nodes by their index in it
	positions [][2]int32 // longitude and latitude in units of 1/degree
	links     []link
	course    []int32 // the nodes of the links
	out       []int32 // per node, the index in outgoing of its first edge; has one more element
	outgoing  []edge
	grid      []cell // sorted
}

const degree = 1e7 // OpenStreetMap's resolution

// unknown is the position of a node that is not in the map, as beyond the border of an extract.
var unknown = [2]int32{math.MinInt32, math.MinInt32}

// link is a part of a way between two junctions.
type link struct {
	road
	way         int64
	first, last int32 // in course
	metres      float32
}

// edge is a direction of a link: twice the index of the link, plus 1 against the way.
type edge int32

func (e edge) link() int32    { return int32(e >> 1) }
func (e edge) backward() bool { return e&1 == 1 }
func (e edge) twin() edge     { return e ^ 1 }

// nodes returns the nodes of an edge in the direction of travel, appended to space.
func (n *Network) nodes(space []int32, e edge) []int32 {
	l := &n.links[e.link()]
	start := len(space)
	space = append(space, n.course[l.first:l.last+1]...)
	if e.backward() {
		slices.Reverse(space[start:])
	}
	return space
}

// ends returns the first and the last node of an edge.
func (n *Network) ends(e edge) (from, to int32) {
	l := &n.links[e.link()]
	from, to = n.course[l.first], n.course[l.last]
	if e.backward() {
		from, to = to, from
	}
	return from, to
}

func (n *Network) metres(e edge) float64 { return float64(n.links[e.link()].metres) }

// position returns the longitude and latitude of a node in degrees.
func (n *Network) position(node int32) [2]float64 {
	p := n.positions[node]
	return [2]float64{float64(p[0]) / degree, float64(p[1]) / degree}
}

// metresPerDegree is the length of a degree of latitude on a sphere with the earth's mean radius.
const metresPerDegree = 6_371_008.8 * math.Pi / 180

// vector returns the metres east and north from a to b, on a plane that touches the earth near
// them.
func vector(a, b [2]float64) (x, y float64) {
	return (b[0] - a[0]) * metresPerDegree * math.Cos((a[1]+b[1])*math.Pi/360), (b[1] - a[1]) * metresPerDegree
}

// Distance returns the metres between two points near each other.
func Distance(a, b [2]float64) float64 { return math.Hypot(vector(a, b)) }

// bearing returns the direction from a to b in degrees clockwise from north.
func bearing(a, b [2]float64) float64 {
	x, y := vector(a, b)
	return math.Mod(math.Atan2(x, y)*180/math.Pi+360, 360)
}

// between returns the point at a share of the way from a to b.
func between(a, b [2]float64, share float64) [2]float64 {
	return [2]float64{a[0] + share*(b[0]-a[0]), a[1] + share*(b[1]-a[1])}
}

// connect divides the ways into links at junctions: nodes at which a way ends, or that are more
// than once in a way. A way is interrupted at unknown nodes.
func (n *Network) connect(all *ways) {
	course := make([]int32, len(all.nodes))
	uses := make([]uint8, len(n.ids))
	use := func(i, times int32) { uses[i] = uint8(min(int32(uses[i])+times, 2)) }
	start := int32(0)
	for _, end := range all.ends {
		for k := start; k < end; k++ {
			i, _ := slices.BinarySearch(n.ids, all.nodes[k])
			course[k] = int32(i)
			use(int32(i), 1)
		}
		if end > start {
			use(course[start], 2)
			use(course[end-1], 2)
		}
		start = end
	}
	all.nodes = nil
	n.course = make([]int32, 0, len(course)+len(course)/4)
	start = 0
	for w, end := range all.ends {
		l := link{road: all.roads[w], way: all.ids[w], first: int32(len(n.course))}
		for _, node := range course[start:end] {
			size := int32(len(n.course)) - l.first
			if n.positions[node] == unknown {
				n.add(&l)
				continue
			}
			if size > 0 && n.course[len(n.course)-1] == node {
				continue
			}
			n.course = append(n.course, node)
			if size > 0 && uses[node] > 1 {
				n.add(&l)
				n.course = append(n.course, node)
			}
		}
		n.add(&l)
		start = end
	}
	n.course, n.links = slices.Clip(n.course), slices.Clip(n.links)
	n.orient()
}

// add ends the link l with the last node of the course, and starts the next one.
func (n *Network) add(l *link) {
	l.last = int32(len(n.course)) - 1
	if l.last > l.first {
		metres := 0.0
		for i := l.first; i < l.last; i++ {
			metres += Distance(n.position(n.course[i]), n.position(n.course[i+1]))
		}
		l.metres = float32(metres)
		n.links = append(n.links, *l)
	} else {
		n.course = n.course[:l.first]
	}
	l.first = int32(len(n.course))
}

// allowed reports whether cars may travel along an edge.
func (n *Network) allowed(e edge) bool {
	direction := n.links[e.link()].direction
	return direction == 0 || direction > 0 != e.backward()
}

// orient lists the edges that leave each node.
func (n *Network) orient() {
	each := func(visit func(from int32, e edge)) {
		for i := range n.links {
			for _, e := range [2]edge{edge(2 * i), edge(2*i + 1)} {
				if from, _ := n.ends(e); n.allowed(e) {
					visit(from, e)
				}
			}
		}
	}
	n.out = make([]int32, len(n.ids)+1)
	each(func(from int32, _ edge) { n.out[from]++ })
	total := int32(0)
	for i, count := range n.out { // out[i]: where the edges of node i end
		total += count
		n.out[i] = total
	}
	n.outgoing = make([]edge, total)
	each(func(from int32, e edge) {
		n.out[from]--
		n.outgoing[n.out[from]] = e
	})
}

// cell says that a segment of a link is in a square of the map.
type cell struct {
	square  uint64
	link    int32
	segment int32 // the index in course of its first node
}

const squareDegrees = 0.002 // about 200 m; most searches visit one or two squares

func squareOf(x, y int) uint64 { return uint64(uint32(x))<<32 | uint64(uint32(y)) }

// squares calls visit for each square between two corners in degrees.
func squares(low, high [2]float64, visit func(square uint64)) {
	floor := func(v float64) int { return int(math.Floor(v / squareDegrees)) }
	for x := floor(low[0]); x <= floor(high[0]); x++ {
		for y := floor(low[1]); y <= floor(high[1]); y++ {
			visit(squareOf(x, y))
		}
	}
}

func (n *Network) index() {
	n.grid = make([]cell, 0, len(n.course)*3/2)
	for i, l := range n.links {
		for s := l.first; s < l.last; s++ {
			a, b := n.position(n.course[s]), n.position(n.course[s+1])
			low, high := [2]float64{min(a[0], b[0]), min(a[1], b[1])}, [2]float64{max(a[0], b[0]), max(a[1], b[1])}
			squares(low, high, func(square uint64) { n.grid = append(n.grid, cell{square, int32(i), s}) })
		}
	}
	slices.SortFunc(n.grid, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.square, b.square), cmp.Compare(a.segment, b.segment))
	})
}

// near calls visit for each segment that may be within a radius of a position. It may visit a long
// segment more than once.
func (n *Network) near(p [2]float64, radius float64, visit func(link, segment int32)) {
	up := radius / metresPerDegree
	right := up / max(math.Cos(p[1]*math.Pi/180), 1e-3)
	squares([2]float64{p[0] - right, p[1] - up}, [2]float64{p[0] + right, p[1] + up}, func(square uint64) {
		i, _ := slices.BinarySearchFunc(n.grid, square, func(c cell, s uint64) int { return cmp.Compare(c.square, s) })
		for ; i < len(n.grid) && n.grid[i].square == square; i++ {
			visit(n.grid[i].link, n.grid[i].segment)
		}
	})
}

// project returns the metres from p to the segment, and the share of the segment that precedes the
// closest point.
func (n *Network) project(p [2]float64, segment int32) (metres, share float64) {
	a, b := n.position(n.course[segment]), n.position(n.course[segment+1])
	px, py := vector(a, p)
	x, y := vector(a, b)
	if square := x*x + y*y; square > 0 {
		share = min(max((px*x+py*y)/square, 0), 1)
	}
	return math.Hypot(px-share*x, py-share*y), share
}

// along returns the point of an edge at a number of metres from its start.
func (n *Network) along(e edge, metres float64) [2]float64 {
	l := &n.links[e.link()]
	if e.backward() {
		metres = float64(l.metres) - metres
	}
	for i := l.first; ; i++ {
		a, b := n.position(n.course[i]), n.position(n.course[i+1])
		size := Distance(a, b)
		if metres <= size || i+1 == l.last {
			return between(a, b, min(max(metres, 0)/max(size, 1e-3), 1))
		}
		metres -= size
	}
}

// Links returns the number of links of the network.
func (n *Network) Links() int { return len(n.links) }

// formCost returns what the difference of two forms of way costs, in metres.
func formCost(want, got openlr.FormOfWay) float64 {
	plain := func(f openlr.FormOfWay) bool {
		return f == openlr.Motorway || f == openlr.MultipleCarriageway || f == openlr.SingleCarriageway
	}
	switch {
	case want == got || want == openlr.Undefined || want == openlr.OtherForm:
		return 0
	case plain(want) && plain(got):
		return 3
	}
	return 6
}
