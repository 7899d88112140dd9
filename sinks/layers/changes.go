package layers

import (
	"maps"
	"slices"
	"time"
)

// changes are updates of a feed: the latest forecast of each street named, nil where it was removed.
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

// apply returns the streets after the changes, in order, without those that ended long before now.
// A street whose forecast is unchanged keeps its identity, so that nothing is rebuilt for it.
func (c *changes) apply(streets []*street, now instant) []*street {
	named := slices.SortedFunc(maps.Keys(c.streets), key.compare)
	next := make([]*street, 0, len(streets)+len(named))
	add := func(s *street) {
		if s != nil && !s.ended(now-keepEnded) {
			next = append(next, s)
		}
	}
	for _, old := range streets {
		for len(named) > 0 && named[0].compare(old.id) < 0 {
			add(c.streets[named[0]])
			named = named[1:]
		}
		if len(named) == 0 || named[0] != old.id {
			if !c.replace {
				add(old)
			}
			continue
		}
		latest := c.streets[old.id]
		if latest != nil && old.equal(latest) {
			latest = old
		}
		add(latest)
		named = named[1:]
	}
	for _, k := range named {
		add(c.streets[k])
	}
	return next
}
