package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline/journal"
)

func newJournalVerify(std streams) *cobra.Command {
	var quiet bool
	run := func(_ context.Context, dir string, f *inspect.Folder) error { return verifyJournal(std, dir, f, quiet) }
	cmd := journalCommand(run, &cobra.Command{
		Use:   "verify DIR",
		Short: "Verify all checksums and explain how to repair damage",
		Long: `Read the whole journal and verify all checksums, the sequence of the segments, and the
cursors. For damage, print the file, offset and frame, the frames that cannot be read,
the consumers that have not received them, and what to do.

A torn tail is not damage: it is an unacknowledged commit, or one that a running daemon
is writing.

Exit codes: 0 no damage, 1 damage found or failure.`,
		Example: `  trafficctl journal verify trafficd-data/journal
  trafficctl journal verify trafficd-data/journal/idempotency`,
	})
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print no progress on standard error")
	return cmd
}

func verifyJournal(std streams, dir string, f *inspect.Folder, quiet bool) error {
	shown, add := newByteProgress(std.err, "verified", f.Bytes(0), quiet)
	f.OnRead = add
	v, err := f.Verify()
	shown.end()
	if err != nil {
		return err
	}
	printSegments(std.out, v)
	for _, c := range v.Cursors {
		if c.Err != nil {
			printFindings(std.out, c.Name+".cursor", c.Err)
			continue
		}
		fmt.Fprintf(std.out, "%s.cursor  intact, at frame %d\n", c.Name, c.Seq)
	}
	if !v.Damaged() {
		fmt.Fprintln(std.out, "no damage found")
		return nil
	}
	printGaps(std.out, v)
	var version *journal.VersionError
	if errors.As(v.Err(), &version) {
		return errors.New("the journal was written by another version of trafficd: use that version's trafficctl, or drain the journal with that daemon")
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
		if s.Frames == 0 {
			fmt.Fprintf(w, "%s  intact, no frames yet\n", s.Name)
		} else {
			fmt.Fprintf(w, "%s  intact, frames %d to %d\n", s.Name, s.First, s.Last)
		}
		if s.TornBytes > 0 {
			fmt.Fprintf(w, "    torn tail of %s bytes: an unacknowledged commit; the daemon removes it at its next start\n", grouped(s.TornBytes))
		}
	}
}

func printFindings(w io.Writer, name string, err error) {
	fmt.Fprintf(w, "%s  DAMAGED\n", name)
	for _, finding := range inspect.Findings(err) {
		text := finding.Error()
		var c *journal.CorruptError
		if errors.As(finding, &c) {
			text = "at offset " + grouped(c.Offset)
			if file := filepath.Base(c.Path); file != name {
				text = file + " " + text
			}
			if c.Seq > 0 {
				text += fmt.Sprintf(", frame %d", c.Seq)
			}
			text += ": " + c.Reason
		}
		fmt.Fprintf(w, "    %s\n", text)
	}
}

func printGaps(w io.Writer, v *inspect.Verdict) {
	for _, g := range v.Gaps {
		received := ""
		if !g.After.IsZero() {
			received = ", received after " + timestamp(g.After)
		}
		if !g.Before.IsZero() {
			received += ", received before " + timestamp(g.Before)
		}
		fmt.Fprintf(w, "\nlost: %s%s\n", g.Range(), received)
		lacking := v.Lacking(g)
		switch {
		case len(v.Cursors) == 0:
			fmt.Fprintln(w, "      no cursor shows whether they were delivered")
		case len(lacking) > 0:
			fmt.Fprintf(w, "      not yet delivered to: %s\n", strings.Join(lacking, ", "))
		default:
			fmt.Fprintln(w, "      already delivered to every consumer")
		}
	}
}

// printAdvice prints what to do: restore the files, or save the intact frames and let the daemon start
// over. behind is the first frame that some consumer lacks.
func printAdvice(w io.Writer, dir string, behind uint64, v *inspect.Verdict) {
	fmt.Fprintln(w, "\nWhat to do:")
	n := 0
	step := func(format string, args ...any) {
		n++
		fmt.Fprintf(w, "  %d. %s\n", n, fmt.Sprintf(format, args...))
	}
	if !onlyCursors(v) && !v.Lost() {
		step("Nothing is lost. If the daemon is running and delivering, leave it running: it deletes the segment once all of it is delivered. Otherwise:")
	}
	step("Stop the daemon. If there is a backup of the damaged files, restore it and verify again. Otherwise:")
	if onlyCursors(v) {
		step("Move the damaged cursor files away and start the daemon. Their consumers restart at the oldest frame, so frames\n" +
			"     that they have already consumed are delivered again: ClickHouse replaces those rows, Kafka does not.")
		return
	}
	rescue := behind == inspect.NoEnd || behind <= v.Newest
	if rescue {
		from := "" // unknown without a cursor
		if behind != inspect.NoEnd {
			from = fmt.Sprintf(" --from %d", behind)
		}
		step("Save the intact frames that are not delivered to every consumer:\n       trafficctl journal dump %s --skip-damaged%s > rescued.ndjson", dir, from)
	}
	step("Move the old files away and start the daemon, which creates a new journal:\n       mkdir %[1]s/damaged && mv %[1]s/*.seg %[1]s/*.cursor %[1]s/damaged/", dir)
	if rescue {
		step("Send the saved measurements, with a key of their product instance:\n       trafficctl resubmit rescued.ndjson\n" +
			"     A store that already had them receives them again: ClickHouse replaces those rows, Kafka does not.")
	}
	if v.Lost() {
		step("The lost frames cannot be restored: ask the integrators to resend the data of that time.")
	}
}

// onlyCursors reports whether all frames are intact.
func onlyCursors(v *inspect.Verdict) bool {
	return len(v.Gaps) == 0 && !slices.ContainsFunc(v.Segments, func(s journal.SegmentInfo) bool { return s.Err != nil })
}
