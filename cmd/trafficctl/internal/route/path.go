package route

import "math"

// search finds shortest paths on a network. It keeps its memory; it must not be used concurrently.
type search struct {
	*Network
	reached []reached // by node
	round   uint32
	queue   []queued // a heap
}

// reached is how a node was reached in a round.
type reached struct {
	round   uint32
	settled bool
	via     edge
	metres  float32
}

type queued struct {
	estimate float32 // of the path through node to the target
	metres   float32
	node     int32
}

func newSearch(n *Network) *search { return &search{Network: n, reached: make([]reached, len(n.ids))} }

// explore finds the shortest paths from the end of an edge to nodes, and calls found for each that
// it reaches. Each path ends with an edge of a candidate, which is near position: this and a limit
// in metres bound the search. The paths have roads of class or more important ones only, and no
// U-turns.
func (s *search) explore(from edge, targets []int32, position [2]float64, limit float64, class uint8,
	found func(target int32, metres float64),
) {
	s.round++
	s.queue = s.queue[:0]
	_, start := s.ends(from)
	reach := func(node int32, metres float32, via edge) {
		r := &s.reached[node]
		if r.round == s.round && (r.settled || r.metres <= metres) {
			return
		}
		estimate := float64(metres) + max(0, distance(s.position(node), position)-searchMetres)
		if estimate > limit {
			return
		}
		*r = reached{round: s.round, via: via, metres: metres}
		s.push(queued{float32(estimate), metres, node})
	}
	reach(start, 0, from)
	missing := len(targets)
	for len(s.queue) > 0 {
		next := s.pop()
		r := &s.reached[next.node]
		if r.settled {
			continue
		}
		r.settled = true
		for _, t := range targets {
			if t == next.node {
				found(t, float64(next.metres))
				missing--
			}
		}
		if missing <= 0 {
			return
		}
		for _, e := range s.outgoing[s.out[next.node]:s.out[next.node+1]] {
			if e != r.via.twin() && s.links[e.link()].class <= class {
				_, to := s.ends(e)
				reach(to, next.metres+s.links[e.link()].metres, e)
			}
		}
	}
}

// path returns the edges of the last exploration from the end of an edge to a node, appended to
// space.
func (s *search) path(space []edge, from edge, node int32) []edge {
	start := len(space)
	_, origin := s.ends(from)
	for node != origin {
		via := s.reached[node].via
		space = append(space, via)
		node, _ = s.ends(via)
	}
	for i, j := start, len(space)-1; i < j; i, j = i+1, j-1 {
		space[i], space[j] = space[j], space[i]
	}
	return space
}

func (s *search) push(q queued) {
	s.queue = append(s.queue, q)
	i := len(s.queue) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s.queue[parent].estimate <= q.estimate {
			break
		}
		s.queue[i] = s.queue[parent]
		i = parent
	}
	s.queue[i] = q
}

func (s *search) pop() queued {
	top, last := s.queue[0], len(s.queue)-1
	q := s.queue[last]
	s.queue = s.queue[:last]
	for i := 0; last > 0; {
		child := 2*i + 1
		if child+1 < last && s.queue[child+1].estimate < s.queue[child].estimate {
			child++
		}
		if child >= last || q.estimate <= s.queue[child].estimate {
			s.queue[i] = q
			break
		}
		s.queue[i] = s.queue[child]
		i = child
	}
	return top
}

var infinite = math.Inf(1)
