package layers

import (
	"maps"
	"slices"
	"time"
)

// changes are what a feed said since some time: the forecast of each street
// that it named, nil where it was removed. The last word counts.
type changes struct {
	replace bool // the streets not named are removed
	streets map[key]*street
}

func (c *changes) put(s *street) { c.set(s.id, s) }

func (c *changes) set(k key, s *street) {
	if c.streets == nil {
		c.streets = map[key]*street{}
	}
	c.streets[k] = s
}

// follow adds later changes. They are c's from now on.
func (c *changes) follow(later changes) {
	if later.replace || c.streets == nil {
		c.replace = c.replace || later.replace
		c.streets = later.streets
		return
	}
	maps.Copy(c.streets, later.streets)
}

func (c *changes) empty() bool { return !c.replace && len(c.streets) == 0 }

// keepEnded is for how long streets are kept that have nothing to show any
// more: a clock that is set back may need them again.
const keepEnded = instant(time.Hour / time.Microsecond)

// apply gives the streets after the changes, in order. A street that says what it
// said before stays the same value, so that nothing is built for it. Those that
// ended long before now are left out.
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
		switch {
		case len(named) > 0 && named[0] == old.id:
			add(unlessSame(old, c.streets[old.id]))
			named = named[1:]
		case !c.replace:
			add(old)
		}
	}
	for _, k := range named {
		add(c.streets[k])
	}
	return next
}

func unlessSame(old, latest *street) *street {
	if latest != nil && old.same(latest) {
		return old
	}
	return latest
}
