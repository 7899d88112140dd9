package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"trafficd/cmd/trafficctl/internal/feed"
)

// printSniffed prints what a table contains and the command that sends it.
func printSniffed(ctx context.Context, std streams, cfg feed.Config) error {
	t, err := feed.Sniff(ctx, cfg, std.in)
	if err != nil {
		return err
	}
	w := std.out
	separators := map[rune]string{',': "comma", ';': "semicolon", '\t': "tab"}
	fmt.Fprintf(w, "rows read   %d, and %s without data skipped\n", t.Rows, plural(t.Blank, "line"))
	fmt.Fprintf(w, "separator   %s\n", cmp.Or(separators[t.Separator], string(t.Separator)))
	decimal := "point"
	if t.Mapping != nil && t.Mapping.Decimal == ',' {
		decimal = "comma"
	}
	fmt.Fprintf(w, "decimals    %s\n\n", decimal)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COLUMN\tCONTAINS\tFIRST")
	for _, c := range t.Sniffed {
		fmt.Fprintf(table, "%s\t%s\t%s\n", short(c.Name), c, short(c.Sample))
	}
	_ = table.Flush() // std.out keeps the error
	fmt.Fprintln(w)
	if t.Mapping != nil {
		printCommand(w, t)
	}
	for _, guess := range t.Guesses {
		fmt.Fprintln(w, "Check:", printable(guess)+".")
	}
	for i, bad := range t.Bad[:min(len(t.Bad), 3)] {
		fmt.Fprintf(w, "Unreadable, %d of %d: %s\n", i+1, len(t.Bad), printable(bad))
	}
	return nil
}

func printCommand(w io.Writer, t *feed.Table) {
	fmt.Fprintf(w, "To send it:\n\n  trafficctl send %s", quoted(t.Path))
	add := func(flag, value, usual string) {
		if value != "" && value != usual {
			fmt.Fprintf(w, " --%s %s", flag, quoted(value))
		}
	}
	m, usual := t.Mapping, feed.DefaultMapping()
	if t.Format == feed.CSV || len(t.Columns) > 0 {
		add("format", string(feed.CSV), "")
	}
	add("columns", strings.Join(t.Columns, ","), "")
	add("detector", m.Detector, usual.Detector)
	add("from", m.From, usual.From)
	add("to", m.To, usual.To)
	if m.Interval > 0 {
		add("interval", strings.Replace(m.Interval.String(), "m0s", "m", 1), "")
	}
	var melt []string
	for _, column := range m.Melt {
		melt = append(melt, column.Column+"="+column.Type)
	}
	add("melt", strings.Join(melt, ","), "")
	if m.Wide {
		fmt.Fprint(w, " --detectors-from-header")
	}
	if len(melt) == 0 {
		add("type", m.Type, usual.Type)
		add("value", m.Value, usual.Value)
	}
	add("quality", m.Quality, usual.Quality)
	add("decimal", string(m.Decimal), string(usual.Decimal))
	add("time-layout", m.Clock.Layout, usual.Clock.Layout)
	switch {
	case m.Clock.Zone != nil:
		add("zone", m.Clock.Zone.String(), "")
	case t.Local:
		add("zone", "ZONE", "")
	}
	fmt.Fprintf(w, " --rejected rejected.ndjson\n\nadd --dry-run to store nothing, and --url and --key-file for your installation.\n\n")
	if t.Local && m.Clock.Zone == nil {
		fmt.Fprintln(w, "Question: the times have no UTC offset. Which clock wrote them?\n"+
			"Instead of ZONE, write UTC or, for example, Europe/Berlin.")
	}
	fmt.Fprintf(w, "The first measurement of %d: %s\n", t.Good, printable(t.First))
	if t.Local && m.Clock.Zone == nil {
		fmt.Fprintln(w, "  (with the times taken as UTC)")
	}
}

// quoted returns text as a word of a shell.
func quoted(text string) string {
	if regexp.MustCompile(`^[\pL\pN_./=,:+%@-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(printable(text), "'", `'\''`) + "'"
}
