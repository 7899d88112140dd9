package town

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"trafficd/schemas/openlr"
)

// Shape of the town. Blocks, rings and radials have fixed positions, so a larger town contains
// every smaller one with the same seed.
const (
	centreLatitude, centreLongitude = 50.0, 10.0

	block     = 190.0 // metres between crossings
	collector = 4     // every fourth street of the grid is a wider one
	oldTown   = 3     // radius in blocks
	outskirts = 12    // radius in blocks, where the radials become country roads
	missing   = 0.16  // fraction of minor streets that do not exist

	metresPerDegree = 111_320.0 // of latitude
)

// firstRing is the number of the innermost ring road. The eight radials have the numbers 1 to 8.
const firstRing = 9

// rings lists the radii of the ring roads, in blocks.
var rings = []int{oldTown, 7, 15, 30, 60, 120, 240, 480}

// Town is a network of streets. It grows outwards from the centre, along fast roads first, so its
// streets are always connected. Radials meet in the centre, rings surround it, and a grid lies in
// between. Only radials and rings cross the river. A Town is immutable and safe for concurrent use.
type Town struct {
	// Streets holds the two directions of each street next to each other. If the number of elements is
	// odd, the last one is a one-way street.
	Streets []Street
	cfg     Config
}

// Config holds the size, the seed and the UTC offset of a town. Each field corresponds to the
// flag with the same name.
type Config struct {
	Streets   int
	Seed      uint64
	UTCOffset float64 // hours
}

// Street is one direction of a street between two crossings.
type Street struct {
	Number, From, To int32 // number of the street, which both directions share, and the nodes at its ends
	Class            openlr.FunctionalRoadClass
	Start, End       [2]float64 // longitude and latitude in degrees
	Length           float64    // metres
	Name             string     // says the direction too

	bend    float64 // metres from the middle of the straight line to the middle of the street, to the left
	index   uint64
	inward  float64 // 1: towards the centre, -1: away from it
	road    int     // number of the radial or ring that contains the street; 0: none
	metre   float64 // position of the street's middle along the road
	forward bool    // traffic moves towards higher values of metre
}

// Validate returns an error for the first invalid setting. The caller limits Streets.
func (c Config) Validate() error {
	if !(c.UTCOffset >= -12 && c.UTCOffset <= 14) {
		return fmt.Errorf("--utc-offset %g must be -12 to 14 hours", c.UTCOffset)
	}
	return nil
}

// NewTown generates a town.
func NewTown(cfg Config) *Town {
	g := growth{seed: cfg.Seed, nodes: map[crossing]int32{{}: 1}, built: map[[2]crossing]bool{}}
	g.plan(crossing{}, 0)
	t := &Town{cfg: cfg, Streets: make([]Street, 0, cfg.Streets+1)}
	for len(t.Streets) < cfg.Streets {
		street, reverse := g.build()
		street.index, reverse.index = uint64(len(t.Streets)), uint64(len(t.Streets)+1)
		t.Streets = append(t.Streets, street, reverse)
	}
	t.Streets = t.Streets[:cfg.Streets]
	return t
}

// OpenLR returns the location reference of the street.
func (s *Street) OpenLR() string {
	code, err := openlr.Encode(openlr.Straight(s.Start, s.End, int(s.Length), s.Class))
	if err != nil {
		panic(err) // no street of a town is too long for OpenLR
	}
	return code
}

// Course returns the longitudes and latitudes of points along the street, which is an arc.
func (s *Street) Course() (points [][2]float64) {
	const parts = 6
	across := [2]float64{s.Start[1] - s.End[1], (s.End[0] - s.Start[0])} // to the left, in degrees
	narrow := math.Cos(centreLatitude * math.Pi / 180)
	across[0], across[1] = across[0]/narrow, across[1]*narrow
	for i := range parts + 1 {
		t := float64(i) / parts
		left := 4 * t * (1 - t) * s.bend / s.Length
		points = append(points, [2]float64{
			s.Start[0] + t*(s.End[0]-s.Start[0]) + left*across[0], s.Start[1] + t*(s.End[1]-s.Start[1]) + left*across[1],
		})
	}
	return points
}

// crossing is a crossing of the grid. {0, 0} is the centre of the town.
type crossing [2]int

// radius returns c's distance from the centre in blocks, as half the side of the square through c.
func (c crossing) radius() int { return max(c[0], -c[0], c[1], -c[1]) }

// position returns the position in metres east and north of the centre. It bends the grid's squares
// into circles, more strongly away from the centre, then rotates the grid and distorts it slightly.
func (c crossing) position(seed uint64) (x, y float64) {
	u, v, r := float64(c[0]), float64(c[1]), float64(c.radius())
	if r > 0 {
		angle := math.Pi / 4 * v / r
		switch {
		case math.Abs(v) > math.Abs(u):
			angle = math.Copysign(math.Pi/2-math.Pi/4*math.Abs(u)/r, v)
			if u < 0 {
				angle = math.Copysign(math.Pi, v) - angle
			}
		case u < 0:
			angle = math.Pi - angle
		}
		round := min(1, r/7)
		u, v = u+round*(r*math.Cos(angle)-u), v+round*(r*math.Sin(angle)-v)
	}
	const turn = 0.3 // radians, because few towns are aligned with the compass
	x, y = block*(u*math.Cos(turn)-v*math.Sin(turn)), block*(u*math.Sin(turn)+v*math.Cos(turn))
	x, y = x+70*math.Sin(y/640+1)+25*math.Sin(x/310), y+70*math.Sin(x/710+2)+25*math.Sin(y/270)
	const jitter = block / 5
	return x + jitter*(chance(seed, uint64(c[0]), uint64(c[1]), 1)-0.5), y + jitter*(chance(seed, uint64(c[0]), uint64(c[1]), 2)-0.5)
}

// south reports whether a position is south of the river.
func south(x, y float64) bool { return y < -2.6*block+170*math.Sin(x/650)+60*math.Sin(x/240) }

func diagonal(a, b crossing) bool { return a[0] != b[0] && a[1] != b[1] }

// roadOf returns the number of the radial or ring that contains the street between two crossings,
// or 0 if there is none, and the position of the street's middle in metres: from the centre on a
// radial, from the east on a ring.
func roadOf(a, b crossing, x, y float64) (road int, metre float64) {
	ra, rb := a.radius(), b.radius()
	straight := func(c crossing) bool { return c[0] == 0 || c[1] == 0 || c[0] == c[1] || c[0] == -c[1] }
	switch ring := slices.Index(rings, ra); {
	case straight(a) && straight(b) && a[0]*b[1] == a[1]*b[0]:
		eighth := math.Atan2(float64(a[1]+b[1]), float64(a[0]+b[0])) / (math.Pi / 4)
		return 1 + int(math.Round(eighth))&7, math.Hypot(x, y)
	case ra == rb && ring >= 0 && !diagonal(a, b):
		return firstRing + ring, math.Atan2(y, x) * float64(ra) * block
	}
	return 0, 0
}

// growth builds a town's streets from the centre outwards.
type growth struct {
	seed  uint64
	nodes map[crossing]int32
	built map[[2]crossing]bool
	plans plans
}

// plan is a street that could be built next.
type plan struct {
	from, to crossing
	street   Street
	cost     float64 // travel time from the centre to the street's end, in seconds
}

type plans []plan

func (p plans) Len() int           { return len(p) }
func (p plans) Less(i, j int) bool { return p[i].cost < p[j].cost }
func (p plans) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)        { *p = append(*p, x.(plan)) }
func (p *plans) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// plan adds the streets that begin at a crossing to the plans.
func (g *growth) plan(from crossing, cost float64) {
	for dx := -1; dx <= 1; dx++ {
		for dy := -1; dy <= 1; dy++ {
			to := crossing{from[0] + dx, from[1] + dy}
			if s, ok := g.street(from, to); ok && to != from && !g.built[[2]crossing{to, from}] {
				heap.Push(&g.plans, plan{from, to, s, cost + s.Length/(freeSpeeds[s.Class]/3.6)})
			}
		}
	}
}

// street returns the street between two crossings. ok is false if there is none.
func (g *growth) street(from, to crossing) (s Street, ok bool) {
	x1, y1 := from.position(g.seed)
	x2, y2 := to.position(g.seed)
	s.road, s.metre = roadOf(from, to, (x1+x2)/2, (y1+y2)/2)
	outer := max(from.radius(), to.radius())
	line := from[0] // the street's line in the grid
	if from[1] == to[1] {
		line = from[1]
	}
	first := from // the same for both directions
	if to[0] < from[0] || to[1] < from[1] {
		first = to
	}
	switch vertical := uint64(to[1]-from[1]) & 1; {
	case s.road > 0 && s.road < firstRing && outer > outskirts:
		s.Class = 2
	case s.road > 0:
		s.Class = 3
	case diagonal(from, to): // diagonals exist only as radials
		return s, false
	case south(x1, y1) != south(x2, y2):
		return s, false
	case line%collector == 0 && outer > oldTown:
		s.Class = 4
	case chance(g.seed, uint64(first[0]), uint64(first[1]), 3+vertical) < missing:
		return s, false
	case outer <= oldTown:
		s.Class = 7
	default:
		s.Class = 6
	}
	s.Start, s.End = degrees(x1, y1), degrees(x2, y2)
	s.Length = math.Hypot(x2-x1, y2-y1)
	s.inward = (math.Hypot(x1, y1) - math.Hypot(x2, y2)) / s.Length
	s.forward = s.inward < 0
	s.bend = s.Length * 0.16 * (chance(g.seed, uint64(first[0]), uint64(first[1]), 10) - 0.5)
	if first != from {
		s.bend = -s.bend
	}
	if s.road >= firstRing {
		s.forward = x1*y2 > x2*y1 // counterclockwise
		s.bend = math.Copysign(s.Length*s.Length/8/math.Hypot(x1, y1), s.inwardSide())
	}
	s.Name = s.name(from, to)
	return s, true
}

// inwardSide returns -1 if a ring's outer side is on the left of the street, and 1 if it is on the
// right.
func (s *Street) inwardSide() float64 {
	if s.forward {
		return -1
	}
	return 1
}

var (
	radials = []string{"East", "Northeast", "North", "Northwest", "West", "Southwest", "South", "Southeast"}
	trees   = []string{"Chestnut", "Oak", "Linden", "Ash", "Maple", "Elm", "Birch", "Alder", "Willow", "Hazel", "Poplar", "Rowan", "Beech"}
	trades  = []string{"Market", "Baker", "Mill", "Smith", "Potter", "Weaver", "Ferry", "Cooper", "Tanner", "Mason", "Fisher", "Carter"}
)

// name returns the name of the street between two crossings, with its place on the road and its
// direction, which a reader of a list needs.
func (s *Street) name(from, to crossing) string {
	switch km := math.Abs(s.metre) / 1000; {
	case s.road >= firstRing:
		way := "clockwise"
		if s.forward {
			way = "anticlockwise"
		}
		side := "north"
		if s.metre < 0 {
			side = "south"
		}
		return fmt.Sprintf("Ring %d %s, %s km %.1f", s.road-firstRing+1, way, side, km)
	case s.road > 0:
		way := "outbound"
		if s.inward > 0 {
			way = "inbound"
		}
		return fmt.Sprintf("%s Road %s, km %.1f", radials[s.road-1], way, km)
	}
	names, line, number, ways := trees, from[0], min(from[1], to[1]), [2]string{"northbound", "southbound"}
	if from[1] == to[1] {
		names, line, number, ways = trades, from[1], min(from[0], to[0]), [2]string{"eastbound", "westbound"}
	}
	way := ways[0]
	if to[0] < from[0] || to[1] < from[1] {
		way = ways[1]
	}
	side := ""
	if line < 0 {
		line, side = -line, "Lower "
	}
	kind := map[openlr.FunctionalRoadClass]string{4: "Avenue", 7: "Lane"}[s.Class]
	return fmt.Sprintf("%s%s %s %s, block %d", side, names[line%len(names)], cmp.Or(kind, "Street"), way, number)
}

// degrees converts a position in metres to longitude and latitude.
func degrees(x, y float64) [2]float64 {
	return [2]float64{centreLongitude + x/metresPerDegree/math.Cos(centreLatitude*math.Pi/180), centreLatitude + y/metresPerDegree}
}

// build builds the planned street with the lowest cost, in both directions.
func (g *growth) build() (street, reverse Street) {
	for {
		p := heap.Pop(&g.plans).(plan)
		if g.built[[2]crossing{p.from, p.to}] || g.built[[2]crossing{p.to, p.from}] {
			continue
		}
		g.built[[2]crossing{p.from, p.to}] = true
		if g.nodes[p.to] == 0 {
			g.nodes[p.to] = int32(len(g.nodes) + 1)
			g.plan(p.to, p.cost)
		}
		street = p.street
		street.Number, street.From, street.To = int32(len(g.built)), g.nodes[p.from], g.nodes[p.to]
		reverse = street
		reverse.From, reverse.To, reverse.Start, reverse.End = street.To, street.From, street.End, street.Start
		reverse.inward, reverse.forward, reverse.bend = -street.inward, !street.forward, -street.bend
		reverse.Name = reverse.name(p.to, p.from)
		return street, reverse
	}
}

// chance returns a pseudorandom number in [0, 1) that depends only on the arguments.
func chance(seed, a, b, c uint64) float64 {
	const goldenRatio = 0x9e3779b97f4a7c15 // spreads small numbers over all bits
	return float64(rand.NewPCG(seed^a*goldenRatio, (b+1)*goldenRatio^c*0xbf58476d1ce4e5b9).Uint64()>>11) / (1 << 53)
}
