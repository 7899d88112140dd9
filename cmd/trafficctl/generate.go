package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/internal/must"
	"trafficd/cmd/trafficctl/internal/generate"
)

const generateHelp = `Generate a town with a detector in each direction of its streets, and the detectors'
measurements over several days, with rush hours, moving jams, noise and outages. The same
flags produce the same bytes. trafficctl forecast generate uses the same town.

Measurements are ordered by time. They are written as NDJSON to standard output or to
--output FILE, which is compressed if its name ends in .gz or .zst. With --send, they are
sent to the daemon instead: each interval as one batch, or several if it has more than
14,000 measurements. --concurrency defaults to 1 to preserve their order. The flags for
sending require --send.

--registry-out writes the detectors and their streets as CSV. The daemon's registry reads
the column detectorCode.

--error-rate makes the given share of the items invalid, covering all error codes that the
daemon returns for single items. To get BATCH_LIMIT_EXCEEDED, use --detectors 15000 --send
--batch 15000.`

const generateExamples = `  trafficctl generate --detectors 14000 --days 1 --registry-out detectors.csv --output day.ndjson.gz
  trafficctl generate --detectors 500 --days 7 --types speed,flow --all-types | head
  trafficctl generate --detectors 14000 --from 2026-11-01 --seed 1 --send --key-file si.key --error-rate 0.001`

func newGenerate(std streams) *cobra.Command {
	c, s := generate.DefaultConfig(), newSendFlags()
	s.cfg.Concurrency = 1
	sending := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.register(sending)
	var from, registry, output string
	var sends bool
	cmd := &cobra.Command{
		Use:     "generate",
		Short:   "Generate a town's detectors and measurements",
		Long:    generateHelp,
		Example: generateExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			sending.VisitAll(func(f *pflag.Flag) {
				if f.Changed && !sends && f.Name != "quiet" {
					err = fmt.Errorf("--%s requires --send; without --send no daemon is called", f.Name)
				}
			})
			must.Do(err)
			if registry == stdio && (sends || output == stdio) {
				return errors.New("--registry-out - requires --output FILE, because standard output is already used")
			}
			c.From = must.Get(parseMoment(from))
			network := must.Get(generate.New(c))
			if registry != "" {
				must.Do(writeOutput(cmd.Context(), registry, std.out, network.WriteRegistry), "cannot write the registry")
			}
			if !sends {
				return writeMeasurements(cmd.Context(), std, network, output)
			}
			if output != stdio {
				return errors.New("use either --send or --output, not both")
			}
			if end := c.From.Add(time.Duration(c.Intervals()) * c.Interval); end.After(time.Now().Add(time.Hour)) {
				fmt.Fprintf(std.err, "trafficctl: the measurements end at %s; the daemon rejects measurements in the future (set --from, --days or "+
					"--intervals)\n", end.Format(time.RFC3339))
			}
			return s.run(cmd.Context(), std, network.Items(), nil)
		},
	}
	f := cmd.Flags()
	f.AddFlagSet(sending)
	f.IntVar(&c.Streets, "detectors", c.Streets, "number of detectors")
	f.StringVar(&from, "from", c.From.Format(time.DateOnly), "start in UTC, such as 2026-11-01 or 2026-11-01T06:00:00Z")
	f.IntVar(&c.Days, "days", c.Days, "number of days")
	f.IntVar(&c.Count, "intervals", 0, "number of intervals, instead of --days")
	f.DurationVar(&c.Interval, "interval", c.Interval, "length of an interval")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the random numbers")
	f.Float64Var(&c.UTCOffset, "utc-offset", 0, "UTC offset of the town's rush hours, in hours")
	f.StringSliceVar(&c.Types, "types", c.Types, "measure types, assigned to the detectors in turn")
	f.BoolVar(&c.AllTypes, "all-types", false, "let every detector measure every type")
	f.Float64Var(&c.GapRate, "gap-rate", c.GapRate, "share of missing measurements, 0 to 0.9")
	f.Float64Var(&c.ErrorRate, "error-rate", 0, "share of invalid measurements, 0 to 1")
	f.StringVar(&registry, "registry-out", "", "write the detectors to this CSV file")
	f.StringVar(&output, "output", stdio, "write the measurements to this file")
	f.BoolVar(&sends, "send", false, "send the measurements instead of writing them, with the flags of trafficctl send")
	return cmd
}

func parseMoment(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("--from %q must be a date such as 2026-11-01 or a time such as 2026-11-01T06:00:00Z", text)
}

func writeMeasurements(ctx context.Context, std streams, network *generate.Network, output string) error {
	items := 0
	err := writeOutput(ctx, output, std.out, func(w io.Writer) error {
		for item, err := range network.Items() {
			if err == nil {
				_, err = w.Write(append(item.JSON, '\n'))
			}
			if err != nil {
				return err
			}
			items++
		}
		return nil
	})
	must.Do(err, "cannot write measurements to "+output)
	fmt.Fprintf(std.err, "trafficctl: wrote %s\n", plural(items, "measurement"))
	return nil
}
