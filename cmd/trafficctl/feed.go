package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/feeds"
)

const feedHelp = `Traffic authorities publish what their detectors measure as DATEX II or in formats of
their own, some with a list of the detectors (--sites), which names the lane and the class
of vehicles of each value. These commands read such a document from a file, standard input
or a URL.

check shows what is in it. add does so, and configures a feeder and a daemon for it. send
--format sends one document. sites writes its detectors for the registry of the daemon.

A table in CSV, JSON or XML is a document, too, if --rows is a file such as this one. The
comment about feeds in feeder --print-config explains every key:

` + rowsExample

const rowsExample = `  form: csv     # or json or xml, with the path of its rows
  detector: id  # a column
  at: time      # ISO 8601, unless there is a layout
  values:
    - {column: kmh, measure: speed}
    - {column: n, measure: flow, unit: vehicles}  # in the interval, which is --period
`

// publication is a document of an authority and how to read it.
type publication struct {
	authority.Feed
	rows, published string
}

// register registers the flags that describe a document, without --format and --zone.
func (p *publication) register(f *pflag.FlagSet) {
	f.StringVar(&p.Sites, "sites", "", "`file` or URL of the list of sites")
	f.StringVar(&p.Time, "time", "", "what times are that do not say it: begin, end or middle of intervals (default that of the format)")
	f.DurationVar(&p.Period, "period", 0, "length of intervals that the document does not say (default that of the format)")
	f.StringVar(&p.published, "published", "", "`time` of publication, for documents without a time or date (default that of the server)")
	f.StringVar(&p.rows, "rows", "", "YAML `file` with the meaning of columns, for --format rows: the setting feeds[].rows of the feeder")
}

// newFeed returns the commands for documents of traffic authorities.
func newFeed(std streams) *cobra.Command {
	return group(&cobra.Command{Use: "feed", Short: "Read publications of traffic authorities: DATEX II and others", Long: feedHelp},
		newFeedAdd(std),
		newFeedCommand(&publication{}, "check FILE|URL|-", "Show what a publication contains",
			"  trafficctl feed check trafficspeed.xml.gz\n"+
				"  trafficctl feed check https://example.org/speeds.xml --format datex2 --period 6m",
			func(ctx context.Context, p *publication, path string) error {
				_, err := p.check(ctx, std, path)
				return err
			}),
		newFeedCommand(&publication{}, "sites FILE|URL|-", "Write the sites of a publication as JSON, for the registry",
			"  trafficctl feed sites table.xml.gz > detectors.json",
			func(ctx context.Context, p *publication, path string) error { return p.writeSites(ctx, std, path) }),
	)
}

func newFeedCommand(p *publication, use, short, example string, run func(context.Context, *publication, string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + feedHelp, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), p, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&p.Format, "format", "auto", "auto, or one of "+strings.Join(authority.Formats(), ", "))
	f.StringVar(&p.Zone, "zone", "", "IANA time `zone` of times without a UTC offset (default that of the format)")
	p.register(f)
	f.StringArrayVar(&p.Headers, "header", nil, "header of requests, such as 'Authorization: Bearer …'; may be repeated")
	f.StringVar(&p.BodyFile, "body-file", "", "`file` that is sent with POST, such as a SOAP envelope")
	f.StringVar(&p.Cert, "cert", "", "PEM `file` of the client certificate, with its private key in --key")
	f.StringVar(&p.Key, "key", "", "PEM `file` of the private key for --cert")
	f.StringVar(&p.CA, "ca", "", "PEM `file` of CA certificates to trust instead of the system's")
	return cmd
}

// document is a document that was read.
type document struct {
	feeds.Format
	feeds.Options
	feeds.Summary
}

// read reads a document and the list of sites.
func (p *publication) read(ctx context.Context, std streams, path string, sink feeds.Sink) (*document, error) {
	table, err := p.table(ctx, std, feeds.Sink{})
	if err != nil {
		return nil, err
	}
	return p.document(ctx, std, path, table, sink)
}

// table reads the list of sites, and passes it on to sink.
func (p *publication) table(ctx context.Context, std streams, sink feeds.Sink) (*feeds.Table, error) {
	if p.Sites == "" {
		return nil, nil //nolint:nilnil // a nil table knows nothing
	}
	table := feeds.NewTable()
	add := func(s *feeds.Site) error {
		table.Add(s)
		if sink.Site == nil {
			return nil
		}
		return sink.Site(s)
	}
	_, err := p.document(ctx, std, p.Sites, nil, feeds.Sink{Site: add})
	return table, err
}

func (p *publication) document(ctx context.Context, std streams, path string, table *feeds.Table, sink feeds.Sink) (*document, error) {
	var d *document
	err := p.open(ctx, std, path, func(in io.Reader, modified time.Time) error {
		head := make([]byte, 16<<10)
		n, err := io.ReadFull(in, head)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		f := *p
		if f.Format == "auto" && f.rows != "" {
			f.Format = "rows"
		}
		if f.Format == "auto" {
			format, known := feeds.Guess(head[:n])
			if !known {
				return errors.New("cannot recognize the format; if it is a publication of detectors, set --format")
			}
			f.Format = format.Name
		}
		if d, err = f.options(table); err != nil {
			return err
		}
		if d.Modified.IsZero() {
			d.Modified = modified
		}
		d.Summary, err = d.Parse(io.MultiReader(bytes.NewReader(head[:n]), in), d.Options, sink)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", settings.Redact(path, settings.Mask), err)
	}
	return d, nil
}

// options returns how to read a document.
func (p *publication) options(table *feeds.Table) (d *document, err error) {
	if p.rows != "" {
		p.Rows = &feeds.Mapping{}
		if _, err := conf.Load(p.Rows, conf.Options{File: p.rows}); err != nil {
			return nil, fmt.Errorf("--rows: %w", err)
		}
	}
	d = &document{}
	d.Format, _ = feeds.Lookup(p.Feed.Format) // Options reports an unknown one
	if d.Options, err = p.Options("--"); err != nil {
		return nil, err
	}
	d.Table = table
	if p.published != "" {
		if d.Modified, err = time.Parse(time.RFC3339, p.published); err != nil {
			return nil, fmt.Errorf("--published %q must be a time such as 2026-11-01T08:00:00Z", p.published)
		}
	}
	return d, nil
}

// open opens a file, standard input or a URL, decompresses it and calls read. It also passes when
// the server published the document, if it says so.
func (p *publication) open(ctx context.Context, std streams, path string, read func(in io.Reader, modified time.Time) error) error {
	if !settings.IsURL(path) {
		f, err := feed.OpenFile(ctx, path, std.in)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return read(f, time.Time{})
	}
	file, err := os.CreateTemp("", "trafficctl-feed-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	source, err := authority.NewSource(p.Feed, path, file.Name())
	if err != nil {
		return err
	}
	_, modified, err := source.Fetch(ctx)
	if err != nil {
		return err
	}
	return authority.Read(file.Name(), func(in io.Reader) error { return read(in, modified) })
}

// writeSites writes the sites of a document.
func (p *publication) writeSites(ctx context.Context, std streams, path string) error {
	before := "[\n"
	_, err := p.read(ctx, std, path, feeds.Sink{Site: func(s *feeds.Site) error {
		line, err := json.Marshal(authority.EntryOf(s))
		fmt.Fprintf(std.out, "%s%s", before, line)
		before = ",\n"
		return err
	}})
	if err == nil && before == "[\n" {
		err = errors.New("the document describes no sites; the list of sites is usually a document of its own")
	}
	if err == nil {
		fmt.Fprintln(std.out, "\n]")
	}
	return err
}

// findings are what check counts.
type findings struct {
	*document
	codes, reasons           map[string]int
	first                    []string
	newest                   time.Time
	described                map[string]bool // sites in the list or in the document
	positions                int             // of these, with a position
	undescribed              map[string]bool // other sites with values
	noLength                 int             // measurements whose interval has no length
	west, south, east, north float64
}

func (c *findings) rows(all []feeds.Row) error {
	const shown = 5
	if site := all[0].Site; !c.described[site] {
		c.undescribed[strings.Clone(site)] = true
	}
	for i := range all {
		r := &all[i]
		if r.Outcome != feeds.Measured {
			c.reasons[r.Outcome.String()+": "+string(r.Reason)]++
			continue
		}
		c.codes[r.Code]++
		if r.To.After(c.newest) {
			c.newest = r.To
		}
		if r.From.Equal(r.To) {
			c.noLength++
		}
		if len(c.first) < shown {
			m := r.Measurement()
			c.first = append(c.first, string(m.AppendJSON(nil)))
		}
	}
	return nil
}

func (c *findings) site(s *feeds.Site) error {
	if c.described[s.ID] { // another version of the site
		return nil
	}
	c.described[strings.Clone(s.ID)] = true
	delete(c.undescribed, s.ID)
	if !math.IsNaN(s.Lon) {
		c.positions++
		c.west, c.south, c.east, c.north = min(c.west, s.Lon), min(c.south, s.Lat), max(c.east, s.Lon), max(c.north, s.Lat)
	}
	return nil
}

// check shows what a document and its list of sites contain.
func (p *publication) check(ctx context.Context, std streams, path string) (*findings, error) {
	c := &findings{
		codes: map[string]int{}, reasons: map[string]int{}, described: map[string]bool{}, undescribed: map[string]bool{},
		west: 180, south: 90, east: -180, north: -90,
	}
	sink := feeds.Sink{Rows: c.rows, Site: c.site}
	table, err := p.table(ctx, std, sink)
	if err == nil {
		c.document, err = p.document(ctx, std, path, table, sink)
	}
	if err != nil {
		return nil, err
	}
	s := &c.Summary
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "format\t%s\n", strings.TrimSpace(c.Name+" "+s.Version))
	if !s.Published.IsZero() {
		fmt.Fprintf(w, "published\t%s\n", s.Published.Format(time.RFC3339))
	}
	if !c.newest.IsZero() {
		fmt.Fprintf(w, "newest\tends %s, %s ago\n", c.newest.Format(time.RFC3339), age(time.Since(c.newest)))
		fmt.Fprintf(w, "times\t%s\n", c.meaning())
	}
	listed := len(c.described)
	fmt.Fprintf(w, "sites\t%s described: %s with a position, %s without; %s with values are not described\n",
		grouped(listed), grouped(c.positions), grouped(listed-c.positions), grouped(len(c.undescribed)))
	if c.positions > 0 {
		fmt.Fprintf(w, "area\tlongitude %g to %g, latitude %g to %g\n", c.west, c.east, c.south, c.north)
	}
	fmt.Fprintf(w, "values\t%s\n", strings.Replace(outcomes(s), " values", "", 1))
	most(w, "codes", c.codes)
	most(w, "reasons", c.reasons)
	if listed == 0 && c.Of(feeds.Measured) > 0 {
		fmt.Fprintln(w, "\tno site has a position, and no value a lane of the list: set --sites if the authority publishes one")
	}
	for i, text := range c.first {
		fmt.Fprintf(w, "%s\t%s\n", map[bool]string{true: "first"}[i == 0], text)
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if s.Values+s.Listed == 0 {
		return nil, errors.New("the document contains neither values nor sites")
	}
	return c, nil
}

func outcomes(s *feeds.Summary) string {
	return fmt.Sprintf("%s values: %s measured, %s no vehicle, %s fault, %s skipped", grouped(s.Values), grouped(s.Of(feeds.Measured)),
		grouped(s.Of(feeds.NoVehicle)), grouped(s.Of(feeds.Fault)), grouped(s.Of(feeds.Skipped)))
}

// most writes the names that occur most often.
func most(w io.Writer, title string, counts map[string]int) {
	const shown = 12
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, name := range names[:min(len(names), shown)] {
		fmt.Fprintf(w, "%s\t%s %s\n", map[bool]string{true: title}[i == 0], grouped(counts[name]), name)
	}
	if more := len(names) - shown; more > 0 {
		fmt.Fprintf(w, "\tand %s more\n", grouped(more))
	}
}

// meaning describes how the times were read, and what they probably are if that does not fit to the
// time of publication.
func (c *findings) meaning() string {
	if c.noLength > 0 {
		return grouped(c.noLength) + " measurements have no length: set --period, the time between publications"
	}
	if c.Period == 0 {
		return "both ends of intervals, as the document says"
	}
	name := map[feeds.Meaning]string{feeds.End: "end", feeds.Middle: "middle"}[c.Time]
	text := fmt.Sprintf("the %s of an interval of %s, unless the document says otherwise", cmp.Or(name, "beginning"), c.Period)
	if c.Published.IsZero() {
		return text
	}
	before := c.Published.Sub(c.newest)
	switch {
	case before >= 0:
		return text + fmt.Sprintf("; the newest ends %s before the publication", age(before))
	case name != "end" && before+c.Period >= 0:
		return text + fmt.Sprintf("; but the newest ends %s after the publication: they are probably the end, set --time end", age(-before))
	}
	return text + fmt.Sprintf("; but the newest ends %s after the publication: check --time, --period and --zone", age(-before))
}

// age formats a duration in seconds, or in days if it is long.
func age(d time.Duration) string {
	if days := int(d.Hours() / 24); days > 1 {
		return grouped(days) + " days"
	}
	return d.Round(time.Second).String()
}
