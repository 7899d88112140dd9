package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/feed"
	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/schemas/geo"
)

const geometryHelp = `Convert the geometries in a file, or from standard input, between encodings and coordinate
formats. The results are identical to those of the routing service, which is not called.

Encodings for --from and --to. By default, the extension of the file name selects the
encoding (.json selects geojson); without a known extension, the encoding is wkt:

  wkt, hex, base64   one geometry per line; hex and base64 encode WKB
  wkb                one geometry per file
  kml                one geometry per placemark
  geojson            a FeatureCollection; output only

The input may be compressed with gzip, xz or zstd. The output is compressed if the name
of its file ends in .gz or .zst.

Formats for --format-from and --format-to:

  %s
  EPSG:4326, EPSG:3857, EPSG:4258, EPSG:25828 to 25838, EPSG:32601 to 32660 and 32701 to 32760

x is the longitude or easting, y the latitude or northing. Programs that read KML and
GeoJSON expect OG_GEODECIMAL.

A geometry that cannot be converted is reported with its line number and omitted. After an
interrupt, standard output contains the geometries converted so far; a file is unchanged.

Exit codes: 0 everything converted, 1 failure, 2 some geometries omitted.`

const geometryExamples = `  echo 'POINT (8.2505556 48.7627778)' | trafficctl geometry --format-to VENDOR_CONFORM
  trafficctl geometry --from wkt --to hex --format-from VENDOR_SMARTUNITS --format-to EPSG:25832 streets.wkt
  trafficctl geometry places.kml --output places.geojson`

type geometryFlags struct {
	cfg        geometry.Config
	from, to   string
	formatFrom string
	formatTo   string
	output     string
	quiet      bool
}

func newGeometry(std streams) *cobra.Command {
	c := &geometryFlags{}
	var names []string
	for _, f := range geo.Formats() {
		if f != geo.SRID { // selected by an EPSG code
			names = append(names, string(f))
		}
	}
	cmd := &cobra.Command{
		Use:     "geometry [FILE]",
		Short:   "Convert geometries between encodings and coordinate formats",
		Long:    fmt.Sprintf(geometryHelp, strings.Join(names, ", ")),
		Example: geometryExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("unexpected argument %q: convert one file at a time, or concatenate them", args[1])
			}
			return c.run(cmd.Context(), std, append(args, stdio)[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "", "encoding of the input")
	f.StringVar(&c.to, "to", "", "encoding of the output")
	f.StringVar(&c.formatFrom, "format-from", string(geo.GeoDecimal), "coordinate format of the input")
	f.StringVar(&c.formatTo, "format-to", string(geo.GeoDecimal), "coordinate format of the output")
	f.StringVar(&c.output, "output", stdio, "write the geometries to this file")
	f.IntVar(&c.cfg.MaxBytes, "max-bytes", geometry.DefaultMaxBytes, "maximum size of a geometry in the input, in bytes")
	f.BoolVar(&c.quiet, "quiet", false, "do not print progress")
	return cmd
}

func (c *geometryFlags) run(ctx context.Context, std streams, name string) error {
	cfg := c.cfg
	cfg.From = geometry.EncodingOf(c.from, feed.TrimCompression(name))
	cfg.To = geometry.EncodingOf(c.to, feed.TrimCompression(c.output))
	if err := cfg.Validate(); err != nil {
		return err
	}
	from, err := parseSystem("format-from", c.formatFrom)
	if err != nil {
		return err
	}
	to, err := parseSystem("format-to", c.formatTo)
	if err != nil {
		return err
	}

	if in, err := os.Stat(name); err == nil && in.Mode().IsRegular() {
		if out, err := os.Stat(c.output); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("--output %s is also the input; write to another file", c.output)
		}
	}
	in, err := feed.OpenFile(ctx, name, std.in)
	if err != nil {
		return fmt.Errorf("cannot read geometries: %w", err)
	}
	defer func() { _ = in.Close() }()
	display, add := newByteProgress(std.err, "converted", in.Size, c.quiet || in.Size == 0)
	add(in.BytesRead())
	in.OnRead(add)
	var tally geometry.Tally
	var failed error
	// When ctx is done, Run still writes what it has converted, so the writer must not fail then.
	err = writeOutput(context.WithoutCancel(ctx), c.output, std.out, func(out io.Writer) error {
		tally, failed = geometry.Run(ctx, in, out, cfg, geo.NewConversion(from, to), func(position string, err error) {
			display.note(fmt.Sprintf("%s: %v", position, err))
		})
		return failed
	})
	display.end()
	switch {
	case err != nil && failed == nil:
		return fmt.Errorf("cannot write geometries: %w", err)
	case err != nil:
		return err
	case !c.quiet:
		fmt.Fprintf(std.err, "trafficctl: %s converted, %s omitted\n", plural(tally.Converted, "geometry"), grouped(tally.Omitted))
	}
	if tally.Omitted > 0 {
		return errRejected
	}
	return nil
}

// parseSystem parses the value of a flag: the name of a format or an EPSG code.
func parseSystem(flag, text string) (s geo.System, err error) {
	switch format := strings.ToUpper(text); {
	case format == string(geo.SRID):
		err = errors.New("use an EPSG code such as EPSG:25832 instead of OG_SRID")
	case strings.HasPrefix(format, "EPSG:"):
		s, err = geo.ParseSystem(string(geo.SRID), text)
	default:
		if s, err = geo.ParseSystem(format, ""); err != nil {
			err = fmt.Errorf("%w, or an EPSG code such as EPSG:25832", err)
		}
	}
	if err != nil {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return s, err
}
