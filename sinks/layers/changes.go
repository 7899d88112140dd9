package layers

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// changes holds a feed's updates: the latest forecast of each changed street, or nil if the street
// was removed.
type changes struct {
	replace bool // all other streets are removed
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

// keepEnded is how long streets are kept after the end of their last period, in case the clock is
// set back.
const keepEnded = instant(time.Hour / time.Microsecond)

// apply returns the streets after the changes, ordered by key and without those that ended more
// than keepEnded before the reference time, and the streets that were removed or whose code
// changed. It keeps the old *street if the forecast is the same, so that nothing is rebuilt. New
// and changed streets get the number of the build. farthest is the reference time plus the longest
// horizon.
func (c *changes) apply(streets []*street, build uint64, ref, farthest instant) (next, removed []*street) {
	changed := slices.SortedFunc(maps.Keys(c.streets), key.compare)
	next = make([]*street, 0, len(streets)+len(changed))
	add := func(s *street) (added bool) {
		if s == nil || s.ended(ref-keepEnded) {
			return false
		}
		if s.firstBuild == 0 {
			s.firstBuild, s.reach = build, s.reachFrom(ref)
			s.shownSince = cmp.Or(s.shownSince, build)
		}
		next = append(next, s)
		return true
	}
	for _, old := range streets {
		for len(changed) > 0 && changed[0].compare(old.id) < 0 {
			add(c.streets[changed[0]])
			changed = changed[1:]
		}
		latest := old
		switch {
		case len(changed) > 0 && changed[0] == old.id:
			switch latest = c.streets[old.id]; {
			case latest == nil:
			case old.equal(latest):
				latest = old
			case old.code != latest.code:
				removed = append(removed, old)
			case old.reach > farthest:
				latest.shownSince = old.shownSince
			}
			changed = changed[1:]
		case c.replace:
			latest = nil
		}
		if !add(latest) {
			removed = append(removed, old)
		}
	}
	for _, k := range changed {
		add(c.streets[k])
	}
	return next, removed
}
