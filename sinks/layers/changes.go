package layers

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// changes are updates of a feed: the latest forecast of each street named, nil where it was
// removed.
type changes struct {
	replace bool // streets not named are removed
	streets map[key]*street
}

func (c *changes) set(k key, s *street) {
	if c.streets == nil {
		c.streets = map[key]*street{}
	}
	c.streets[k] = s
}

// merge adds later changes and takes ownership of them.
func (c *changes) merge(later changes) {
	if later.replace || c.streets == nil {
		c.replace = c.replace || later.replace
		c.streets = later.streets
		return
	}
	maps.Copy(c.streets, later.streets)
}

func (c *changes) empty() bool { return !c.replace && len(c.streets) == 0 }

// keepEnded is how long streets are kept after their last period: the clock may be set back.
const keepEnded = instant(time.Hour / time.Microsecond)

// apply returns the streets after the changes, by number, without those that ended long before the
// reference time, and the streets that it removed or that have another code now. A street whose
// forecast is unchanged keeps its identity, so that nothing is rebuilt for it; the others get the
// number of the build. farthest is the time that the last horizon shows.
func (c *changes) apply(streets []*street, build uint64, ref, farthest instant) (next, removed []*street) {
	named := slices.SortedFunc(maps.Keys(c.streets), key.compare)
	next = make([]*street, 0, len(streets)+len(named))
	add := func(s *street) (added bool) {
		if s == nil || s.ended(ref-keepEnded) {
			return false
		}
		if s.number == 0 {
			s.number, s.reach = build, s.reaches(ref)
			s.held = cmp.Or(s.held, build)
		}
		next = append(next, s)
		return true
	}
	for _, old := range streets {
		for len(named) > 0 && named[0].compare(old.id) < 0 {
			add(c.streets[named[0]])
			named = named[1:]
		}
		latest := old
		switch {
		case len(named) > 0 && named[0] == old.id:
			switch latest = c.streets[old.id]; {
			case latest == nil:
			case old.equal(latest):
				latest = old
			case old.code != latest.code:
				removed = append(removed, old)
			case old.reach > farthest:
				latest.held = old.held
			}
			named = named[1:]
		case c.replace:
			latest = nil
		}
		if !add(latest) {
			removed = append(removed, old)
		}
	}
	for _, k := range named {
		add(c.streets[k])
	}
	return next, removed
}
