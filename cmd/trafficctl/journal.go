package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/pipeline/journal"
)

const journalHelp = `Looks at a daemon's journal: the folder that its setting journal.dir names, in which
accepted measurements stand until both stores have them. The folder is only read,
so all of this works when the daemon does not start, and beside a running one.

The folder "idempotency" below it, which remembers the answers to requests with an
Idempotency-Key, is a journal as well.`

func newJournal(std streams) *cobra.Command {
	cmd := &cobra.Command{Use: "journal", Short: "Look at a daemon's journal: segments, damage, measurements, cursors", Long: journalHelp}
	cmd.AddCommand(newJournalList(std), newJournalVerify(std), newJournalDump(std), newJournalCursors(std))
	return cmd
}

func newJournalList(std streams) *cobra.Command {
	return &cobra.Command{
		Use:   "ls DIR",
		Short: "List the segments",
		Long: `Lists the segments with their frames; a frame holds what was accepted of one batch.
The active segment is the one that is written to. Frames' headers are read, not
their contents: trafficctl journal verify checks those.

Exit codes: 0 nothing is wrong as far as that shows, 1 something is.`,
		Example: `  trafficctl journal ls trafficd-data/journal`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return listJournal(std.out, args[0]) },
	}
}

func listJournal(w io.Writer, dir string) error {
	f, err := inspect.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := f.Inspect()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "segment\tstate\tfirst\tlast\tframes\tbytes\t")
	frames, bytes := 0, int64(0)
	for i, s := range in.Segments {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Name, segmentState(s, i == len(in.Segments)-1),
			frameNumber(s, s.First), frameNumber(s, s.Last), grouped(int64(s.Frames)), grouped(s.Bytes))
		frames, bytes = frames+s.Frames, bytes+s.Bytes
	}
	fmt.Fprintf(table, "%s\t\t\t\t%s\t%s\t\n", counted(len(in.Segments), "segment"), grouped(int64(frames)), grouped(bytes))
	table.Flush()
	if err := in.Err(); err != nil {
		for _, err := range inspect.Findings(err) {
			fmt.Fprintln(w, err)
		}
		return fmt.Errorf("the journal is damaged: trafficctl journal verify %s says what is lost and what to do", dir)
	}
	return nil
}

func segmentState(s journal.SegmentInfo, newest bool) string {
	var version *journal.VersionError
	switch {
	case errors.As(s.Err, &version):
		return "other version"
	case s.Err != nil:
		return "damaged"
	case newest:
		return "active"
	}
	return "sealed"
}

// frameNumber is a bound of a segment; one that is empty or cannot be opened
// has none.
func frameNumber(s journal.SegmentInfo, n uint64) string {
	if s.Frames == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// counted writes 1 segment, 2 segments.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}
