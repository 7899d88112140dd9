// Package shrink prevents truncated content from replacing complete content.
package shrink

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/settings"
)

// Limits holds the settings that limit how much content may shrink.
type Limits struct {
	MaxShrink float64 `setting:"max_shrink"` // maximum fraction of the entries in use that new content may lack
	// how long content that lacks more entries must stay the same before it is used; 0: no wait
	ShrinkConfirm time.Duration `setting:"-"`
}

// DefaultLimits returns limits that immediately accept content with at least half of the entries in
// use, and other content after two minutes.
func DefaultLimits() Limits { return Limits{MaxShrink: 0.5, ShrinkConfirm: 2 * time.Minute} }

// Validate returns the joined errors of all invalid settings.
func (c Limits) Validate() error {
	return errors.Join(
		settings.Within("max_shrink", c.MaxShrink, 0, 1, "it is a fraction of the entries in use"),
	)
}

// Guard decides whether content may replace the content in use. It is not safe for concurrent use.
type Guard struct {
	Limits
	Content string // name of the content in errors, such as "the list"
	Entries string // name of its entries in errors, such as "detectors"
	Hint    string // how to use smaller content immediately

	suspect Mark
	since   time.Time
}

// Admit returns nil if content with the given mark may replace the content in use, and a
// *feedloop.Refused otherwise. inUse is the number of entries in use, and missing is the number of
// those that the new content lacks.
func (g *Guard) Admit(missing, inUse int, mark Mark, now time.Time) error {
	if float64(missing) <= g.MaxShrink*float64(inUse) {
		g.Reset()
		return nil
	}
	if mark != g.suspect || g.since.IsZero() {
		g.suspect, g.since = mark, now
	}
	use := g.since.Add(g.ShrinkConfirm)
	if !now.Before(use) {
		g.Reset()
		return nil
	}
	return &feedloop.Refused{Reason: fmt.Sprintf("%s lacks %d of the %d %s in use, more than max_shrink %g allows: "+
		"it will be used if it still has the same %s at %s; if this is a mistake, correct the source before then; %s",
		g.Content, missing, inUse, g.Entries, g.MaxShrink, g.Entries, use.UTC().Format(time.RFC3339), g.Hint)}
}

// AdmitKeys is like Guard.Admit for content whose entries are the keys of a map.
func AdmitKeys[K comparable, V, W any](g *Guard, inUse map[K]V, next map[K]W, now time.Time) error {
	var mark Mark
	missing := len(inUse)
	for k := range next {
		mark.Add(maphash.Comparable(seed, k))
		if _, ok := inUse[k]; ok {
			missing--
		}
	}
	return g.Admit(missing, len(inUse), mark, now)
}

var seed = maphash.MakeSeed()

// Reset ends the wait for confirmation. It must be called when the content in use is read again,
// because that content is not passed to Admit.
func (g *Guard) Reset() { g.suspect, g.since = Mark{}, time.Time{} }

// Mark identifies a set of entries regardless of their order, which may vary if a query has no
// ORDER BY.
type Mark struct {
	entries int
	sum     uint64
}

// Add adds the hash of an entry.
func (m *Mark) Add(hash uint64) {
	m.entries++
	m.sum += hash
}
