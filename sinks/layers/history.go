package layers

import (
	"math"
	"slices"
	"sync"
	"time"
)

// keepVersions is how long the parameter since accepts a version after its last build. It is less
// than keepEnded, so that the builder still has all streets that the version showed.
const keepVersions = 55 * time.Minute

// version describes the last build that contains a document with a certain content.
type version struct {
	zone   string
	scope  scope
	number uint64    // number of the build
	ref    instant   // the reference time
	built  time.Time // when the build was made
}

// history holds versions of all documents, by the hash of their content.
type history struct {
	mu       sync.Mutex
	versions map[uint64]version
}

// record adds the documents of the snapshot, and deletes versions that are too old.
func (h *history) record(s *snapshot, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sum, v := range h.versions {
		if now.Sub(v.built) > keepVersions {
			delete(h.versions, sum)
		}
	}
	for _, documents := range s.zones {
		for _, d := range documents {
			if d.built {
				h.versions[d.sum] = version{d.zone.name, d.scope, s.number, s.ref, now}
			}
		}
	}
}

// find returns the version of the document that had the content with this hash. known is false if
// the content is unknown or belongs to another time zone or scope.
func (h *history) find(d *document, sum uint64) (v version, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, known = h.versions[sum]
	return v, known && v.zone == d.zone.name && v.scope == d.scope
}

// Limits on the changes that are kept for clients that follow a document, which therefore take no
// more memory than the layer. Changes since other versions are made for a single request.
const (
	followedVersions = 8
	followedShare    = 2 // changes contain at most one in this many streets; otherwise, clients get the whole layer
)

// followed holds the changes since the versions that clients have.
type followed struct {
	mu     sync.Mutex
	pieces map[uint64]*piece // by number of the version; nil means that clients get the whole layer
	size   int               // number of streets in pieces, at most that of the layer
}

// changesSince returns a piece with the streets that have changed since the version. ok is false if
// there are too many, or if the code of a street has changed, because the street may have moved out
// of the tile or bounding box that the client follows.
//
// For 1,000 streets of 12 periods with random speeds the message takes 754 kB, which gzip
// compresses to 51 kB and zstd to 52 kB. Street and node numbers take 7 kB of this. OpenLR codes
// would add 18 kB, because they do not compress.
func (d *document) changesSince(s *snapshot, v version) (p *piece, ok bool) {
	f := &d.followed
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.pieces[v.number]; known {
		return p, p != nil
	}
	size, limit := 0, max(s.streets, 100)
	if p, ok = d.changed(s, v); ok && len(p.streets)*followedShare <= limit {
		size = len(p.streets)
	} else {
		p, ok = nil, false
	}
	if len(f.pieces) < followedVersions && f.size+size <= limit {
		if f.pieces == nil {
			f.pieces = map[uint64]*piece{}
		}
		f.pieces[v.number], f.size = p, f.size+size
	} else if ok {
		p.own = true
	}
	return p, ok
}

// changed returns the streets that may differ between the version and the snapshot: those with a
// different forecast, those that show different periods at the new reference time, and those that
// were removed, without periods. It omits the codes of streets that a client with the version
// already has. ok is false if the code of a street has changed.
func (d *document) changed(s *snapshot, v version) (p *piece, ok bool) {
	before, after := d.scope.view(v.ref), d.scope.view(s.ref)
	var periodsBefore, periodsNow []int
	var bare []*street
	p = &piece{view: after, zone: d.zone, every: true}
	for _, st := range s.numbered { // they compress best in this order
		changed, held := st.firstBuild > v.number, st.shownSince <= v.number
		if !changed && v.ref != s.ref {
			periodsBefore, _, _ = before.pick(periodsBefore[:0], st)
			periodsNow, _, _ = after.pick(periodsNow[:0], st)
			changed, held = !slices.Equal(periodsBefore, periodsNow), len(periodsBefore) > 0
		}
		switch {
		case changed && held:
			bare = append(bare, st)
		case changed:
			p.streets = append(p.streets, st)
		}
	}
	gone := map[key]bool{}
	for _, r := range s.removed {
		if r.number <= v.number {
			continue
		}
		i, exists := search(s.numbered, r.id)
		switch {
		case exists && s.numbered[i].code != r.code:
			return nil, false
		case !exists && !gone[r.id]:
			gone[r.id] = true
			bare = append(bare, &street{id: r.id, located: r.located, place: r.place})
		}
	}
	p.streets, p.bare = append(p.streets, bare...), len(bare)
	return p, true
}

// search returns the index of the street with the key. If there is none, it returns false and the
// index of the next street. The streets are ordered by key.
func search(streets []*street, k key) (index int, found bool) {
	return slices.BinarySearchFunc(streets, k, func(s *street, k key) int { return s.id.compare(k) })
}

// entries returns all streets with the given street number, which differ in fromnode.
func (s *snapshot) entries(number int32) []*street {
	from, _ := search(s.numbered, key{number, math.MinInt32})
	to := from
	for to < len(s.numbered) && s.numbered[to].id.street == number {
		to++
	}
	return s.numbered[from:to]
}

// waiters counts the requests that wait for a change, by contract.Client.Owner.
type waiters struct {
	mu    sync.Mutex
	count map[string]int
}

// enter reports whether another request of the owner may wait. If so, it counts the request, and
// the caller must call leave afterwards.
func (w *waiters) enter(owner string, limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[owner] >= limit {
		return false
	}
	w.count[owner]++
	return true
}

func (w *waiters) leave(owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[owner]--; w.count[owner] == 0 {
		delete(w.count, owner)
	}
}
