package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/schemas/feeds"
)

const feedHelp = `Traffic authorities publish what their detectors measure as DATEX II or in formats of
their own. These commands read such a document from a file, standard input or a URL:
check shows what is in it, convert writes its measurements for trafficctl send, and sites
writes the list of its detectors for the registry of the daemon.

A list of sites (--sites) names the lane and the class of vehicles of each value.`

// feedInput is a document of an authority and how to read it.
type feedInput struct {
	format, meaning, zone, sites, published string

	period time.Duration
}

// newFeed returns the commands for documents of traffic authorities.
func newFeed(std streams) *cobra.Command {
	return group(&cobra.Command{Use: "feed", Short: "Read publications of traffic authorities: DATEX II and others", Long: feedHelp},
		newFeedCommand(std, "check", "Show what a publication contains",
			"  trafficctl feed check trafficspeed.xml.gz\n"+
				"  trafficctl feed check https://example.org/speeds.xml --format datex2 --period 6m", checkFeed),
		newFeedCommand(std, "convert", "Write the measurements of a publication as CSV, for trafficctl send",
			"  trafficctl feed convert trafficspeed.xml.gz --sites table.xml.gz | trafficctl send - --format csv --key-file demo.key", convertFeed),
		newFeedCommand(std, "sites", "Write the sites of a publication as CSV, for the registry",
			"  trafficctl feed sites table.xml.gz > detectors.csv", writeSites),
	)
}

func newFeedCommand(std streams, use, short, example string, run func(context.Context, streams, *feedInput, string) error) *cobra.Command {
	in := &feedInput{}
	cmd := &cobra.Command{
		Use: use + " FILE|URL|-", Short: short, Long: short + ".\n\n" + feedHelp, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), std, in, args[0]) },
	}
	var names []string
	for _, f := range feeds.Formats() {
		if f.Name != "rows" {
			names = append(names, f.Name)
		}
	}
	f := cmd.Flags()
	f.StringVar(&in.format, "format", "auto", "auto, or one of "+strings.Join(names, ", "))
	f.StringVar(&in.sites, "sites", "", "`file` or URL of the list of sites")
	f.StringVar(&in.meaning, "time", "", "what times are that do not say it: begin, end or middle of intervals (default that of the format)")
	f.DurationVar(&in.period, "period", 0, "length of intervals that the document does not say (default that of the format)")
	f.StringVar(&in.zone, "zone", "", "IANA time `zone` of times without a UTC offset (default that of the format)")
	f.StringVar(&in.published, "published", "", "`time` of publication, for documents without a time or date (default that of the server)")
	return cmd
}

// meanings are the values of --time.
var meanings = map[string]feeds.Meaning{"begin": feeds.Begin, "end": feeds.End, "middle": feeds.Middle}

// document is a document that was read.
type document struct {
	feeds.Format
	feeds.Options
	feeds.Summary
}

// read reads a document and the list of sites.
func (in *feedInput) read(ctx context.Context, std streams, path string, sink feeds.Sink) (*document, error) {
	table := feeds.NewTable()
	if in.sites != "" {
		add := feeds.Sink{Site: func(s *feeds.Site) error { table.Add(s); return nil }}
		if _, err := in.document(ctx, std, in.sites, nil, add); err != nil {
			return nil, err
		}
	}
	return in.document(ctx, std, path, table, sink)
}

func (in *feedInput) document(ctx context.Context, std streams, path string, table *feeds.Table, sink feeds.Sink) (*document, error) {
	body, modified, err := openDocument(ctx, path, std.in)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer body.Close()
	head := make([]byte, 16<<10)
	n, err := io.ReadFull(body, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	format, known := feeds.Lookup(in.format)
	if in.format == "auto" {
		if format, known = feeds.Guess(head[:n]); !known {
			return nil, fmt.Errorf("cannot recognize the format of %s; if it is a publication of detectors, set --format", path)
		}
	}
	if !known || format.Name == "rows" {
		return nil, fmt.Errorf("unknown format %q; see --help", in.format)
	}
	d := &document{Format: format, Options: format.Defaults}
	d.Table, d.Modified = table, modified
	if err := in.set(&d.Options); err != nil {
		return nil, err
	}
	if d.Summary, err = format.Parse(io.MultiReader(bytes.NewReader(head[:n]), body), d.Options, sink); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// set sets the options that have flags.
func (in *feedInput) set(o *feeds.Options) (err error) {
	o.Period = cmp.Or(in.period, o.Period)
	if in.meaning != "" {
		o.Time = meanings[in.meaning]
		if o.Time == feeds.Unstated {
			return fmt.Errorf("--time %q must be begin, end or middle", in.meaning)
		}
	}
	if in.published != "" {
		if o.Modified, err = time.Parse(time.RFC3339, in.published); err != nil {
			return fmt.Errorf("--published %q must be a time such as 2026-11-01T08:00:00Z", in.published)
		}
	}
	if in.zone != "" {
		if o.Zone, err = time.LoadLocation(in.zone); err != nil {
			return fmt.Errorf("--zone %q is not the name of a time zone: %w", in.zone, err)
		}
	}
	return nil
}

// maxDocument is the largest document that is read, in bytes after decompression. The list of sites
// of the Netherlands has 390 MB.
const maxDocument = 2 << 30

// openDocument opens a file or URL and decompresses it. It also returns when the server published
// the document, if it says so.
func openDocument(ctx context.Context, path string, stdin io.Reader) (io.ReadCloser, time.Time, error) {
	if !strings.HasPrefix(path, "http://") && !strings.HasPrefix(path, "https://") {
		f, err := feed.OpenFile(ctx, path, stdin)
		return f, time.Time{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	request.Header.Set("Accept-Encoding", "gzip") // several publishers reject requests without it
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, time.Time{}, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, time.Time{}, fmt.Errorf("the server responds with %s", response.Status)
	}
	modified, _ := http.ParseTime(response.Header.Get("Last-Modified"))
	body, err := feed.Decompress(response.Body)
	if err != nil {
		response.Body.Close()
		return nil, time.Time{}, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, maxDocument), response.Body}, modified, nil
}

// convertFeed writes the measurements of a document.
func convertFeed(ctx context.Context, std streams, in *feedInput, path string) error {
	out := csv.NewWriter(std.out)
	record := []string{"detectorCode", "measureTypeCode", "timestampFrom", "timestampTo", "value", "quality"}
	if err := out.Write(record); err != nil {
		return err
	}
	d, err := in.read(ctx, std, path, feeds.Sink{Row: func(r *feeds.Row) error {
		if r.Outcome != feeds.Measured {
			return nil
		}
		return out.Write(measurementOf(record, r))
	}})
	if out.Flush(); err == nil {
		err = out.Error()
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(std.err, "trafficctl:", outcomes(&d.Summary))
	return nil
}

// measurementOf sets the columns of a measurement.
func measurementOf(record []string, r *feeds.Row) []string {
	record[0], record[1] = r.Site, r.Code
	record[2], record[3] = r.From.Format(time.RFC3339Nano), r.To.Format(time.RFC3339Nano)
	record[4], record[5] = strconv.FormatFloat(r.Value, 'g', -1, 64), ""
	if !math.IsNaN(r.Quality) {
		record[5] = strconv.FormatFloat(r.Quality, 'g', -1, 64)
	}
	return record
}

func outcomes(s *feeds.Summary) string {
	return fmt.Sprintf("%s values: %s measured, %s no vehicle, %s fault, %s skipped", grouped(s.Values), grouped(s.Of(feeds.Measured)),
		grouped(s.Of(feeds.NoVehicle)), grouped(s.Of(feeds.Fault)), grouped(s.Of(feeds.Skipped)))
}

// writeSites writes the sites of a document. Sites without a description are those with values.
func writeSites(ctx context.Context, std streams, in *feedInput, path string) error {
	out := csv.NewWriter(std.out)
	if err := out.Write([]string{"detectorCode", "street", "longitude", "latitude", "lanes", "side", "version"}); err != nil {
		return err
	}
	n := 0
	_, err := in.read(ctx, std, path, feeds.Sink{Site: func(s *feeds.Site) error {
		n++
		record := []string{s.ID, s.Name, "", "", "", s.Side, s.Version}
		if !math.IsNaN(s.Lon) {
			record[2], record[3] = strconv.FormatFloat(s.Lon, 'f', -1, 64), strconv.FormatFloat(s.Lat, 'f', -1, 64)
		}
		if s.Lanes > 0 {
			record[4] = strconv.Itoa(s.Lanes)
		}
		return out.Write(record)
	}})
	if out.Flush(); err == nil {
		err = out.Error()
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%s describes no sites; the list of sites is usually a document of its own", path)
	}
	return err
}

// checkFeed shows what a document contains.
func checkFeed(ctx context.Context, std streams, in *feedInput, path string) error {
	const shown = 5
	var first []string
	var newest time.Time
	codes, reasons := map[string]int{}, map[string]int{}
	west, south, east, north := 180.0, 90.0, -180.0, -90.0
	d, err := in.read(ctx, std, path, feeds.Sink{
		Row: func(r *feeds.Row) error {
			if r.Outcome != feeds.Measured {
				reasons[r.Outcome.String()+": "+string(r.Reason)]++
				return nil
			}
			codes[r.Code]++
			if r.To.After(newest) {
				newest = r.To
			}
			if len(first) < shown {
				first = append(first, strings.Join(measurementOf(make([]string, 6), r), ","))
			}
			return nil
		},
		Site: func(p *feeds.Site) error {
			if !math.IsNaN(p.Lon) {
				west, south, east, north = min(west, p.Lon), min(south, p.Lat), max(east, p.Lon), max(north, p.Lat)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	s := &d.Summary
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "format\t%s\n", strings.TrimSpace(d.Name+" "+s.Version))
	if !s.Published.IsZero() {
		fmt.Fprintf(w, "published\t%s\n", s.Published.Format(time.RFC3339))
	}
	if !newest.IsZero() {
		fmt.Fprintf(w, "newest\tends %s, %s ago\n", newest.Format(time.RFC3339), time.Since(newest).Round(time.Second))
		fmt.Fprintf(w, "times\t%s\n", guessMeaning(d, newest))
	}
	fmt.Fprintf(w, "sites\t%s with values, %s described, %s with a position\n", grouped(s.Sites), grouped(s.Listed), grouped(s.Positions))
	if s.Positions > 0 {
		fmt.Fprintf(w, "area\tlongitude %g to %g, latitude %g to %g\n", west, east, south, north)
	}
	fmt.Fprintf(w, "values\t%s\n", strings.Replace(outcomes(s), " values", "", 1))
	most(w, "codes", codes)
	most(w, "reasons", reasons)
	for i, text := range first {
		fmt.Fprintf(w, "%s\t%s\n", map[bool]string{true: "first"}[i == 0], text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if s.Values+s.Listed == 0 {
		return fmt.Errorf("%s contains neither values nor sites", path)
	}
	return nil
}

// most writes the names that occur most often.
func most(w io.Writer, title string, counts map[string]int) {
	const shown = 8
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, name := range names[:min(len(names), shown)] {
		fmt.Fprintf(w, "%s\t%s %s\n", map[bool]string{true: title}[i == 0], grouped(counts[name]), name)
	}
	if more := len(names) - shown; more > 0 {
		fmt.Fprintf(w, "\tand %s more\n", grouped(more))
	}
}

// guessMeaning describes how the times were read, and whether that fits to the time of publication.
func guessMeaning(d *document, newest time.Time) string {
	name := "beginning"
	for text, meaning := range meanings {
		if meaning == d.Time && meaning != feeds.Begin {
			name = text
		}
	}
	text := fmt.Sprintf("the %s of an interval of %s, unless the document says otherwise", name, d.Period)
	if !d.Published.IsZero() && newest.After(d.Published) {
		text += "; but the newest interval ends after the publication: check --time and --period"
	}
	return text
}
