package route

import (
	"container/heap"
	"math"
)

// search finds shortest paths on a network. It keeps its memory; it must not be used concurrently.
type search struct {
	*Network
	reached []reached // by node
	round   uint32
	queue   queue
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
		estimate := float64(metres) + max(0, Distance(s.position(node), position)-searchMetres)
		if estimate > limit {
			return
		}
		*r = reached{round: s.round, via: via, metres: metres}
		heap.Push(&s.queue, queued{float32(estimate), metres, node})
	}
	reach(start, 0, from)
	missing := len(targets)
	for len(s.queue) > 0 {
		next := heap.Pop(&s.queue).(queued)
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

// queue is a heap.
type queue []queued

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].estimate < q[j].estimate }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

var infinite = math.Inf(1)
