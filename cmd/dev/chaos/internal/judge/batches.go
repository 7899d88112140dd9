package judge

import (
	"fmt"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/schemas/contract"
)

// Batches returns what is wrong with the states of batches that the daemon served: one that claims
// more than a store has, differs from the 207 or, unless lost is true, is not final. lost means
// that a replica has lost its disk, and receipts with it.
func Batches(states map[string]contract.BatchStatus, accepted []ledger.Accepted, archive, topic []Arrival, lost bool) (wrong []string) {
	sent, archived, forwarded := map[string]int{}, count(archive), count(topic)
	for _, a := range accepted {
		sent[a.Batch]++
	}
	for id, s := range states {
		if s.Archived == nil || s.Forwarded == nil {
			wrong = append(wrong, fmt.Sprintf("batch %s: the state is not known: %+v", id, s))
			continue
		}
		claims := fmt.Sprintf("batch %s: accepted %d, archived %+v, forwarded %+v, final %v; in 207s %d, in the archive %d, in the topic %d",
			id, s.Accepted, *s.Archived, *s.Forwarded, s.Final, sent[id], archived[id], forwarded[id])
		dead := s.Archived.DeadLettered + s.Forwarded.DeadLettered
		switch {
		case s.Archived.Items > archived[id] || s.Forwarded.Items > forwarded[id]:
			wrong = append(wrong, "more than the stores have: "+claims)
		case s.Final && (s.Archived.Items < archived[id] || s.Forwarded.Items < forwarded[id]):
			wrong = append(wrong, "final, but less than the stores have: "+claims)
		case dead > 0:
			wrong = append(wrong, "no store refuses a measurement: "+claims)
		case s.Accepted != sent[id] && !lost, !s.Final && !lost:
			wrong = append(wrong, "not final: "+claims)
		}
	}
	return wrong
}

func count(arrivals []Arrival) map[string]int {
	n := map[string]int{} // by batch
	for _, a := range arrivals {
		n[a.Batch]++
	}
	return n
}
