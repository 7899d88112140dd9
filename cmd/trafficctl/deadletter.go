package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/deadletter"
	"trafficd/pipeline"
)

const deadLetterHelp = `A measurement that was accepted, and that a store refuses for good, stands in the
daemon's dead-letter file (its setting dead_letters; by default dead-letters.ndjson in
the journal's folder). The other store may have it. The file is never changed here.`

func newDeadLetter(std streams) *cobra.Command {
	cmd := &cobra.Command{Use: "deadletter", Short: "Look at measurements that a store refused for good, and send them again", Long: deadLetterHelp}
	cmd.AddCommand(newDeadLetterList(std), newDeadLetterResend(std))
	return cmd
}

func newDeadLetterList(std streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls FILE",
		Short: "List the dead letters, and count them by store and reason",
		Long: deadLetterHelp + `

A crash may repeat a line, or cut one off: repeated ones are shown once, those cut
off are passed over with a note. --json writes each letter whole, one line each.`,
		Example: `  trafficctl deadletter ls trafficd-data/journal/dead-letters.ndjson
  trafficctl deadletter ls dead-letters.ndjson --json | jq -r .reason | sort | uniq -c`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return listDeadLetters(std, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one line of JSON for each letter, in place of table and counts")
	return cmd
}

func newDeadLetterResend(std streams) *cobra.Command {
	s := newSending()
	var which deadletter.Selection
	cmd := &cobra.Command{
		Use:   "resend FILE",
		Short: "Send the dead letters again, once the reason is mended",
		Long: `Sends the measurements of a dead-letter file again, after what the store did not
like about them was mended: a column, a topic's limit, a right.

They come as new batches to both stores. A store that had one already gets it a second
time: in ClickHouse it replaces its earlier self, in Kafka it is one more record, with
a new batch-id. Where an integrator has sent a correction meanwhile, the older value
comes after it and replaces it: take such lines out of a copy, and send that.

A key belongs to one product instance, so where the file has letters of several,
--product-instance chooses. A measurement that several stores refuse is sent once.
The file is not changed: when the summary says that all is accepted, move it away,
else the next resend sends all of it again. The daemon makes a new one when needed.

Items that are rejected go to --rejected FILE, which must be a new file, for
trafficctl resubmit. Exit codes as for trafficctl send.`,
		Example: `  trafficctl deadletter ls dead-letters.ndjson
  trafficctl deadletter resend dead-letters.ndjson --product-instance north --key-file north.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return resendDeadLetters(cmd.Context(), cmd.Flags(), std, s, which, args[0])
		},
	}
	f := cmd.Flags()
	s.register(f)
	f.StringVar(&which.ProductInstance, "product-instance", "", "only the letters of this product instance")
	f.StringVar(&which.Sink, "sink", "", "only those that this store refused: clickhouse or kafka")
	f.Int64Var(&which.Skip, "skip-rows", 0, "leave out so many measurements at the start: an earlier run has sent them")
	return cmd
}

func resendDeadLetters(ctx context.Context, flags *pflag.FlagSet, std streams, s *sending, which deadletter.Selection, path string) error {
	instance, err := which.Instance(path)
	if err != nil {
		return err
	}
	if !s.quiet {
		fmt.Fprintf(std.err, "trafficctl: sending the dead letters of product instance %s; the key has to be one of its\n", instance)
	}
	return s.run(ctx, flags, std, input{items: which.Items(path), size: -1, again: "--skip-rows %d"})
}

// reason is what letters are counted by.
type reason struct{ sink, text string }

// deadLetterCount is how many letters have one reason, and since when until when.
type deadLetterCount struct {
	n           int64
	first, last time.Time
}

// listed is how many lines of the table are aligned together: a long file does
// not have to fit into memory.
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
		printLetter(table, l)
		count(counts, l)
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

// eachLetter calls do with each letter, and notes the lines that are cut off.
func eachLetter(path string, notes io.Writer, do func(pipeline.DeadLetter) error) error {
	for letter, err := range deadletter.Letters(path) {
		var torn *deadletter.TornError
		switch {
		case errors.As(err, &torn):
			fmt.Fprintln(notes, "trafficctl:", torn)
			continue
		case err != nil:
			return err
		}
		if err := do(letter.DeadLetter); err != nil {
			return fmt.Errorf("cannot write the dead letters: %w", err)
		}
	}
	return nil
}

func count(counts map[reason]deadLetterCount, l pipeline.DeadLetter) {
	why := reason{l.Sink, l.Reason}
	c := counts[why]
	if c.n++; c.n == 1 || l.At.Before(c.first) {
		c.first = l.At
	}
	if l.At.After(c.last) {
		c.last = l.At
	}
	counts[why] = c
}

func printLetter(w io.Writer, l pipeline.DeadLetter) {
	item := l.Item
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Sink, moment(l.At), l.ProductInstance, short(item.DetectorCode), item.MeasureTypeCode,
		item.TimestampFrom.Format(time.RFC3339Nano)+"/"+item.TimestampTo.Format(time.RFC3339Nano),
		strconv.FormatFloat(item.Value, 'g', -1, 64), short(l.Reason))
}

// printReasons counts by store and reason, the most frequent first.
func printReasons(w io.Writer, counts map[reason]deadLetterCount, total int) {
	fmt.Fprintf(w, "\n%s\n", counted(total, "dead letter"))
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b reason) int {
		return cmp.Or(cmp.Compare(counts[b].n, counts[a].n), strings.Compare(a.sink, b.sink), strings.Compare(a.text, b.text))
	})
	for _, r := range reasons {
		c := counts[r]
		fmt.Fprintf(w, "%12s  %s: %s (%s)\n", grouped(c.n), r.sink, short(r.text), span(c))
	}
}

func span(c deadLetterCount) string {
	if c.first.Equal(c.last) {
		return moment(c.first)
	}
	return moment(c.first) + " to " + moment(c.last)
}

// short is what a table shows of a text: one line of bounded length.
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
