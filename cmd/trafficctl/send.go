package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/cmd/trafficctl/internal/send"
	"trafficd/schemas/contract"
)

const sendHelp = `Send measurements from a file, or from standard input (-), in batches.

Formats are CSV, JSON ({"measurements":[…]} or an array) and NDJSON, uncompressed or
compressed with gzip, xz or zstd. Format and compression are detected from the file
name and the first bytes. Publications of traffic authorities, such as DATEX II, need
--format, and --sites if they have a list of sites; trafficctl feed check shows what is in
them. Their faults are not sent.

JSON and NDJSON items with the contract's member names are sent unchanged. For CSV, or
if a mapping flag such as --detector is set, items are built from the columns or members
that the flags name. The defaults are the contract's names: detectorCode,
measureTypeCode, timestampFrom, timestampTo, value and the optional quality. --melt turns
each of several columns of a row into a measurement. --detectors-from-header reads a table
with one column per detector. Empty values are omitted.

For a CSV file of unknown form, such as one of a spreadsheet, begin with --sniff.

Timestamps without a UTC offset are local times in --zone, by default UTC. A row is invalid if its local
time is skipped when daylight saving time begins. It is also invalid if the local time
occurs twice when DST ends, unless --dst-overlap selects the first or second occurrence.

Sending stops at a row that cannot be parsed, after the rows before it have been sent,
unless --on-bad-row is skip. The measurements of a detector arrive in input order: the
detectors are divided among as many queues as --concurrency, each with its own batches, so
even a small file is sent as several. --concurrency 1 sends full batches, except the last.
A batch without a response is retried with the same Idempotency-Key,
so it is stored once. Sending stops immediately if a retry cannot help, and after 10 s if
no connection can be established.

Exit codes: 0 all items accepted, 1 failure, 2 items rejected or rows skipped. The
summary always shows what was acknowledged.

With --dry-run, the daemon validates the batches as it would before it stores them, and stores
nothing. With --all-errors, --rejected has a line for each error.`

const sendExamples = `  # a table of a spreadsheet: prints the command that sends it
  trafficctl send --sniff counts.csv

  # columns with the contract's names
  trafficctl send measurements.csv.gz --url https://traffic.example.org --key-file si.key

  # speed and count in one row per detector and interval
  trafficctl send observations.csv.xz --detector report_id --from timestamp --interval 5m \
      --melt avg_speed_kmh=speed,vehicle_count=flow --rejected rejected.ndjson

  # one column per detector, one row every five minutes
  trafficctl send speeds.csv --detectors-from-header --interval 5m --type =speed \
      --zone America/Los_Angeles --dry-run

  # local times, semicolons, decimal commas, no header
  trafficctl send loops.txt --format csv --separator ';' --decimal , --columns id,at,kmh \
      --detector id --from at --interval 1m --value kmh --type =speed \
      --zone Europe/Copenhagen --time-layout 'DD.MM.YYYY hh:mm' --dst-overlap first

  # a publication of a traffic authority
  trafficctl send trafficspeed.xml.gz --format ndw --sites measurement_current.xml.gz

  # other member names, from a pipe
  zcat log.gz | jq -c .event | trafficctl send - --format ndjson --detector loop --from t0 --to t1 \
      --value v --type =occupancy --time-layout unix`

func newSend(std streams) *cobra.Command {
	s, r, sniff := newSendFlags(), &inputFlags{cfg: feed.DefaultConfig(), mapping: feed.DefaultMapping()}, false
	cmd := &cobra.Command{
		Use:     "send [FILE|-]",
		Short:   "Send measurements from CSV, JSON, NDJSON, DATEX II and others",
		Long:    sendHelp,
		Example: sendExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := r.config(args)
			if sniff && err == nil {
				return printSniffed(cmd.Context(), std, cfg)
			}
			if err == nil && r.isPublication() {
				cfg, err = r.readPublication(cmd.Context(), std, cfg)
			}
			if err != nil {
				return err
			}
			return s.sendFile(cmd.Context(), std, cfg)
		},
	}
	s.registerInput(cmd.Flags(), "rows")
	r.register(cmd.Flags())
	cmd.Flags().BoolVar(&sniff, "sniff", false, "read 100 rows of a CSV file, and print what they contain and the command that sends them")
	return cmd
}

func newResubmit(std streams) *cobra.Command {
	s := newSendFlags()
	cmd := &cobra.Command{
		Use:   "resubmit FILE|-",
		Short: "Send rejected items again after correction",
		Long: `Send the items in a file written by trafficctl send --rejected. Each line is an object
whose member "item" is the measurement; the other members are ignored. First correct the
items, for example with jq, or fix the cause, for example a detector missing from the
registry. Delete the lines that should not be sent.

Items that are rejected again are written to --rejected FILE, which must be a new file.
Exit codes are those of trafficctl send.`,
		Example: `  trafficctl send day.csv --rejected rejected.ndjson
  jq -c '.item.measureTypeCode |= ascii_downcase' rejected.ndjson > corrected.ndjson
  trafficctl resubmit corrected.ndjson --rejected still-rejected.ndjson`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg := feed.DefaultConfig()
			cfg.Path, cfg.Format, cfg.Member = args[0], feed.NDJSON, "item"
			return s.sendFile(cmd.Context(), std, cfg)
		},
	}
	s.registerInput(cmd.Flags(), "lines")
	return cmd
}

// sendFlags holds the flags shared by the commands that send measurements.
type sendFlags struct {
	connection
	cfg      send.Config
	rejected string
	json     bool

	resumable bool // the command has the flag --skip-rows
	skipRows  int64
	onBadRow  string
}

func newSendFlags() *sendFlags { return &sendFlags{cfg: send.DefaultConfig(), onBadRow: "stop"} }

func (s *sendFlags) register(f *pflag.FlagSet) {
	s.connection.register(f, client.Ingest)
	f.IntVar(&s.cfg.Batch, "batch", s.cfg.Batch, "measurements per batch")
	f.IntVar(&s.cfg.Concurrency, "concurrency", s.cfg.Concurrency, "batches in flight")
	f.DurationVar(&s.cfg.RetryFor, "retry-for", s.cfg.RetryFor, "how long to retry a batch after a lost connection, 408, 409, 429 or 5xx")
	f.StringVar(&s.rejected, "rejected", "", "write rejected items to this file, as input for trafficctl resubmit")
	f.BoolVar(&s.json, "json", false, "print the summary as one line of JSON")
}

// registerSkip registers --skip-rows. rows names what it counts.
func (s *sendFlags) registerSkip(f *pflag.FlagSet, rows string) {
	s.resumable = true
	f.Int64Var(&s.skipRows, "skip-rows", 0, "number of "+rows+" to skip at the start because an earlier run has sent them")
}

// registerInput registers all flags of a command that reads a file for sendFile.
func (s *sendFlags) registerInput(f *pflag.FlagSet, rows string) {
	s.register(f)
	s.registerSkip(f, rows)
	f.StringVar(&s.onBadRow, "on-bad-row", s.onBadRow, "what to do with a row that cannot be parsed: stop or skip")
	f.BoolVar(&s.cfg.DryRun, "dry-run", false,
		"have the daemon validate everything and store nothing; print the first items, and skip rows that cannot be parsed")
	f.BoolVar(&s.cfg.AllErrors, "all-errors", false, "with --dry-run, report every error of an item instead of the first")
}

func (s *sendFlags) sendFile(ctx context.Context, std streams, cfg feed.Config) error {
	if s.onBadRow != "skip" && s.onBadRow != "stop" {
		return fmt.Errorf("--on-bad-row %q must be stop or skip", s.onBadRow)
	}
	s.cfg.SkipBadRows = s.onBadRow == "skip" || s.cfg.DryRun
	cfg.SkipRows = s.skipRows
	source, err := feed.Open(ctx, cfg, std.in)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if cfg.Publication != nil {
		defer func() { fmt.Fprintln(std.err, "trafficctl:", outcomes(&source.Values)) }()
	}
	if s.cfg.AllErrors && !s.cfg.DryRun {
		return errors.New("--all-errors requires --dry-run: the response to a stored batch has the first error of each item")
	}
	return s.run(ctx, std, source.Items(), source)
}

// run sends items. file is their source, whose progress is shown, or nil if they are not from a
// file. Once sending has started, run prints a summary, even after a failure.
func (s *sendFlags) run(ctx context.Context, std streams, items iter.Seq2[measurement.Item, error], file *feed.Source) (err error) {
	if file == nil {
		file = &feed.Source{File: new(feed.File)}
	}
	daemon, err := s.client()
	if err != nil {
		return err
	}
	path := cmp.Or(s.rejected, os.DevNull)
	if path == stdio {
		return errors.New("--rejected must be a file, because standard output is for the summary")
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		return fmt.Errorf("--rejected %s already exists; choose another file, or delete it if its items are no longer needed", path)
	}
	rejected, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot create the file of rejected items: %w", err)
	}
	display := newProgress(std.err, s.quiet, file.Size, progressbar.OptionShowBytes(true))
	sender, err := send.New(s.cfg, daemon, rejected, display.note)
	if err != nil {
		return errors.Join(err, rejected.Close())
	}
	if s.cfg.DryRun {
		items = showFirst(items, display.note)
	}
	start := time.Now()
	stop := display.follow(file, sender.Tally)
	err = sender.Send(ctx, items)
	stop()
	err = errors.Join(err, rejected.Close())
	sum := summary{DryRun: s.cfg.DryRun, Tally: sender.Tally(), Counts: file.Counts, detectors: sender.Detectors()}
	sum.Seconds = time.Since(start).Seconds()
	sum.PerSecond = float64(sum.Accepted+sum.Rejected) / max(sum.Seconds, 1e-9)
	if sum.Resume > 0 {
		sum.Resume = max(sum.Resume, s.skipRows+1) // the input may have failed before that row
	}
	if err != nil {
		sum.Failure = err.Error()
	}
	if s.json {
		_ = json.NewEncoder(std.out).Encode(&sum)
	} else {
		sum.print(std.out, s.rejected, s.resumable)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted (%w); the summary shows what was acknowledged", context.Cause(ctx))
	case err == nil && sum.Rejected+sum.BadRows > 0:
		return errRejected
	}
	return err
}

const dryRunItems = 5

// showFirst calls show with each of the first items.
func showFirst(items iter.Seq2[measurement.Item, error], show func(text string)) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		shown := 0
		for item, err := range items {
			if err == nil && shown < dryRunItems {
				shown++
				show(string(item.JSON))
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// summary is the result of sending. Its JSON member names are stable.
type summary struct {
	DryRun bool `json:"dry_run,omitempty"` // nothing was stored
	send.Tally
	feed.Counts
	detectors map[string]send.Detectors
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"items_per_second"`
	Failure   string  `json:"error,omitempty"`
}

// describeDetectors names the detectors of rejected items, those with most items first.
func describeDetectors(code string, all send.Detectors) string {
	const maxNamed = 5
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Items, all[a].Items), strings.Compare(a, b))
	})
	text := plural(len(names), "detector") + ": "
	for i, name := range names[:min(len(names), maxNamed)] {
		if i > 0 {
			text += ", "
		}
		text += short(name)
		if similar := all[name].Similar; similar != "" {
			text += " → " + short(similar)
		}
	}
	if len(names) > maxNamed {
		text += ", …"
	}
	if code == contract.UnknownDetector.String() {
		text += "; ask the operator to list them"
		if slices.ContainsFunc(names, func(name string) bool { return all[name].Similar != "" }) {
			text += ", or correct those that have another form in the registry (→)"
		}
	}
	return text
}

func (s *summary) print(w io.Writer, rejectedFile string, resumable bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range []struct {
		name   string
		n      int64
		always bool
	}{
		{"accepted", s.Accepted, true},
		{"rejected", s.Rejected, true},
		{"batches", s.Batches, true},
		{"retries", s.Retries, true},
		{"replaced by a later one of the batch", s.Duplicates, false},
		{"replayed responses", s.Replayed, false},
		{"empty values omitted", s.Empty, false},
		{"blank rows skipped", s.Blank, false},
		{"times without an offset, taken as UTC", s.AsUTC, false},
		{"unreadable rows skipped", s.BadRows, false},
		{"sent, outcome unknown", s.Unknown, false},
	} {
		if line.always || line.n > 0 {
			fmt.Fprintf(table, "%s\t%s\t\n", line.name, grouped(line.n))
		}
	}
	fmt.Fprintf(table, "seconds\t%.1f\t\nitems/s\t%s\t\n", s.Seconds, grouped(int64(s.PerSecond)))
	table.Flush()

	// Print the error codes, most frequent first, with the first occurrence of each.
	codes := slices.SortedFunc(maps.Keys(s.Codes), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Codes[b], s.Codes[a]), strings.Compare(a, b))
	})
	for _, code := range codes {
		first := s.Examples[code]
		fmt.Fprintf(w, "%12s  %s, first %s: %s\n", grouped(s.Codes[code]), code, first.Position, printable(first.Error.Description))
		if all := s.detectors[code]; len(all) > 0 {
			fmt.Fprintf(w, "%14s%s\n", "", describeDetectors(code, all))
		}
	}
	switch {
	case s.DryRun:
		fmt.Fprintln(w, "This was a dry run: the daemon stored nothing.")
		return
	case s.Batches+s.BadRows+s.Unknown == 0 && s.Failure == "":
		fmt.Fprintln(w, "There was nothing to send.")
	case s.Rejected > 0 && rejectedFile != "":
		fmt.Fprintf(w, "Correct the items in %s, then run with the same URL and key: trafficctl resubmit %[1]s\n", rejectedFile)
	case s.Rejected > 0:
		fmt.Fprintln(w, "Use --rejected FILE to save rejected items for correction.")
	}
	if s.AsUTC > 0 {
		fmt.Fprintln(w, "If the times are local, set --zone, for example Europe/Berlin, and send them again.")
	}
	if s.Resume > 1 && resumable {
		fmt.Fprintf(w, "All rows before row %s are acknowledged. Resume with --skip-rows %d; later rows that were already accepted "+
			"are sent again.\n", grouped(s.Resume), s.Resume-1)
	}
}
