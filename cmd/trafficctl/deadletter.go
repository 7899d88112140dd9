package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/deadletter"
	"trafficd/pipeline"
)

const deadLetterHelp = `An accepted measurement that a store rejects permanently is written to the daemon's
dead-letter file (setting dead_letters; by default dead-letters.ndjson in the journal's
directory). The other store may have it. trafficctl does not change the file.`

func newDeadLetter(std streams) *cobra.Command {
	cmd := &cobra.Command{Use: "deadletter", Short: "List and resend measurements that a store rejected permanently", Long: deadLetterHelp}
	cmd.AddCommand(newDeadLetterList(std), newDeadLetterResend(std))
	return cmd
}

func newDeadLetterList(std streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List the dead letters and count them by store and reason",
		Long: deadLetterHelp + `

A crash may duplicate or truncate a line. Duplicates are shown once, truncated lines are
skipped and reported. --json prints each letter as a line of JSON.`,
		Example: `  trafficctl deadletter ls trafficd-data/journal/dead-letters.ndjson
  trafficctl deadletter ls dead-letters.ndjson --json | jq -r .reason | sort | uniq -c`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return listDeadLetters(std, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each letter as a line of JSON instead of the table and counts")
	return cmd
}

func newDeadLetterResend(std streams) *cobra.Command {
	s := newSending()
	var which deadletter.Selection
	cmd := &cobra.Command{
		Use:   "resend FILE",
		Short: "Send dead letters again after the cause is fixed",
		Long: `Send the measurements of a dead-letter file again, after the cause of the rejection is
fixed, for example a column type, a topic's message size or a missing grant.

The measurements are sent to both stores as new batches. A store that already has one
receives it again: ClickHouse replaces the row, Kafka gets another record with a new
batch-id. If an integrator has since sent a correction, the resent older value replaces
it in ClickHouse; remove such lines in a copy of the file and send the copy.

A key belongs to one product instance. If the file has letters of several, select one
with --product-instance. A measurement that several stores rejected is sent once.
The file is not changed. Move it away once the summary shows that everything is accepted;
the daemon creates a new one when needed.

Items that the daemon rejects go to --rejected FILE, which must be a new file, as input
for trafficctl resubmit. Exit codes are those of trafficctl send.`,
		Example: `  trafficctl deadletter ls dead-letters.ndjson
  trafficctl deadletter resend dead-letters.ndjson --product-instance north --key-file north.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := which.Instance(args[0])
			if err != nil {
				return err
			}
			if !s.quiet {
				fmt.Fprintf(std.err, "trafficctl: sending the dead letters of product instance %s, to which the key must belong\n", instance)
			}
			return s.run(cmd.Context(), cmd.Flags(), std, input{items: which.Items(args[0]), size: -1, resume: "--skip-rows %d"})
		},
	}
	f := cmd.Flags()
	s.register(f)
	f.StringVar(&which.ProductInstance, "product-instance", "", "only letters of this product instance")
	f.StringVar(&which.Sink, "sink", "", "only letters of this store: clickhouse or kafka")
	f.Int64Var(&which.Skip, "skip-rows", 0, "skip this many measurements at the start, which an earlier run has sent")
	return cmd
}

type reason struct{ sink, text string }

// deadLetterCount is the number of letters with one reason, and the times of the first and last.
type deadLetterCount struct {
	n           int64
	first, last time.Time
}

// listed is how many table rows are aligned together, so that memory is bounded.
const listed = 1000

func listDeadLetters(std streams, path string, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(std.out)
		return eachLetter(path, std.err, func(l pipeline.DeadLetter) error { return lines.Encode(l) })
	}
	counts, n := map[reason]deadLetterCount{}, 0
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	err := eachLetter(path, std.err, func(l pipeline.DeadLetter) error {
		if n == 0 {
			fmt.Fprintln(table, "sink\tat\tproduct instance\tdetector\ttype\tinterval\tvalue\treason")
		}
		item := l.Item
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Sink, timestamp(l.At), l.ProductInstance, short(item.DetectorCode), item.MeasureTypeCode,
			item.TimestampFrom.Format(time.RFC3339Nano)+"/"+item.TimestampTo.Format(time.RFC3339Nano),
			strconv.FormatFloat(item.Value, 'g', -1, 64), short(l.Reason))
		c := counts[reason{l.Sink, l.Reason}]
		if c.n++; c.n == 1 || l.At.Before(c.first) {
			c.first = l.At
		}
		if l.At.After(c.last) {
			c.last = l.At
		}
		counts[reason{l.Sink, l.Reason}] = c
		if n++; n%listed == 0 {
			return table.Flush()
		}
		return nil
	})
	table.Flush()
	if err == nil {
		printReasons(std.out, counts, n)
	}
	return err
}

// eachLetter calls do with each letter and reports truncated lines.
func eachLetter(path string, notes io.Writer, do func(pipeline.DeadLetter) error) error {
	for letter, err := range deadletter.Letters(path, func(text string) { fmt.Fprintln(notes, "trafficctl:", text) }) {
		if err != nil {
			return err
		}
		if err := do(letter.DeadLetter); err != nil {
			return fmt.Errorf("cannot write the dead letters: %w", err)
		}
	}
	return nil
}

// printReasons prints the counts by store and reason, most frequent first.
func printReasons(w io.Writer, counts map[reason]deadLetterCount, total int) {
	fmt.Fprintf(w, "\n%s\n", counted(total, "dead letter"))
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b reason) int {
		return cmp.Or(cmp.Compare(counts[b].n, counts[a].n), strings.Compare(a.sink, b.sink), strings.Compare(a.text, b.text))
	})
	for _, r := range reasons {
		c := counts[r]
		span := timestamp(c.first)
		if !c.first.Equal(c.last) {
			span += " to " + timestamp(c.last)
		}
		fmt.Fprintf(w, "%12s  %s: %s (%s)\n", grouped(c.n), r.sink, short(r.text), span)
	}
}

// short returns a text as one line of bounded length.
func short(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
