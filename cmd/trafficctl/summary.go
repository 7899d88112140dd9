package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"trafficd/cmd/trafficctl/internal/send"
)

// summary is the result of a run that sends. The member names of its JSON are stable.
type summary struct {
	send.Tally
	Empty   int64   `json:"empty"` // values omitted because their cell is empty
	Seconds float64 `json:"seconds"`
	PerSec  float64 `json:"items_per_second"`
	Failure string  `json:"error,omitempty"`

	resume string
}

func newSummary(t send.Tally, in input, took time.Duration, err error) summary {
	s := summary{Tally: t, Seconds: took.Seconds(), resume: in.resume}
	s.PerSec = float64(t.Accepted+t.Rejected) / max(s.Seconds, 1e-9)
	if in.empty != nil {
		s.Empty = in.empty()
	}
	if err != nil {
		s.Failure = err.Error()
	}
	return s
}

func (s *summary) print(w io.Writer, rejectedFile string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, n int64, always bool) {
		if always || n > 0 {
			fmt.Fprintf(table, "%s\t%s\t\n", name, grouped(n))
		}
	}
	line("accepted", s.Accepted, true)
	line("rejected", s.Rejected, true)
	line("batches", s.Batches, true)
	line("retries", s.Retries, true)
	line("replayed answers", s.Replayed, false)
	line("empty values omitted", s.Empty, false)
	line("unreadable rows skipped", s.BadRows, false)
	line("sent without an answer", s.Unknown, false)
	fmt.Fprintf(table, "seconds\t%.1f\t\n", s.Seconds)
	line("items/s", int64(s.PerSec), true)
	table.Flush()
	s.printCodes(w)
	s.printNext(w, rejectedFile)
}

// printCodes prints the rejection codes, most frequent first, with the first occurrence of each.
func (s *summary) printCodes(w io.Writer) {
	codes := slices.SortedFunc(maps.Keys(s.Codes), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Codes[b], s.Codes[a]), strings.Compare(a, b))
	})
	for _, code := range codes {
		first := s.Examples[code]
		fmt.Fprintf(w, "%12s  %s, first %s: %s\n", grouped(s.Codes[code]), code, first.Place, first.Error.Description)
	}
}

func (s *summary) printNext(w io.Writer, rejectedFile string) {
	switch {
	case s.Rejected > 0 && rejectedFile != "":
		fmt.Fprintf(w, "Correct the items in %s, then run with the same URL and key: trafficctl resubmit %s\n", rejectedFile, rejectedFile)
	case s.Rejected > 0:
		fmt.Fprintln(w, "Use --rejected FILE to save rejected items for correction.")
	}
	if s.Resume > 1 && s.resume != "" {
		fmt.Fprintf(w, "All rows before row %s are acknowledged. Resume with "+s.resume+"; later rows that were already accepted are sent again.\n",
			grouped(s.Resume), s.Resume-1)
	}
}

// grouped formats 14274722 as 14,274,722.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
