package registry

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"trafficd/pipeline/batch"
	"trafficd/sources/internal/shrink"
)

// admit returns nil if next may replace current, which is nil at first. An empty list is never
// accepted, because every measurement would be rejected as UNKNOWN_DETECTOR although the registry
// is missing.
func admit(g *shrink.Guard, current, next *batch.Detectors, mark shrink.Mark, now time.Time) error {
	if next.Len() == 0 {
		return &shrink.Error{Reason: "the list has no detector codes: an empty list is never used"}
	}
	if current == nil {
		return nil
	}
	missing := 0
	for i := range current.Len() {
		if !next.Has(current.Code(i)) {
			missing++
		}
	}
	return g.Admit(missing, current.Len(), mark, now)
}

func markOf(codes []string) (m shrink.Mark) {
	for _, c := range codes {
		m.Add(xxhash.Sum64String(c))
	}
	return m
}
