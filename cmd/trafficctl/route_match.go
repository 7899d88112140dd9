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
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/streets"
	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/cmd/trafficctl/internal/route"
)

type routeMatch struct {
	connection
	mapFile, list, output, listOutput string
}

func newRouteMatch(std streams) *cobra.Command {
	c := &routeMatch{output: stdio}
	cmd := &cobra.Command{
		Use:   "match",
		Short: "Find the streets on a map of OpenStreetMap",
		Long: `Find the path of each street on a map of OpenStreetMap: the IDs of the nodes along it. The
streets are those of a daemon's forecast layer, whose key needs the forecast right, or those
of --list: the list of detectors that the forecaster reads, with the columns street,
fromnode, and openlr, geometry or the end points. A street's geometry is used if it has
one, or else its OpenLR code.

--map is an extract of the region in PBF, of the same date as that of the routing engine. Roads
that are closed to cars are not used. Turn restrictions are ignored: a street is where its
code says, also where turns are forbidden.

The output has a JSON object per street and line. Its state is

  matched    one path is clearly the best
  ambiguous  another path is nearly as good, such as one of two roads between the end
             points of a street without a code; do not rely on it
  unmatched  there is no path

The numbers of each state are printed at the end, with examples of the reasons: an invalid
code, a point outside the map, no road near a point in its direction, no path of about the
given length between two points, or no length. Streets of another map that is older, newer
or coarser can be corrected by giving them a geometry in the list.

--list-output writes the list with the paths of its matched streets in the column geometry:
the web page then draws them along the roads, once the forecaster reads this list.

Exit codes: 0 all streets matched, 1 failure, 2 some are ambiguous or not matched.`,
		Example: `  trafficctl route match --map city.osm.pbf --key-file map.key --output city.ndjson
  trafficctl route match --map city.osm.pbf --list detectors.csv --output city.ndjson --list-output drawn.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), std) },
	}
	f := cmd.Flags()
	c.register(f, client.Forecast)
	f.StringVar(&c.mapFile, "map", "", "map of OpenStreetMap, such as city.osm.pbf")
	f.StringVar(&c.list, "list", "", "list of detectors with the streets, as CSV or JSON, instead of a daemon's layer")
	f.StringVar(&c.output, "output", c.output, "write the matches to this file")
	f.StringVar(&c.listOutput, "list-output", "", "write the list of --list, which must be CSV, with the paths to this file")
	return cmd
}

func (c *routeMatch) run(ctx context.Context, std streams) error {
	switch {
	case c.mapFile == "":
		return errors.New("--map must be set to an extract of OpenStreetMap in PBF, such as city.osm.pbf")
	case c.listOutput != "" && c.list == "":
		return errors.New("--list-output requires --list, the list of detectors to which it adds the paths")
	}
	wanted, err := c.streets(ctx, std)
	if err != nil {
		return err
	}
	info, err := os.Stat(c.mapFile)
	if err != nil {
		return fmt.Errorf("cannot read the map: %w", err)
	}
	display, add := newByteProgress(std.err, "read the map:", 2*info.Size(), c.quiet)
	network, err := route.Read(ctx, c.mapFile, add)
	display.end()
	if ctx.Err() != nil {
		return interrupt.Error(ctx)
	} else if err != nil {
		return err
	}
	display = newProgress(std.err, c.quiet, int64(len(wanted)), progressbar.OptionShowCount())
	var done atomic.Int64
	matches, err := route.MatchAll(ctx, network, wanted, func() {
		if n := done.Add(1); n%256 == 0 || int(n) == len(wanted) {
			display.show(n, "matched", fmt.Sprintf("matched %s of %s", grouped(n), plural(len(wanted), "street")))
		}
	})
	display.end()
	if err != nil {
		return interrupt.Error(ctx)
	}
	err = writeOutput(ctx, c.output, std.out, func(w io.Writer) error { return route.WriteMatches(w, matches) })
	if err != nil {
		return fmt.Errorf("cannot write the matches: %w", err)
	}
	if c.listOutput != "" {
		if err := c.writeList(ctx, std, matches); err != nil {
			return err
		}
	}
	if !c.quiet {
		fmt.Fprintf(std.err, "trafficctl: the map has %s between junctions\n", plural(network.Links(), "road"))
	}
	return c.report(std.err, matches)
}

// streets returns the streets of the list or of the layer.
func (c *routeMatch) streets(ctx context.Context, std streams) (all []route.Street, err error) {
	if c.list != "" {
		cfg := streets.DefaultConfig()
		cfg.Path = c.list
		content, err := streets.Read(cfg)
		if err != nil {
			return nil, err
		}
		if err := content.Invalid; err != nil && !c.quiet {
			fmt.Fprintln(std.err, "trafficctl:", err)
		}
		for _, s := range content.Streets {
			next := route.Street{Street: s.Street, FromNode: s.FromNode, OpenLR: s.OpenLR}
			for i := 0; i+1 < len(s.Geometry); i += 2 {
				next.Geometry = append(next.Geometry, [2]float64{s.Geometry[i], s.Geometry[i+1]})
			}
			all = append(all, next)
		}
		return all, nil
	}
	daemon, err := c.client()
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	resp, err := forecast.Get(ctx, daemon, forecast.Query{Horizon: -1})
	if err != nil {
		return nil, err
	}
	if !c.quiet {
		fmt.Fprintln(std.err, "trafficctl:", describe(resp))
	}
	for _, f := range resp.Layer.StreetForecast {
		all = append(all, route.Street{Street: f.Street, FromNode: f.Fromnode, OpenLR: f.OpenLRcode})
	}
	if len(all) == 0 {
		return nil, errors.New("the layer of the daemon has no streets: publish forecasts, or use --list")
	}
	return all, nil
}

// writeList writes the list with the paths of the matched streets.
func (c *routeMatch) writeList(ctx context.Context, std streams, matches []route.Match) error {
	text, err := os.ReadFile(c.list)
	if err != nil {
		return fmt.Errorf("cannot read the list: %w", err)
	}
	columns := streets.DefaultConfig().Columns
	courses := make(map[[2]string]string)
	for _, m := range matches {
		if m.State == route.Matched {
			courses[[2]string{fmt.Sprint(m.Street), fmt.Sprint(m.FromNode)}] = m.WKT()
		}
	}
	err = writeOutput(ctx, c.listOutput, std.out, func(w io.Writer) error {
		for _, comma := range ",;\t|" {
			r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
			r.Comma = comma
			rows, err := r.ReadAll()
			if err != nil || len(rows[0]) < 2 || !slices.Contains(rows[0], columns.Street) {
				continue
			}
			out := csv.NewWriter(w)
			out.Comma = comma
			return out.WriteAll(draw(rows, columns, courses))
		}
		return fmt.Errorf("it is not CSV with a column %q: save it as CSV", columns.Street)
	})
	if err != nil {
		return fmt.Errorf("cannot add the paths to %s: %w", c.list, err)
	}
	return nil
}

// draw sets the geometry of the rows whose streets have a course, and returns the rows.
func draw(rows [][]string, c streets.Columns, courses map[[2]string]string) [][]string {
	header := rows[0]
	street, node, geometry := slices.Index(header, c.Street), slices.Index(header, c.FromNode), slices.Index(header, c.Geometry)
	at := geometry
	if geometry < 0 {
		at = len(header)
	}
	for i, row := range rows {
		if geometry < 0 {
			row = append(row, "")
		}
		key := [2]string{strings.TrimSpace(row[street]), "0"}
		if node >= 0 {
			key[1] = cmp.Or(strings.TrimSpace(row[node]), "0")
		}
		if i == 0 {
			row[at] = c.Geometry
		} else if course, ok := courses[key]; ok {
			row[at] = course
		}
		rows[i] = row
	}
	return rows
}

// report prints the numbers of the states, and examples of the reasons.
func (c *routeMatch) report(w io.Writer, matches []route.Match) error {
	states, examples := map[route.State]int{}, map[string][]string{}
	for _, m := range matches {
		states[m.State]++
		if m.State != route.Matched {
			cause, reason, _ := strings.Cut(m.Reason, ": ")
			examples[cause] = append(examples[cause], fmt.Sprintf("street %d from node %d: %s", m.Street, m.FromNode, reason))
		}
	}
	fmt.Fprintf(w, "trafficctl: %s matched, %s ambiguous, %s not matched\n", plural(states[route.Matched], "street"),
		grouped(states[route.Ambiguous]), grouped(states[route.Unmatched]))
	for _, cause := range slices.Sorted(maps.Keys(examples)) {
		fmt.Fprintf(w, "trafficctl: %s: %s\n", cause, plural(len(examples[cause]), "street"))
		for _, text := range examples[cause][:min(len(examples[cause]), maxExamples)] {
			fmt.Fprintln(w, "  ", printable(text))
		}
	}
	if states[route.Matched] < len(matches) {
		return errRejected
	}
	return nil
}

const maxExamples = 3 // of a reason
