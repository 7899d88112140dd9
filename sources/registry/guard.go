package registry

import (
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"trafficd/pipeline/batch"
)

// guard prevents a suspicious list from replacing a good one. An empty list is never accepted: it
// would reject every measurement, and at the start report UNKNOWN_DETECTOR for a registry that is
// missing. A list that lacks more than maxShrink of the current codes is accepted once the same
// list has been read again after confirm.
type guard struct {
	maxShrink float64
	confirm   time.Duration

	suspect fingerprint
	since   time.Time
}

// suspectError says why a list that could be read is not used.
type suspectError struct{ reason string }

func (e *suspectError) Error() string { return e.reason }

// admit returns nil if next may replace current, which is nil at first.
func (g *guard) admit(current, next *batch.Detectors, mark fingerprint, now time.Time) error {
	if next.Len() == 0 {
		return &suspectError{"the list has no detector codes: an empty list is never used"}
	}
	if current == nil {
		return nil
	}
	lost := missing(current, next)
	if float64(lost) <= g.maxShrink*float64(current.Len()) {
		g.calm()
		return nil
	}
	if mark != g.suspect || g.since.IsZero() {
		g.suspect, g.since = mark, now
	}
	if now.Sub(g.since) >= g.confirm {
		g.calm()
		return nil
	}
	return &suspectError{fmt.Sprintf("the list lacks %d of the %d detectors in use, more than max_shrink %g allows: it will be used if it is still the same at %s",
		lost, current.Len(), g.maxShrink, g.since.Add(g.confirm).UTC().Format(time.RFC3339))}
}

// calm forgets the suspicious list: a good one was read.
func (g *guard) calm() { g.suspect, g.since = fingerprint{}, time.Time{} }

// missing counts the codes of a that b lacks.
func missing(a, b *batch.Detectors) int {
	n := 0
	for i := range a.Len() {
		if !b.Has(a.Code(i)) {
			n++
		}
	}
	return n
}

// fingerprint is the same for the same codes in any order: a query without ORDER BY returns them in
// a different order each time.
type fingerprint struct {
	codes int
	sum   uint64
}

func fingerprintOf(codes []string) fingerprint {
	p := fingerprint{codes: len(codes)}
	for _, c := range codes {
		p.sum += xxhash.Sum64String(c)
	}
	return p
}
