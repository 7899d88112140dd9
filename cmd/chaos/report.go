package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"trafficd/cmd/chaos/internal/ledger"
)

// report says what a run went through and what it found.
func report(out io.Writer, t ledger.Tally, found *result) {
	fmt.Fprintf(out, "load: %d batches, %d items accepted, %d rejected as they should be; %d attempts without a 207, %d of them called off by the client; %d batches sent again after their 207\n",
		t.Batches, found.accepted, t.Rejected, t.Resent, t.GaveUp, t.Replays)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(found.counts)) {
		lines = append(lines, fmt.Sprintf("%s %d", name, found.counts[name]))
	}
	fmt.Fprintln(out, "faults:", strings.Join(lines, ", "))
	for _, v := range found.stores {
		fmt.Fprintln(out, v)
		for _, example := range v.Examples {
			fmt.Fprintln(out, "  ", example)
		}
	}
	const shown = 10
	for i, w := range found.wrong {
		if i == shown {
			fmt.Fprintf(out, "   … and %d more\n", len(found.wrong)-shown)
			break
		}
		fmt.Fprintln(out, "   wrong:", w)
	}
}

// sums are the totals of all runs.
type sums struct{ missing, doubled, reordered, altered, kills int }

func (s *sums) add(r *result) {
	for _, v := range r.stores {
		s.missing += v.Missing
		s.doubled += v.Doubled
		s.reordered += v.Reordered
		s.altered += v.Altered
	}
	s.altered += len(r.wrong) // an answer or an end that is not what it has to be
	s.kills += r.kills()
}

func (s *sums) clean() bool { return s.missing+s.doubled+s.reordered+s.altered == 0 }

func (s *sums) line(seed uint64) string {
	return fmt.Sprintf("chaos: missing %d doubled %d reordered %d altered %d kills %d seed %d", s.missing, s.doubled, s.reordered, s.altered, s.kills, seed)
}
