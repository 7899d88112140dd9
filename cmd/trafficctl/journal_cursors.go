package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline/batch"
)

func newJournalCursors(std streams) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "cursors DIR",
		Short: "Show how far each store is, and the block under way",
		Long: `Shows for each consumer of the journal (the stores, and the memory for answers) its
position on disk, how many frames and rows it is behind, since when, and the block
that is under way: after a restart it is that one which is repeated.

A running daemon is a little further than its cursors on disk: they follow with
the next block. Counting reads every frame that a consumer has not got yet.`,
		Example: `  trafficctl journal cursors trafficd-data/journal`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return showCursors(std, args[0], quiet) },
	}
	cmd.Flags().BoolVar(&quiet, "quiet", false, "no progress on standard error")
	return cmd
}

func showCursors(std streams, dir string, quiet bool) error {
	f, err := inspect.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	shown := newMeter(std.err, "counted", f.Bytes(f.Behind()), quiet)
	f.OnRead = shown.add
	consumers, gaps, err := f.Consumers()
	shown.end()
	if err != nil {
		return err
	}
	printConsumers(std.out, consumers)
	bad := len(gaps) > 0
	for _, g := range gaps {
		fmt.Fprintf(std.out, "not counted: %v\n", g)
	}
	for i := range consumers {
		bad = printRemarks(std.out, &consumers[i]) || bad
	}
	if bad {
		return fmt.Errorf("something is wrong: trafficctl journal verify %s says what to do", dir)
	}
	return nil
}

func printConsumers(w io.Writer, consumers []inspect.Consumer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "consumer\tnext\tframes behind\trows behind\toldest received\tblock under way\t")
	for i := range consumers {
		c := &consumers[i]
		if c.Err != nil {
			fmt.Fprintf(table, "%s\t?\t?\t?\t?\t?\t\n", c.Name)
			continue
		}
		rows := "-"
		if c.HasRows() {
			rows = grouped(int64(c.Rows))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", c.Name, position(c.Done), grouped(int64(c.Frames)), rows, since(c.Oldest), blockOf(c))
	}
	table.Flush()
}

// position writes a frame, and the row in it where it is not the first.
func position(p batch.Position) string {
	if p.Row == 0 {
		return fmt.Sprintf("frame %d", p.Frame)
	}
	return fmt.Sprintf("frame %d, row %d", p.Frame, p.Row)
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return moment(t)
}

func blockOf(c *inspect.Consumer) string {
	if c.Plan == nil {
		return "-"
	}
	return fmt.Sprintf("%s, to before %s", counted(c.BlockRows, "row"), position(c.End))
}

// printRemarks tells what does not fit into the table; it is true if something
// is wrong.
func printRemarks(w io.Writer, c *inspect.Consumer) (bad bool) {
	remark := func(format string, args ...any) {
		fmt.Fprintf(w, "%s: %s\n", c.Name, fmt.Sprintf(format, args...))
	}
	if plan := printable(c.Plan); plan != "" {
		remark("the block under way is called %s", plan)
	}
	if c.Deleted > 0 {
		remark("%s were deleted before it read them, while it was not configured", counted(int(c.Deleted), "frame"))
	}
	if c.Ahead > 0 {
		remark("%s that it has read are missing", counted(int(c.Ahead), "frame"))
	}
	if c.Err != nil {
		remark("%v", c.Err)
	}
	return c.Ahead > 0 || c.Err != nil
}

// printable is a sink's plan if a person can read it: ClickHouse's is the
// deduplication token of its insert.
func printable(plan []byte) string {
	text := string(plan)
	if strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return ""
	}
	return text
}
