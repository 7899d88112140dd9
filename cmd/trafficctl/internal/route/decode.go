package route

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"trafficd/schemas/openlr"
)

// The rating of a candidate and of a combination is a cost in metres: how far the point, or the
// length of a path, would have to be off. The sum decides.
const (
	searchMetres  = 40   // candidates are at most so far from a point
	bearingLimit  = 75   // largest difference of bearings in degrees
	bearingCost   = 0.3  // metres per degree
	classCost     = 4    // per class
	lengthCost    = 0.3  // per metre beyond the tolerance
	lengthShare   = 0.25 // largest difference of a path's length
	lengthMetres  = 80   // the same for short paths
	maxCandidates = 8    // per point
	nodeMetres    = 2    // an end of a street that is so near to a node is there

	// lowestTolerance is how many classes less important than the code says a path may be, because
	// maps assign classes differently. Without such a path, roads of any class are used.
	lowestTolerance = 1
	anyClass        = 7

	// ambiguousMargin is how much more a path may cost that makes the best one ambiguous.
	ambiguousMargin = 3
)

// The causes of an unmatched street, the beginnings of Reason.
const (
	InvalidCode = "invalid code"
	Outside     = "outside the map"
	NoRoad      = "no road"
	NoPath      = "no path"
	NoLength    = "no length"
)

// candidate is a position on an edge that a point may mean.
type candidate struct {
	edge edge
	at   float64 // metres from the start of the edge
	cost float64
}

// state is the best combination up to a candidate, and from it on.
type state struct {
	candidate
	before, after  float64
	previous, next int
	toNext         [maxCandidates]float64 // cost of the path to each candidate of the next point
	direct         [maxCandidates]bool    // that path does not leave the edge
}

// matcher matches one street after the other.
type matcher struct {
	search
	columns   [][]state // candidates of each point
	tolerance uint8     // added to the least important class of a reference
	best      map[edge]candidate
	targets   []int32
}

// MatchAll matches streets on all processors. It calls progress after each street.
func MatchAll(ctx context.Context, n *Network, streets []Street, progress func()) ([]Match, error) {
	matches := make([]Match, len(streets))
	var next atomic.Int64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			m := &matcher{search: *newSearch(n), best: make(map[edge]candidate)}
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(streets) {
					return
				}
				matches[i] = m.match(&streets[i])
				progress()
			}
		})
	}
	running.Wait()
	return matches, ctx.Err()
}

// match matches a street by its geometry or, if that fails, by its code.
func (m *matcher) match(s *Street) Match {
	match := Match{State: Unmatched, Reason: InvalidCode + ": it has neither a code nor a geometry"}
	if r, ok := fromGeometry(s.Geometry); ok {
		match = m.find(&r)
	}
	if match.State != Matched && s.OpenLR != "" {
		r, err := fromCode(s.OpenLR)
		switch {
		case err == nil:
			if second := m.find(&r); second.State == Matched || match.State == Unmatched {
				match = second
			}
		case match.State == Unmatched:
			match.Reason = InvalidCode + ": " + err.Error()
		}
	}
	match.Street, match.FromNode = s.Street, s.FromNode
	return match
}

func unmatched(cause, format string, args ...any) Match {
	return Match{State: Unmatched, Reason: cause + ": " + fmt.Sprintf(format, args...)}
}

// find finds the best path of a reference.
func (m *matcher) find(r *reference) Match {
	last := len(r.points) - 1
	for len(m.columns) <= last {
		m.columns = append(m.columns, nil)
	}
	for k := range r.points {
		if fault := m.candidates(&r.points[k], k, last); fault != nil {
			return *fault
		}
	}
	m.tolerance = lowestTolerance
	cost, broken := m.combine(r)
	if cost == infinite {
		m.tolerance = anyClass
		cost, broken = m.combine(r)
	}
	if cost == infinite {
		a, b := &r.points[broken], &r.points[broken+1]
		return unmatched(NoPath, "none of about %.0f m leads from (%.5f, %.5f) to (%.5f, %.5f)",
			a.metres, a.position[0], a.position[1], b.position[0], b.position[1])
	}
	match, ok := m.build(r, m.through(last, last, m.cheapest(last)))
	if !ok {
		return unmatched(NoLength, "the offsets leave nothing of the path")
	}
	if other := m.rival(r, cost, &match); other != nil {
		match.State = Ambiguous
		match.Reason = fmt.Sprintf("another path is nearly as likely: from node %d to node %d in %.0f m",
			other.Nodes[0], other.Nodes[len(other.Nodes)-1], other.Length)
	}
	return match
}

// rival returns another path that costs at most ambiguousMargin more than the best, or nil.
func (m *matcher) rival(r *reference, cost float64, best *Match) *Match {
	last := len(r.points) - 1
	for k := range r.points {
		for j, s := range m.columns[k] {
			if s.before+s.after > cost+ambiguousMargin {
				continue
			}
			other, ok := m.build(r, m.through(last, k, j))
			if ok && !slices.Equal(other.Nodes, best.Nodes) {
				return &other
			}
		}
	}
	return nil
}

// candidates sets the candidates of point k. It returns the reason if there are none.
func (m *matcher) candidates(p *point, k, last int) *Match {
	clear(m.best)
	near := false
	m.near(p.position, searchMetres, func(link, segment int32) {
		away, share := m.project(p.position, segment)
		if away > searchMetres {
			return
		}
		near = true
		l := &m.links[link]
		along := 0.0
		for i := l.first; i < segment; i++ {
			along += Distance(m.position(m.course[i]), m.position(m.course[i+1]))
		}
		along += share * Distance(m.position(m.course[segment]), m.position(m.course[segment+1]))
		for _, e := range [2]edge{edge(2 * link), edge(2*link + 1)} {
			if m.allowed(e) {
				at := along
				if e.backward() {
					at = float64(l.metres) - along
				}
				m.consider(p, e, at, k == last)
			}
		}
	})
	if len(m.best) == 0 {
		fault := unmatched(NoRoad, "none within %d m of (%.5f, %.5f) leads in the direction of %.0f°",
			searchMetres, p.position[0], p.position[1], p.bearing)
		if !near {
			fault = unmatched(NoRoad, "none within %d m of (%.5f, %.5f)", searchMetres, p.position[0], p.position[1])
			found := false
			m.near(p.position, 2000, func(_, _ int32) { found = true })
			if !found {
				fault = unmatched(Outside, "(%.5f, %.5f) is far from all roads", p.position[0], p.position[1])
			}
		}
		return &fault
	}
	column := m.columns[k][:0]
	for _, c := range m.best {
		column = append(column, state{candidate: c})
	}
	slices.SortFunc(column, func(a, b state) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.edge, b.edge)) })
	m.columns[k] = column[:min(len(column), maxCandidates)]
	return nil
}

// consider adds a position on an edge to the candidates unless the edge has a better one.
func (m *matcher) consider(p *point, e edge, at float64, last bool) {
	size := m.metres(e)
	cost := 0.0
	switch toStart, toEnd := at <= p.snap, size-at <= p.snap; {
	case last && toEnd:
		at = size
	case !last && toStart:
		at = 0
	case toStart || toEnd: // nothing of the edge would be used
		return
	default:
		cost = p.inside
	}
	here, there := m.along(e, at), min(at+bearingMetres, size)
	if last {
		there = max(at-bearingMetres, 0)
	}
	cost += Distance(here, p.position)
	if math.Abs(there-at) > 1 {
		off := math.Abs(math.Remainder(bearing(here, m.along(e, there))-p.bearing, 360))
		if off > bearingLimit {
			return
		}
		if !p.guessed {
			cost += bearingCost * max(0, off-openlr.BearingTolerance) * math.Abs(there-at) / bearingMetres
		}
	}
	if l := &m.links[e.link()]; p.described {
		cost += classCost*math.Abs(float64(l.class)-float64(p.class)) + formCost(p.form, l.form)
	}
	if before, ok := m.best[e]; !ok || cost < before.cost {
		m.best[e] = candidate{e, at, cost}
	}
}

// combine sets the cheapest combinations before and after each candidate, and returns the cost of
// the best, or infinite and the first point after which there is no path.
func (m *matcher) combine(r *reference) (cost float64, broken int) {
	last := len(r.points) - 1
	for i := range m.columns[0] {
		m.columns[0][i].before = m.columns[0][i].cost
	}
	for k := range last {
		here, there := m.columns[k], m.columns[k+1]
		for j := range there {
			there[j].before = infinite
		}
		for i := range here {
			m.connectTo(r, k, &here[i], there)
			for j, path := range here[i].toNext[:len(there)] {
				if total := here[i].before + path + there[j].cost; total < there[j].before {
					there[j].before, there[j].previous = total, i
				}
			}
		}
		if m.columns[k+1][m.cheapest(k+1)].before == infinite {
			return infinite, k
		}
	}
	for j := range m.columns[last] {
		m.columns[last][j].after = 0
	}
	for k := last - 1; k >= 0; k-- {
		for i := range m.columns[k] {
			s := &m.columns[k][i]
			s.after = infinite
			for j, path := range s.toNext[:len(m.columns[k+1])] {
				next := &m.columns[k+1][j]
				if total := path + next.cost + next.after; total < s.after {
					s.after, s.next = total, j
				}
			}
		}
	}
	return m.columns[last][m.cheapest(last)].before, 0
}

// cheapest returns the index of the candidate of point k with the cheapest combination before it.
func (m *matcher) cheapest(k int) int {
	best := 0
	for j, s := range m.columns[k] {
		if s.before < m.columns[k][best].before {
			best = j
		}
	}
	return best
}

// connectTo sets the costs of the paths from a candidate of point k to those of the next point.
func (m *matcher) connectTo(r *reference, k int, from *state, there []state) {
	rest := m.metres(from.edge) - from.at
	p := &r.points[k]
	cost := func(length float64) float64 {
		off := math.Abs(length-p.metres) - r.tolerance
		if off > p.leeway() {
			return infinite
		}
		return lengthCost * max(0, off)
	}
	m.targets = m.targets[:0]
	for j := range there {
		to := &there[j]
		from.toNext[j], from.direct[j] = infinite, from.edge == to.edge && from.at <= to.at
		if from.direct[j] {
			from.toNext[j] = cost(to.at - from.at)
		}
		// A path that returns to the edge may have the length of the code, such as around a roundabout.
		if start, _ := m.ends(to.edge); from.toNext[j] > 0 && !slices.Contains(m.targets, start) {
			m.targets = append(m.targets, start)
		}
	}
	if from.before == infinite || len(m.targets) == 0 {
		return
	}
	m.leave(r, k, from, m.targets, func(target int32, length float64) {
		for j := range there {
			to := &there[j]
			if start, _ := m.ends(to.edge); start == target && m.reached[target].via != to.edge.twin() {
				if c := cost(rest + length + to.at); c < from.toNext[j] {
					from.toNext[j], from.direct[j] = c, false
				}
			}
		}
	})
}

// leeway is how far the length of the path after a point may be off.
func (p *point) leeway() float64 { return max(lengthMetres, lengthShare*p.metres) }

// leave explores the paths from a candidate of point k to the nodes where candidates of the next
// point begin.
func (m *matcher) leave(r *reference, k int, from *state, targets []int32, found func(target int32, metres float64)) {
	p, class := &r.points[k], uint8(anyClass)
	if p.described {
		class = min(anyClass, p.lowest+m.tolerance)
	}
	limit := p.metres + r.tolerance + p.leeway() - (m.metres(from.edge) - from.at)
	m.explore(from.edge, targets, r.points[k+1].position, limit, class, found)
}

// through returns the candidates of the best combination through candidate j of point k.
func (m *matcher) through(last, k, j int) []int {
	chosen := make([]int, last+1)
	chosen[k] = j
	for i := k; i > 0; i-- {
		chosen[i-1] = m.columns[i][chosen[i]].previous
	}
	for i := k; i < last; i++ {
		chosen[i+1] = m.columns[i][chosen[i]].next
	}
	return chosen
}

// build returns the path through candidates without the offsets. ok is false if nothing is left.
func (m *matcher) build(r *reference, chosen []int) (match Match, ok bool) {
	last := len(chosen) - 1
	first, final := &m.columns[0][chosen[0]], &m.columns[last][chosen[last]]
	edges := []edge{first.edge}
	var firstLeg, leg float64
	for k := range last {
		from, to := &m.columns[k][chosen[k]], &m.columns[k+1][chosen[k+1]]
		leg = to.at - from.at
		if !from.direct[chosen[k+1]] {
			start, _ := m.ends(to.edge)
			m.leave(r, k, from, []int32{start}, func(_ int32, length float64) { leg += m.metres(from.edge) + length })
			edges = append(m.path(edges, from.edge, start), to.edge)
		}
		if k == 0 {
			firstLeg = leg
		}
	}
	var nodes []int32
	var ways []int64
	for _, e := range edges {
		nodes = nodes[:max(0, len(nodes)-1)] // the edge begins where the previous one ends
		nodes = m.nodes(nodes, e)
		for len(ways) < len(nodes)-1 {
			ways = append(ways, m.links[e.link()].way)
		}
	}
	at := make([]float64, len(nodes)) // metres from the first node
	for i := 1; i < len(nodes); i++ {
		at[i] = at[i-1] + Distance(m.position(nodes[i-1]), m.position(nodes[i]))
	}
	total := at[len(at)-1]
	start := cut(at, first.at, firstLeg, r.positive)
	end := cut(at, total-m.metres(final.edge)+final.at, -leg, r.negative)
	if start >= end {
		return match, false
	}
	i, _ := slices.BinarySearch(at, start+1e-6)
	k, _ := slices.BinarySearch(at, end-1e-6)
	i, k = i-1, min(k, len(at)-1)
	match = Match{State: Matched, Ways: ways[i:k], PositiveOffset: start - at[i], NegativeOffset: at[k] - end, Length: end - start}
	for _, node := range nodes[i : k+1] {
		match.Nodes, match.Coordinates = append(match.Nodes, m.ids[node]), append(match.Coordinates, m.position(node))
	}
	return match, true
}

// cut returns a position moved by a share of a leg. If there is a node within the share's
// tolerance, it returns the node's position: most streets end at nodes.
func cut(at []float64, position, leg, share float64) float64 {
	tolerance := float64(nodeMetres)
	if share > 0 {
		position += share * leg
		tolerance += openlr.OffsetTolerance * math.Abs(leg)
	}
	i, _ := slices.BinarySearch(at, position)
	best := at[min(i, len(at)-1)]
	if i > 0 && position-at[i-1] < best-position {
		best = at[i-1]
	}
	if math.Abs(best-position) <= tolerance {
		return best
	}
	return max(position, 0)
}
