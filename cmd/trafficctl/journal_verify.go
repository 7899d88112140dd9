package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline/journal"
)

func newJournalVerify(std streams) *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every checksum; say what is damaged and what to do",
		Long: `Reads the whole journal and checks every checksum, the segments against one another,
and the cursors against the segments. For damage it says file, offset and frame,
which frames cannot be read, who has not got them yet, and what to do.

A torn tail is no damage: it is the rest of a commit that nobody was told of, or
one that a running daemon is just writing.

Exit codes: 0 everything is whole, 1 something is damaged or cannot be read.`,
		Example: `  trafficctl journal verify trafficd-data/journal
  trafficctl journal verify trafficd-data/journal/idempotency`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return verifyJournal(std, args[0], quiet) },
	}
	cmd.Flags().BoolVar(&quiet, "quiet", false, "no progress on standard error")
	return cmd
}

func verifyJournal(std streams, dir string, quiet bool) error {
	f, err := inspect.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	shown := newMeter(std.err, "verified", f.Bytes(0), quiet)
	f.OnRead = shown.add
	v, err := f.Verify()
	shown.end()
	if err != nil {
		return err
	}
	printSegments(std.out, v)
	printCursors(std.out, v)
	if !v.Damaged() {
		fmt.Fprintln(std.out, "everything is whole")
		return nil
	}
	printGaps(std.out, v)
	if otherVersion(v.Err()) {
		return errors.New("the journal was written by another version of trafficd: use the trafficctl of that version, or let that daemon drain it")
	}
	printAdvice(std.out, dir, f.Behind(), v)
	return fmt.Errorf("the journal in %s is damaged", dir)
}

func printSegments(w io.Writer, v *inspect.Verdict) {
	for _, s := range v.Segments {
		if s.Err != nil {
			printFindings(w, s.Name, s.Err)
			continue
		}
		switch s.Frames {
		case 0:
			fmt.Fprintf(w, "%s  whole, no frames yet\n", s.Name)
		default:
			fmt.Fprintf(w, "%s  whole, frames %d to %d\n", s.Name, s.First, s.Last)
		}
		if s.TornBytes > 0 {
			fmt.Fprintf(w, "    a torn tail of %s bytes: a commit under way, or one that a crash cut off; nobody was told that it is safe, the next start of the daemon removes it\n", grouped(s.TornBytes))
		}
	}
}

func printCursors(w io.Writer, v *inspect.Verdict) {
	for _, c := range v.Cursors {
		if c.Err != nil {
			printFindings(w, c.Name+".cursor", c.Err)
			continue
		}
		fmt.Fprintf(w, "%s.cursor  whole, at frame %d\n", c.Name, c.Seq)
	}
}

func printFindings(w io.Writer, name string, err error) {
	fmt.Fprintf(w, "%s  DAMAGED\n", name)
	for _, finding := range inspect.Findings(err) {
		fmt.Fprintf(w, "    %s\n", foundAt(name, finding))
	}
}

// foundAt says where the damage is, and names the file only if it is another.
func foundAt(name string, err error) string {
	var c *journal.CorruptError
	if !errors.As(err, &c) {
		return err.Error()
	}
	where := "at offset " + grouped(c.Offset)
	if file := filepath.Base(c.Path); file != name {
		where = file + " " + where
	}
	if c.Seq > 0 {
		where += fmt.Sprintf(", frame %d", c.Seq)
	}
	return where + ": " + c.Reason
}

func printGaps(w io.Writer, v *inspect.Verdict) {
	for _, g := range v.Gaps {
		fmt.Fprintf(w, "\nlost: %s%s\n", g.Range(), received(g))
		lacking := v.Lacking(g)
		switch {
		case len(v.Cursors) == 0:
			fmt.Fprintln(w, "      there is no cursor to tell who has them")
		case len(lacking) > 0:
			fmt.Fprintf(w, "      not delivered yet to: %s\n", strings.Join(lacking, ", "))
		default:
			fmt.Fprintln(w, "      no harm: every consumer is past it")
		}
	}
}

// received says when the frames of a gap were, as far as those around it tell.
func received(g *inspect.Gap) string {
	var text string
	if !g.After.IsZero() {
		text = ", received after " + moment(g.After)
	}
	if !g.Before.IsZero() {
		text += ", received before " + moment(g.Before)
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func otherVersion(err error) bool {
	var version *journal.VersionError
	return errors.As(err, &version)
}

// printAdvice says how to go on: bring the files back, or else save what is
// whole and let the daemon begin anew. behind is the first frame that some
// consumer lacks.
func printAdvice(w io.Writer, dir string, behind uint64, v *inspect.Verdict) {
	fmt.Fprintln(w, "\nWhat to do:")
	n := 0
	step := func(format string, args ...any) {
		n++
		fmt.Fprintf(w, "  %d. %s\n", n, fmt.Sprintf(format, args...))
	}
	if !onlyCursors(v) && !v.Lost() {
		step("Nothing is lost. If the daemon runs and delivers, leave it alone: it deletes the segment when all of it is delivered. If it does not:")
	}
	step("Stop the daemon. If there is a copy of the damaged files, put it in their place and verify again. If there is none:")
	if onlyCursors(v) {
		step("Move the damaged cursor files away and start the daemon. Those consumers begin again at the oldest frame: what they\n" +
			"     had of the frames still here comes a second time, which ClickHouse replaces and Kafka does not.")
		return
	}
	rescue := behind == inspect.NoEnd || behind <= v.Newest
	if rescue {
		step("Save what is whole and not delivered to all:\n       trafficctl journal dump %s --skip-damaged%s > rescued.ndjson", dir, from(behind))
	}
	step("Keep the old files elsewhere and start the daemon, which begins anew:\n       mkdir %[1]s/damaged && mv %[1]s/*.seg %[1]s/*.cursor %[1]s/damaged/", dir)
	if rescue {
		step("Send what was saved, with a key of its product instance:\n       trafficctl resubmit rescued.ndjson\n" +
			"     What one store had already comes to it a second time, which ClickHouse replaces and Kafka does not.")
	}
	if v.Lost() {
		step("The lost frames are gone: ask the integrators to send again what they sent at that time.")
	}
}

// from is the flag for the first frame that is needed. It is left out where
// no cursor can tell.
func from(behind uint64) string {
	if behind == inspect.NoEnd {
		return ""
	}
	return fmt.Sprintf(" --from %d", behind)
}

// onlyCursors tells whether all frames are there.
func onlyCursors(v *inspect.Verdict) bool {
	for _, s := range v.Segments {
		if s.Err != nil {
			return false
		}
	}
	return len(v.Gaps) == 0
}
