package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/pipeline"
)

const deadLetterHelp = `An accepted measurement that a store rejects permanently is written to the daemon's
dead-letter file (setting dead_letters; by default dead-letters.ndjson in the journal's
directory). The other store may have accepted it. A record in the topic of a journal in
Kafka that is not an intact batch is written there, too, with its bytes in base64.
trafficctl never changes the file.`

func newDeadLetter(std streams) *cobra.Command {
	return group(
		&cobra.Command{Use: "deadletter", Short: "List and resend measurements that a store rejected permanently", Long: deadLetterHelp},
		newDeadLetterList(std), newDeadLetterResend(std),
	)
}

func newDeadLetterList(std streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls FILE|-",
		Short: "List the dead letters and count them by store and reason",
		Long: deadLetterHelp + `

A crash may duplicate or truncate a line. Duplicates are shown once. Truncated lines are
skipped and reported.`,
		Example: `  trafficctl deadletter ls trafficd-data/journal/dead-letters.ndjson
  trafficctl deadletter ls dead-letters.ndjson --json | jq -r .reason | sort | uniq -c`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listDeadLetters(cmd.Context(), std, args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each dead letter as one line of JSON, instead of the table and counts")
	return cmd
}

func newDeadLetterResend(std streams) *cobra.Command {
	s := newSendFlags()
	var selected selection
	cmd := &cobra.Command{
		Use:   "resend FILE",
		Short: "Send dead letters again after the cause is fixed",
		Long: `Resend the measurements in a dead-letter file once the cause of the rejection, for example
a column type, a topic's maximum message size or a missing grant, is fixed.

The measurements are sent to both stores as new batches. A store that already has a
measurement receives it again: ClickHouse replaces the row, Kafka gets another record with
a new batch-id. This also overwrites later corrections by an integrator; to keep a
correction, send a copy of the file without the line of that measurement.

A key belongs to one product instance; if the file has several, select one with
--product-instance. A measurement that several stores rejected is sent once, unless more
than 500,000 other measurements are between its lines. The file is not changed. Move it
away once everything is accepted; the daemon creates it when needed.

Items that the daemon rejects are written to --rejected FILE, which must be a new file, as
input for trafficctl resubmit. Exit codes are those of trafficctl send.`,
		Example: `  trafficctl deadletter ls dead-letters.ndjson
  trafficctl deadletter resend dead-letters.ndjson --product-instance north --key-file north.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); args[0] == stdio || err == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s must be a regular file, because it is read twice", args[0])
			}
			if err := selected.narrow(cmd.Context(), args[0]); err != nil {
				return err
			}
			if n := selected.records; n > 0 {
				fmt.Fprintf(std.err, "trafficctl: not sending %s of the log: %s\n", plural(n, "record"), whyNotSent)
			}
			if !s.quiet {
				fmt.Fprintf(std.err, "trafficctl: sending the dead letters of product instance %s; the key must belong to it\n",
					selected.productInstance)
			}
			return s.run(cmd.Context(), std, selected.items(cmd.Context(), args[0], s.skipRows), nil)
		},
	}
	f := cmd.Flags()
	s.register(f)
	s.registerSkip(f, "measurements")
	f.StringVar(&selected.productInstance, "product-instance", "", "only dead letters of this product instance")
	f.StringVar(&selected.sink, "sink", "", "only dead letters of this store: clickhouse or kafka")
	return cmd
}

// reason counts the dead letters that have the same store and reason. first and last are the times
// of the earliest and the latest.
type reason struct {
	sink, text  string
	n           int64
	first, last time.Time
}

// maxReasons is the number of different reasons that ls counts separately.
const maxReasons = 100

// tableRows is the number of table rows that are buffered for alignment, to bound memory use.
const tableRows = 1000

func listDeadLetters(ctx context.Context, std streams, path string, asJSON bool) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	defer table.Flush()
	type key struct {
		id   letterID
		sink string
	}
	reasons, n := map[[2]string]*reason{}, 0
	var seen recent[key]
	for l, err := range (selection{}).letters(ctx, path, std.in, func(text string) { fmt.Fprintln(std.err, "trafficctl:", text) }) {
		if err != nil {
			return err
		}
		k := key{l.id(), l.Sink}
		if !seen.add(k) {
			continue
		}
		if asJSON {
			if _, err := fmt.Fprintf(std.out, "%s\n", l.text); err != nil {
				return fmt.Errorf("cannot write the dead letters: %w", err)
			}
			continue
		}
		if n == 0 {
			fmt.Fprintln(table, "sink\tat\tproduct instance\tdetector\ttype\tinterval\tvalue\treason")
		}
		printLetter(table, l)
		of := [2]string{l.Sink, l.Reason}
		if reasons[of] == nil && len(reasons) >= maxReasons { // ClickHouse repeats the values of the row
			of[1] = "other reasons"
		}
		r := reasons[of]
		if r == nil {
			r = &reason{of[0], of[1], 0, l.At, l.At}
			reasons[of] = r
		}
		r.n++
		if l.At.Before(r.first) {
			r.first = l.At
		}
		if l.At.After(r.last) {
			r.last = l.At
		}
		if n++; n%tableRows == 0 {
			if err := table.Flush(); err != nil {
				return fmt.Errorf("cannot write the dead letters: %w", err)
			}
		}
	}
	if asJSON {
		return nil
	}
	table.Flush()
	fmt.Fprintf(std.out, "\n%s\n", plural(n, "dead letter"))
	byCount := func(a, b *reason) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.sink, b.sink), strings.Compare(a.text, b.text))
	}
	for _, r := range slices.SortedFunc(maps.Values(reasons), byCount) {
		span := timestamp(r.first)
		if !r.first.Equal(r.last) {
			span += " to " + timestamp(r.last)
		}
		fmt.Fprintf(std.out, "%12s  %s: %s (%s)\n", grouped(r.n), r.sink, short(r.text), span)
	}
	return nil
}

// printLetter prints a row of the table.
func printLetter(w io.Writer, l letter) {
	if r := l.Record; r != nil {
		fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\trecord at offset %d of partition %d of topic %s (%s): %s\n", l.Sink, timestamp(l.At),
			r.Offset, r.Partition, printable(r.Topic), plural(len(r.Value), "byte"), short(l.Reason))
		return
	}
	item := l.Item
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s/%s\t%v\t%s\n", l.Sink, timestamp(l.At), l.ProductInstance,
		short(item.DetectorCode), item.MeasureTypeCode,
		item.TimestampFrom.Format(time.RFC3339Nano), item.TimestampTo.Format(time.RFC3339Nano), item.Value, short(l.Reason))
}

// maxLetterBytes is the maximum length of a line, which may include a record of the log in base64.
const maxLetterBytes = 256 << 20

type letter struct {
	pipeline.DeadLetter
	line int64
	text []byte // valid until the next letter
}

// letterID identifies a measurement or a record across the dead letters of several stores.
type letterID struct {
	batch  uuid.UUID
	index  uint32
	record string // if the letter is a record
}

func (l letter) id() letterID {
	if r := l.Record; r != nil {
		return letterID{record: fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)}
	}
	return letterID{batch: uuid.MustParse(l.BatchID), index: l.Index} // parseLetter has validated it
}

// maxRecent bounds the memory of a recent to about 50 MB. Tests replace it.
var maxRecent = 500_000

// recent is a set of the values that were added last, at least maxRecent of them.
type recent[K comparable] struct{ current, previous map[K]struct{} }

// add adds a value and reports whether it was not in the set.
func (r *recent[K]) add(k K) bool {
	_, current := r.current[k]
	_, previous := r.previous[k]
	if current || previous {
		return false
	}
	if r.current == nil || len(r.current) == maxRecent {
		r.previous, r.current = r.current, map[K]struct{}{}
	}
	r.current[k] = struct{}{}
	return true
}

// selection selects dead letters. The zero value selects all. A record of the log has no product
// instance.
type selection struct {
	productInstance, sink string
	records               int // number of selected records, set by narrow
}

// letters returns the selected dead letters in a file, without lines that the daemon adds in the
// meantime: otherwise, if a store rejects them again, resend would never end. A crash of the daemon
// may have duplicated dead letters, or truncated a line; the daemon writes that line again after
// the restart. letters skips truncated lines and calls note for each. An error ends the sequence.
func (s selection) letters(ctx context.Context, path string, stdin io.Reader, note func(text string)) iter.Seq2[letter, error] {
	return func(yield func(letter, error) bool) {
		file, err := feed.OpenFile(ctx, path, stdin)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the daemon creates the file (setting dead_letters) for the first dead letter, so there may be none", err)
		}
		if err != nil {
			yield(letter{}, fmt.Errorf("cannot read the dead letters: %w", err))
			return
		}
		defer func() { _ = file.Close() }()
		r := bufio.NewReaderSize(file, 64<<10)
		for n := int64(1); ; n++ {
			line, err := feed.ReadLine(r, maxLetterBytes)
			switch {
			case ctx.Err() != nil:
				yield(letter{}, interrupt.Error(ctx))
				return
			case err == io.EOF:
				return
			case err != nil:
				yield(letter{}, fmt.Errorf("cannot read %s at line %d: %w", path, n, err))
				return
			case len(line) == 0:
				continue
			case !json.Valid(line) && looksTruncated(line):
				note(fmt.Sprintf("line %d is truncated; the daemon writes the measurement again on a later line", n))
				continue
			}
			l, err := parseLetter(n, line)
			if err != nil {
				yield(letter{}, fmt.Errorf("cannot read %s: line %d is not a dead letter: %w", path, n, err))
				return
			}
			isSelected := (s.productInstance == "" || l.ProductInstance == s.productInstance) && (s.sink == "" || l.Sink == s.sink)
			if isSelected && !yield(l, nil) {
				return
			}
		}
	}
}

func parseLetter(number int64, line []byte) (letter, error) {
	l := letter{line: number, text: line}
	err := json.Unmarshal(line, &l.DeadLetter)
	switch {
	case err == nil && l.Sink != "" && l.Record != nil:
	case err == nil && (l.Sink == "" || l.Item.DetectorCode == ""):
		err = errors.New("missing sink or item")
	case err == nil && uuid.Validate(l.BatchID) != nil:
		err = errors.New("batchId is not a UUID")
	}
	if err != nil {
		err = fmt.Errorf("%w; for a file of rejected items use trafficctl resubmit", err)
	}
	return l, err
}

// looksTruncated reports whether an invalid line may be a dead letter that a crash has truncated:
// it begins like one, or contains zero bytes, which file systems leave after a power failure.
func looksTruncated(line []byte) bool {
	const start = `{"sink":"`
	return strings.HasPrefix(start, string(line[:min(len(line), len(start))])) || bytes.IndexByte(line, 0) >= 0
}

// whyNotSent is the reason for not sending records of the log.
const whyNotSent = "they are not intact batches, so they contain no measurements that could be sent; " +
	"see the runbook, TrafficdRecordQuarantined"

// narrow restricts the selection to the product instance of the selected letters, so that letters
// of others that the daemon adds later are not sent with its key. It returns an error if there are
// no letters, or if they belong to several product instances.
func (s *selection) narrow(ctx context.Context, path string) error {
	found := map[string]bool{}
	for l, err := range s.letters(ctx, path, nil, func(string) {}) {
		if err != nil {
			return err
		}
		if l.Record != nil {
			s.records++
			continue
		}
		found[l.ProductInstance] = true
	}
	names := slices.Sorted(maps.Keys(found))
	switch len(names) {
	case 0:
		filters := ""
		if s.productInstance != "" {
			filters += " of product instance " + s.productInstance
		}
		if s.sink != "" {
			filters += " of sink " + s.sink
		}
		if s.records > 0 {
			return fmt.Errorf("cannot resend %s of the log in %s%s: %s", plural(s.records, "record"), path, filters, whyNotSent)
		}
		return fmt.Errorf("no dead letters in %s%s", path, filters)
	case 1:
		s.productInstance = names[0]
		return nil
	}
	return fmt.Errorf("the dead letters in %s belong to %d product instances (%s), but a key belongs to one; select one with "+
		"--product-instance", path, len(names), strings.Join(names, ", "))
}

// items returns the selected measurements except the first ones, numbered consecutively. It returns
// a measurement that several stores rejected only once.
func (s selection) items(ctx context.Context, path string, skip int64) iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		var seen recent[letterID]
		n := int64(0)
		for l, err := range s.letters(ctx, path, nil, func(string) {}) {
			var item measurement.Item
			if err == nil {
				if l.Record != nil || !seen.add(l.id()) {
					continue
				}
				if n++; n <= skip {
					continue
				}
				item.JSON, err = json.Marshal(l.Item)
				item.Detector, item.Position = l.Item.DetectorCode, measurement.Position{Row: n, Line: l.line}
			}
			if !yield(item, err) {
				return
			}
		}
	}
}
