package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"trafficd/cmd/chaos/internal/ledger"
	"trafficd/cmd/chaos/internal/nemesis"
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
type sums struct {
	missing, doubled, reordered, altered int

	wrong  int // answers and ends that must not be
	counts nemesis.Counts
}

func (s *sums) add(r *result) {
	for _, v := range r.stores {
		s.missing += v.Missing
		s.doubled += v.Doubled
		s.reordered += v.Reordered
		s.altered += v.Altered
	}
	s.wrong += len(r.wrong)
	s.counts.Add(r.counts)
}

func (s *sums) clean() bool { return s.missing+s.doubled+s.reordered+s.altered+s.wrong == 0 }

// lines end with the one that says it all.
func (s *sums) lines(seed uint64) string {
	var text strings.Builder
	if s.wrong > 0 {
		fmt.Fprintf(&text, "chaos: wrong answers or ends %d\n", s.wrong)
	}
	kinds, kills := ends(s.counts)
	fmt.Fprintf(&text, "chaos: kills: %s\n", strings.Join(kinds, ", "))
	fmt.Fprintf(&text, "chaos: missing %d doubled %d reordered %d altered %d kills %d seed %d", s.missing, s.doubled, s.reordered, s.altered, kills, seed)
	return text.String()
}

// ends are all ends of daemon and stores that were forced, by kind, and their
// sum.
func ends(counts nemesis.Counts) (kinds []string, sum int) {
	for _, target := range []string{daemon, archive, broker} {
		for _, how := range []string{kill9, sigterm, stopped} {
			if n := counts.Of(target, how); n > 0 {
				kinds, sum = append(kinds, fmt.Sprintf("%s %s %d", target, how, n)), sum+n
			}
		}
	}
	return kinds, sum
}
