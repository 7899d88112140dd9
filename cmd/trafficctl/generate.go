package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/generate"
)

const generateHelp = `Makes a network of detectors and days of their measurements: rush hours, noise
that lasts, outages. The same flags give the same bytes.

Measurements come in the order of time. They go to standard output or --output
FILE (.ndjson or .csv, also .gz and .zst), or with --send straight to the daemon:
then each batch is one interval over all detectors, as a network reports. With
more than 14,000 detectors an interval takes several batches. --send keeps that
shape with --concurrency 1, its default here.

--registry-out writes the detectors, for the daemon's registry, with the column
detectorCode.

--error-rate gives that share of the items a fault: one of every kind that the
daemon rejects item by item, from an item that is no object to a quality that is
not finite. CSV cannot express them. (BATCH_LIMIT_EXCEEDED is a matter of the
batch: --detectors 15000 --send --batch 15000.)`

const generateExamples = `  trafficctl generate --detectors 14000 --days 1 --registry-out detectors.csv --output day.ndjson.gz
  trafficctl generate --detectors 500 --days 7 --types speed,flow --all-types --format csv | head
  trafficctl generate --detectors 14000 --from 2026-11-01 --seed 1 --send --key-file si.key --error-rate 0.001`

// generating holds the flags of generate.
type generating struct {
	cfg      generate.Config
	from     string
	registry string
	output   string
	format   string
	send     bool
}

func newGenerate(std streams) *cobra.Command {
	g, s := &generating{cfg: generate.DefaultConfig()}, newSending()
	s.cfg.Concurrency = 1
	cmd := &cobra.Command{
		Use:     "generate",
		Short:   "Make synthetic detectors and measurements",
		Long:    generateHelp,
		Example: generateExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			network, err := g.network()
			if err != nil {
				return err
			}
			if g.send {
				return g.sendAll(cmd.Context(), cmd.Flags(), std, s, network)
			}
			return g.writeAll(std, network)
		},
	}
	g.register(cmd.Flags())
	s.register(cmd.Flags())
	return cmd
}

func (g *generating) register(f *pflag.FlagSet) {
	c := &g.cfg
	f.IntVar(&c.Detectors, "detectors", c.Detectors, "number of detectors")
	f.StringVar(&g.from, "from", c.From.Format(time.DateOnly), "first day, or first moment as 2026-11-01T06:00:00Z (UTC)")
	f.IntVar(&c.Days, "days", c.Days, "number of days")
	f.DurationVar(&c.Interval, "interval", c.Interval, "length of a measured interval")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "another seed makes other detectors and measurements")
	f.StringSliceVar(&c.Types, "types", c.Types, "measure types, dealt out to the detectors in turn")
	f.BoolVar(&c.AllTypes, "all-types", false, "every detector measures every type")
	f.Float64Var(&c.GapRate, "gap-rate", c.GapRate, "share of the measurements that are missing")
	f.Float64Var(&c.ErrorRate, "error-rate", 0, "share of the measurements with a fault")
	f.StringVar(&g.registry, "registry-out", "", "write the detectors to this CSV file")
	f.StringVar(&g.output, "output", "-", "write the measurements to this file")
	f.StringVar(&g.format, "format", "", "ndjson or csv; by default after the name of --output, else ndjson")
	f.BoolVar(&g.send, "send", false, "send the measurements instead of writing them; the flags of trafficctl send apply")
}

// network makes the detectors and writes them down.
func (g *generating) network() (*generate.Network, error) {
	cfg := g.cfg
	var err error
	if cfg.From, err = parseMoment(g.from); err != nil {
		return nil, err
	}
	network, err := generate.New(cfg)
	if err != nil || g.registry == "" {
		return network, err
	}
	f, err := os.Create(g.registry)
	if err == nil {
		err = errors.Join(network.WriteRegistry(f), f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the registry: %w", err)
	}
	return network, nil
}

func parseMoment(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("--from %q: write a day as 2026-11-01, or a moment as 2026-11-01T06:00:00Z", text)
}

func (g *generating) sendAll(ctx context.Context, flags *pflag.FlagSet, std streams, s *sending, network *generate.Network) error {
	if g.output != "-" || g.format != "" {
		return errors.New("--send excludes --output and --format: the measurements go to the daemon")
	}
	from, _ := parseMoment(g.from)
	if end := from.AddDate(0, 0, g.cfg.Days); end.After(time.Now().Add(time.Hour)) {
		fmt.Fprintf(std.err, "trafficctl: the measurements reach to %s; the daemon rejects those in the future (--from, --days)\n", end.Format(time.RFC3339))
	}
	return s.run(ctx, flags, std, input{items: network.Items(), size: -1})
}

func (g *generating) writeAll(std streams, network *generate.Network) error {
	write := network.WriteNDJSON
	switch g.formatName() {
	case "csv":
		if g.cfg.ErrorRate > 0 {
			return errors.New("--error-rate needs NDJSON or --send: CSV cannot express most faults")
		}
		write = network.WriteCSV
	case "ndjson":
	default:
		return fmt.Errorf("--format %q: write ndjson or csv", g.format)
	}
	out, err := g.open(std.out)
	if err != nil {
		return fmt.Errorf("cannot write measurements: %w", err)
	}
	items, err := write(out)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("cannot write measurements to %s: %w", g.output, err)
	}
	fmt.Fprintf(std.err, "trafficctl: %s measurements of %s detectors\n", grouped(items), grouped(int64(g.cfg.Detectors)))
	return nil
}

func (g *generating) formatName() string {
	if g.format != "" {
		return g.format
	}
	name := strings.TrimSuffix(strings.TrimSuffix(g.output, ".gz"), ".zst")
	if filepath.Ext(name) == ".csv" {
		return "csv"
	}
	return "ndjson"
}

// open opens the output and packs it as its name says.
func (g *generating) open(stdout io.Writer) (io.WriteCloser, error) {
	if g.output == "-" {
		return outputs{Writer: stdout}, nil
	}
	f, err := os.Create(g.output)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(g.output) {
	case ".gz":
		z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		return outputs{z, []io.Closer{z, f}}, err
	case ".zst":
		z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		return outputs{z, []io.Closer{z, f}}, err
	}
	return f, nil
}

// outputs is a writer with all that has to be closed after it, in order.
type outputs struct {
	io.Writer
	closers []io.Closer
}

// Close implements io.Closer.
func (o outputs) Close() error {
	var errs []error
	for _, c := range o.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
