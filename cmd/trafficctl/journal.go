package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
	"trafficd/pipeline/kafkalog"
)

const journalHelp = `Inspect a daemon's journal, which keeps accepted measurements until both stores have them.
The journal is in the directory that the setting journal.dir names, or in Kafka if
journal.kind is kafka. Select it with DIR, with the daemon's settings (--config), or with
--brokers. While a daemon is using DIR, only ls and cursors can be used, and the others on a
copy of DIR. All commands can be used on a journal in Kafka except adopt and restamp.

The subdirectory "idempotency" is also a journal: it stores the responses to requests with
an Idempotency-Key.

Each partition of a journal in Kafka is shown as a segment with its own frame numbers, and
has a cursor for each consumer. A batch may be in several frames; only the first one is
delivered.`

func newJournal(std streams) *cobra.Command {
	return group(
		&cobra.Command{Use: "journal", Short: "Inspect or correct a journal, or deliver that of a lost daemon", Long: journalHelp},
		newJournalList(std), newJournalVerify(std), newJournalDump(std), newJournalCursors(std), newJournalAdopt(std), newJournalRestamp(std),
	)
}

// journalCommand makes cmd call run with the journal selected by its argument (a directory) or its
// flags (a configuration). name identifies the journal in messages: its directory, or the flags if
// it is in Kafka.
func journalCommand(cmd *cobra.Command, run func(ctx context.Context, name string, f inspect.Journal) error) *cobra.Command {
	o := conf.Options{Environ: os.Environ()}
	var brokers string
	cmd.Flags().StringVar(&o.File, "config", "", "YAML file with the settings of the daemon, instead of DIR")
	cmd.Flags().StringArrayVar(&o.Set, "set", nil, "section.key=value, with --config or --brokers; may be repeated")
	cmd.Flags().StringVar(&brokers, "brokers", "", "brokers (host:port,…) of a journal in Kafka without TLS or SASL, instead of DIR")
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var f inspect.Journal
		var name string
		var err error
		switch configured := o.File != "" || brokers != ""; {
		case configured == (len(args) > 0), o.File != "" && brokers != "":
			return errors.New("specify either the journal's directory, or --config, or --brokers")
		case configured:
			name = "--config " + o.File
			flags := o.Set
			if brokers != "" {
				name = "--brokers " + brokers
				o.Set = append(o.Set, "journal.kind="+config.KafkaJournal, "journal.log.brokers="+brokers)
			}
			for _, s := range flags {
				name += " --set " + s
			}
			c, _, invalid := config.Load(o)
			if invalid != nil {
				return fmt.Errorf("cannot use the configuration: %w", invalid)
			}
			if c.Journal.Kind != config.KafkaJournal {
				name = c.Journal.Dir
				f, err = inspect.Open(name)
				break
			}
			var consumers []string
			for _, s := range c.EnabledSinks() {
				consumers = append(consumers, s.Name)
			}
			f, err = inspect.OpenLog(cmd.Context(), c.Journal.Log, consumers)
		case len(o.Set) > 0:
			return errors.New("--set needs --config or --brokers; settings have no effect on reading a directory")
		default:
			name = args[0]
			f, err = inspect.Open(name)
		}
		if err != nil {
			return err
		}
		defer f.Close()
		return run(cmd.Context(), name, f)
	}
	return cmd
}

func newJournalList(std streams) *cobra.Command {
	return journalCommand(&cobra.Command{
		Use:   "ls [DIR]",
		Short: "List the segments",
		Long: `List the segments and the frames that each contains. A frame holds the accepted items of
one batch. The active segment is the one being written. Only frame headers are read; to
check the contents, use trafficctl journal verify.

Exit codes: 0 no damage found, 1 damage found or failure.`,
		Example: `  trafficctl journal ls trafficd-data/journal
  trafficctl journal ls --config /etc/trafficd/trafficd.yaml`,
	}, func(ctx context.Context, dir string, f inspect.Journal) error {
		in, err := interrupt.Call(ctx, f.Inspect)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "segment\tstate\tfirst\tlast\tframes\tbytes\t")
		frames, bytes := 0, int64(0)
		_, log := f.(*inspect.Log)
		for i, s := range in.Segments {
			state := "sealed"
			var version *journal.VersionError
			switch {
			case errors.As(s.Err, &version):
				state = "other version"
			case s.Err != nil:
				state = "damaged"
			case log, i == len(in.Segments)-1:
				state = "active"
			}
			first, last := "-", "-"
			if s.Frames > 0 {
				first, last = fmt.Sprint(s.First), fmt.Sprint(s.Last)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Name, state, first, last, grouped(s.Frames), grouped(s.Bytes))
			frames, bytes = frames+s.Frames, bytes+s.Bytes
		}
		fmt.Fprintf(table, "%s\t\t\t\t%s\t%s\t\n", plural(len(in.Segments), "segment"), grouped(frames), grouped(bytes))
		table.Flush()
		if err := in.Err(); err != nil {
			fmt.Fprintln(std.out, err)
			return fmt.Errorf("the journal is damaged; run trafficctl journal verify %s to see what is lost and what to do", dir)
		}
		return nil
	})
}

func newJournalCursors(std streams) *cobra.Command {
	var quiet bool
	cmd := journalCommand(&cobra.Command{
		Use:   "cursors [DIR]",
		Short: "Show each consumer's position and the block in flight",
		Long: `For each consumer of the journal (the stores and the idempotency store), show its position
on disk, how many frames and rows it is behind, when the oldest of these frames was
received, and the block in flight, which is retried after a restart.

A running daemon is slightly ahead of its cursors on disk, which are updated with the
next block. The command reads every frame that a consumer has not consumed.`,
		Example: `  trafficctl journal cursors trafficd-data/journal
  trafficctl journal cursors --brokers kafka-1:9092,kafka-2:9092`,
	}, func(ctx context.Context, dir string, f inspect.Journal) error {
		display, add := newByteProgress(std.err, "counted", f.Bytes(true), quiet)
		f.OnRead(add)
		var gaps []*inspect.Gap
		consumers, err := interrupt.Call(ctx, func() (all []inspect.Consumer, err error) { all, gaps, err = f.Consumers(); return all, err })
		display.end()
		if err != nil {
			return err
		}
		var footer strings.Builder // lines below the table
		bad := len(gaps) > 0
		for _, g := range gaps {
			fmt.Fprintf(&footer, "not counted: %v\n", g)
		}
		table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "consumer\tnext\tframes behind\trows behind\toldest received\tblock in flight\t")
		for i := range consumers {
			c := &consumers[i]
			if c.Err != nil {
				fmt.Fprintf(table, "%s\t?\t?\t?\t?\t?\t\n", c.Name)
				fmt.Fprintf(&footer, "%s: %v\n", c.Name, c.Err)
				bad = true
				continue
			}
			rows, oldest, block := "-", "-", "-"
			if c.Name != pipeline.IdempotencyConsumer { // which does not consume rows
				rows = grouped(c.Rows)
			}
			if !c.Oldest.IsZero() {
				oldest = timestamp(c.Oldest)
			}
			if c.Plan != nil {
				block = fmt.Sprintf("%s, before %s", plural(c.BlockRows, "row"), position(c.End))
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", c.Name, position(c.Done), grouped(c.Frames), rows, oldest, block)
			// ClickHouse's plan is the deduplication token of its insert; Kafka's is binary.
			unprintable := func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }
			if plan := string(c.Plan); plan != "" && !strings.ContainsFunc(plan, unprintable) {
				fmt.Fprintf(&footer, "%s: the token of the block in flight is %s\n", c.Name, plan)
			}
			if c.Deleted > 0 {
				fmt.Fprintf(&footer, "%s: %s deleted unread while the consumer was not configured\n", c.Name, plural(c.Deleted, "frame"))
			}
			if c.Ahead > 0 {
				fmt.Fprintf(&footer, "%s: %s missing that it has already consumed\n", c.Name, plural(c.Ahead, "frame"))
				bad = true
			}
		}
		table.Flush()
		fmt.Fprint(std.out, footer.String())
		if bad {
			return fmt.Errorf("the journal or a cursor is damaged; run trafficctl journal verify %s to see what to do", dir)
		}
		return nil
	})
	cmd.Flags().BoolVar(&quiet, "quiet", false, "do not print progress")
	return cmd
}

func newJournalVerify(std streams) *cobra.Command {
	var quiet bool
	cmd := journalCommand(&cobra.Command{
		Use:   "verify [DIR]",
		Short: "Verify all checksums and explain how to repair damage",
		Long: `Read the whole journal and verify all checksums, the sequence of the segments, and the
cursors. If there is damage, print the file, offset and frame, the frames that cannot be
read, the consumers that have not received them, and what to do.

A torn tail is not damage: it is an unacknowledged commit. While a daemon is using DIR, stop
the daemon or verify a copy of DIR.

Exit codes: 0 no damage, 1 damage found or failure.`,
		Example: `  trafficctl journal verify trafficd-data/journal
  trafficctl journal verify trafficd-data/journal/idempotency`,
	}, func(ctx context.Context, dir string, f inspect.Journal) error {
		if err := requireStopped(f); err != nil {
			return err
		}
		display, add := newByteProgress(std.err, "verified", f.Bytes(false), quiet)
		f.OnRead(add)
		v, err := interrupt.Call(ctx, f.Verify)
		display.end()
		if err != nil {
			return err
		}
		for _, s := range v.Segments {
			switch {
			case s.Err != nil:
				printFindings(std.out, s.Name, s.Err)
				continue
			case s.Frames == 0:
				fmt.Fprintf(std.out, "%s  intact, no frames yet\n", s.Name)
			default:
				fmt.Fprintf(std.out, "%s  intact, frames %d to %d\n", s.Name, s.First, s.Last)
			}
			if s.TornBytes > 0 {
				fmt.Fprintf(std.out, "    torn tail of %s bytes: an unacknowledged commit or old contents of the file; "+
					"the daemon removes it at its next start\n", grouped(s.TornBytes))
			}
		}
		for _, c := range v.Cursors {
			if c.Err != nil {
				printFindings(std.out, c.Name+".cursor", c.Err)
				continue
			}
			fmt.Fprintf(std.out, "%s.cursor  intact, at frame %d\n", c.Name, c.Seq)
		}
		if v.Err() == nil && len(v.Gaps) == 0 {
			fmt.Fprintln(std.out, "no damage found")
			return nil
		}
		for _, g := range v.Gaps {
			fmt.Fprintf(std.out, "\nlost: %s", g.Range())
			if !g.After.IsZero() {
				fmt.Fprint(std.out, ", received after ", timestamp(g.After))
			}
			if !g.Before.IsZero() {
				fmt.Fprint(std.out, ", received before ", timestamp(g.Before))
			}
			delivered := "already delivered to every consumer"
			if lacking := v.Lacking(g); len(v.Cursors) == 0 {
				delivered = "no cursor shows whether they were delivered"
			} else if len(lacking) > 0 {
				delivered = "not yet delivered to: " + strings.Join(lacking, ", ")
			}
			fmt.Fprintf(std.out, "\n      %s\n", delivered)
		}
		if errors.As(v.Err(), new(*journal.VersionError)) || errors.As(v.Err(), new(*kafkalog.VersionError)) {
			return errors.New("the journal was written by a different version of trafficd: use the trafficctl of that version, or drain the " +
				"journal with the trafficd of that version")
		}
		if _, local := f.(*inspect.Directory); local {
			printAdvice(std.out, dir, v)
		} else {
			fmt.Fprintln(std.out, "\nThe daemon skips records that are not intact batches and writes them to its dead-letter file; "+
				"see the runbook, TrafficdRecordQuarantined.")
		}
		return errors.New("the journal is damaged")
	})
	cmd.Flags().BoolVar(&quiet, "quiet", false, "do not print progress")
	return cmd
}

func printFindings(w io.Writer, name string, err error) {
	fmt.Fprintf(w, "%s  DAMAGED\n", name)
	for _, finding := range conf.Leaves(err) {
		text := finding.Error()
		if c, ok := errors.AsType[*journal.CorruptError](finding); ok {
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

// printAdvice prints how to repair the journal: restore the files, or save the intact frames and
// start a new journal.
func printAdvice(w io.Writer, dir string, v *inspect.Verdict) {
	fmt.Fprintln(w, "\nWhat to do:")
	n := 0
	step := func(format string, args ...any) {
		n++
		fmt.Fprintf(w, "  %d. %s\n", n, fmt.Sprintf(format, args...))
	}
	onlyCursors := len(v.Gaps) == 0 && !slices.ContainsFunc(v.Segments, func(s journal.SegmentInfo) bool { return s.Err != nil })
	if !onlyCursors && !v.Lost() {
		step("No measurement is lost. If the daemon is running and delivering, leave it running: it deletes the segment once all of it " +
			"is delivered. Otherwise:")
	}
	step("Stop the daemon. If there is a backup of the damaged files, restore it and verify again. Otherwise:")
	if onlyCursors {
		step("Move the damaged cursor files away and start the daemon. Their consumers restart at the oldest frame, so frames\n" +
			"     that they have already consumed are delivered again: ClickHouse replaces those rows, Kafka does not.")
		return
	}
	behind := v.FirstUndelivered()
	rescue := behind == inspect.NoEnd || behind <= v.Newest
	if rescue {
		from := "" // unknown without a cursor
		if behind != inspect.NoEnd {
			from = fmt.Sprintf(" --from %d", behind)
		}
		step("Save the intact frames that are not yet delivered to every store:\n       trafficctl journal dump %s --skip-damaged%s > "+
			"rescued.ndjson", dir, from)
	}
	step("Move the old files away and start the daemon, which creates a new journal:\n       mkdir %[1]s/damaged && mv %[1]s/*.seg "+
		"%[1]s/*.cursor %[1]s/damaged/", dir)
	if rescue {
		step("Send the saved measurements, with a key of their product instance:\n       trafficctl resubmit rescued.ndjson\n" +
			"     If they belong to several, save each one to a file of its own with --product-instance.\n" +
			"     A store that already had them receives them again: ClickHouse replaces those rows, Kafka does not.")
	}
	if v.Lost() {
		step("The lost frames cannot be restored: ask the integrators to resend the data for that period.")
	}
}
