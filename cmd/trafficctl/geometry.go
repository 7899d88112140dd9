package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/cmd/trafficctl/internal/soap"
	"trafficd/schemas/geo"
)

const geometryHelp = `Converts the geometries of a file, or of standard input, from one encoding to another
and their coordinates from one format to another, as the routing service does.

Encodings, for --from and --to; by default what the names of the files end in (.json is
geojson), else wkt:

  wkt, hex, base64   one geometry in each line; hex and base64 are those of WKB
  wkb                one geometry in the file
  kml                each placemark is a geometry
  geojson            a FeatureCollection, only written

Formats, for --format-from and --format-to; an EPSG code stands for OG_SRID:

  %s
  EPSG:4326, EPSG:3857, EPSG:4258, EPSG:25828 to 25838, EPSG:32601 to 32660 and 32701 to 32760

x is the longitude or easting and y the latitude or northing in all of them. Programs
that read KML and GeoJSON expect OG_GEODECIMAL in them.

A geometry that cannot be converted is reported with its line and left out.

With --url a daemon's routing service converts the coordinates, as jobs of some hundred
geometries; encodings are read and written here. That needs a key with the right routing.

Exit codes: 0 everything is converted, 2 some geometries are left out, 1 failure.`

const geometryExamples = `  echo 'POINT (8.2505556 48.7627778)' | trafficctl geometry --format-to VENDOR_CONFORM
  trafficctl geometry --from wkt --to hex --format-from VENDOR_SMARTUNITS --format-to EPSG:25832 streets.wkt
  trafficctl geometry places.kml --output places.geojson
  trafficctl geometry streets.wkt --format-to EPSG:25832 --url http://127.0.0.1:8080 --key-file routing.key`

// converting holds the flags of geometry.
type converting struct {
	cfg        geometry.Config
	from, to   string
	formatFrom string
	formatTo   string
	srID       string
	output     string
	quiet      bool

	url     string   // of a daemon that converts; empty: offline
	calling *calling // how it is called
}

func newGeometry(std streams) *cobra.Command {
	c := &converting{cfg: geometry.DefaultConfig(), calling: newCalling()}
	names := make([]string, 0, len(geo.Formats()))
	for _, f := range geo.Formats() {
		names = append(names, string(f))
	}
	cmd := &cobra.Command{
		Use:     "geometry [FILE]",
		Short:   "Convert geometries between encodings and coordinate formats",
		Long:    fmt.Sprintf(geometryHelp, strings.Join(names, ", ")),
		Example: geometryExamples,
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			by, done, err := c.converter()
			if err != nil {
				return err
			}
			defer done()
			return c.run(cmd.Context(), std, args, by)
		},
	}
	c.register(cmd.Flags())
	return cmd
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%q is one file too many: convert one at a time, or join them, as by cat", args[1])
	}
	return nil
}

func (c *converting) register(f *pflag.FlagSet) {
	f.StringVar(&c.from, "from", "", "encoding of the input")
	f.StringVar(&c.to, "to", "", "encoding of the output")
	f.StringVar(&c.formatFrom, "format-from", string(geo.GeoDecimal), "format of the coordinates in the input")
	f.StringVar(&c.formatTo, "format-to", string(geo.GeoDecimal), "format of the coordinates in the output")
	f.StringVar(&c.srID, "srid", "", "EPSG code that goes with the format OG_SRID")
	f.StringVar(&c.output, "output", "-", "write the geometries to this file")
	f.IntVar(&c.cfg.MaxBytes, "max-bytes", c.cfg.MaxBytes, "largest geometry in the input")
	f.BoolVar(&c.quiet, "quiet", false, "nothing on standard error but failures")
	f.StringVar(&c.url, "url", "", "base URL of a daemon whose routing service converts; by default the conversion is made here")
	c.calling.registerKey(f)
}

// check refuses flags that would have no effect: whoever gives them counts on it.
func (c *converting) check(f *pflag.FlagSet) error {
	byCode := func(format string) bool { return strings.EqualFold(format, string(geo.SRID)) }
	if c.srID != "" && !byCode(c.formatFrom) && !byCode(c.formatTo) {
		return errors.New("--srid is the code of the format OG_SRID, which neither --format-from nor --format-to names: write for example --format-to EPSG:25832")
	}
	for _, name := range []string{"key", "key-file", "timeout"} {
		if c.url == "" && f.Changed(name) {
			return fmt.Errorf("--%s is for a daemon's routing service: say with --url which, or leave it out and the conversion is made here", name)
		}
	}
	return nil
}

// system reads a format, or an EPSG code in its place.
func (c *converting) system(flag, text string) (geo.System, error) {
	format, srID := text, c.srID
	if strings.HasPrefix(strings.ToUpper(text), "EPSG:") {
		format, srID = string(geo.SRID), text
	}
	format = strings.ToUpper(format)
	s, err := geo.ParseSystem(format, srID)
	switch {
	case err == nil:
		return s, nil
	case format == string(geo.SRID):
		return s, fmt.Errorf("--%s: %w", flag, err)
	}
	return s, fmt.Errorf("--%s: %w, or an EPSG code, as EPSG:25832", flag, err)
}

// converter gives who converts. done is to be called at the end.
func (c *converting) converter() (by geometry.Converter, done func(), err error) {
	from, err := c.system("format-from", c.formatFrom)
	if err != nil {
		return nil, nil, err
	}
	to, err := c.system("format-to", c.formatTo)
	if err != nil {
		return nil, nil, err
	}
	if c.url == "" {
		return geometry.Offline{Conversion: geo.NewConversion(from, to)}, func() {}, nil
	}
	client, err := c.calling.clientOf(c.url)
	if err != nil {
		return nil, nil, err
	}
	return soap.Converter{Client: client, From: from, To: to, Limits: c.cfg.Limits}, client.Close, nil
}

// config completes the settings from the names of the files.
func (c *converting) config(input string) (geometry.Config, error) {
	cfg := c.cfg
	cfg.From = chosen(c.from, input, cfg.From)
	cfg.To = chosen(c.to, c.output, cfg.To)
	return cfg, cfg.Validate()
}

func chosen(flag, file string, otherwise geometry.Encoding) geometry.Encoding {
	if flag != "" {
		return geometry.Encoding(strings.ToLower(flag))
	}
	if e, ok := geometry.OfFile(file); ok {
		return e
	}
	return otherwise
}

// run converts all with the converter, and says how many there were.
func (c *converting) run(ctx context.Context, std streams, args []string, by geometry.Converter) error {
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	cfg, err := c.config(name)
	if err != nil {
		return err
	}
	if err := c.checkOutput(name); err != nil {
		return err
	}
	in, err := c.open(std, name)
	if err != nil {
		return err
	}
	defer in.Close()
	var tally geometry.Tally
	err = c.into(std.out, func(out io.Writer) (err error) {
		tally, err = geometry.Run(ctx, in, out, cfg, by, func(place string, err error) {
			in.clear()
			fmt.Fprintf(std.err, "trafficctl: %s: %v\n", place, err)
		})
		in.clear()
		return err
	})
	if err != nil {
		return err
	}
	if !c.quiet {
		fmt.Fprintf(std.err, "trafficctl: geometries converted: %s, left out: %s\n", grouped(tally.Converted), grouped(tally.Refused))
	}
	if tally.Refused > 0 {
		return errRejected
	}
	return nil
}

// metered is an input that shows how much of it has been read.
type metered struct {
	io.ReadCloser
	shown *meter // nil if nobody knows how long the input is
}

func (c *converting) open(std streams, name string) (metered, error) {
	if name == "-" {
		return metered{ReadCloser: io.NopCloser(std.in)}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return metered{}, fmt.Errorf("cannot read geometries: %w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return metered{ReadCloser: f}, nil
	}
	return metered{f, newMeter(std.err, "converted", info.Size(), c.quiet)}, nil
}

// Read implements io.Reader.
func (m metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if m.shown != nil {
		m.shown.add(int64(n))
	}
	return n, err
}

// clear takes the bar away, for something else to be written.
func (m metered) clear() {
	if m.shown != nil && m.shown.bar != nil {
		m.shown.bar.Clear()
	}
}

// checkOutput keeps a file from being emptied before it is read.
func (c *converting) checkOutput(input string) error {
	in, err := os.Stat(input)
	if err != nil || !in.Mode().IsRegular() {
		return nil // standard input; or else the opening says why not
	}
	out, err := os.Stat(c.output)
	if err == nil && os.SameFile(in, out) {
		return fmt.Errorf("--output %s is the input too: write to another file", c.output)
	}
	return nil
}

// into has write fill the output.
func (c *converting) into(stdout io.Writer, write func(io.Writer) error) error {
	buffered := func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 64<<10)
		return errors.Join(write(out), out.Flush())
	}
	if c.output == "-" {
		return buffered(stdout)
	}
	var failed error
	err := writeInPlace(c.output, func(w io.Writer) error {
		failed = buffered(w)
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("cannot write geometries: %w", err)
	}
	return err
}
