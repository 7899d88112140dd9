// Command traffic writes the measurements and the forecasts of a simulated town, for trials and
// tests. trafficctl sends and publishes them:
//
//	go run ./cmd/dev/traffic measurements --detectors 100 --registry detectors.csv | trafficctl send -
//	go run ./cmd/dev/traffic forecasts --streets 5000 --output town.pb && trafficctl forecast publish town.pb
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/dev/traffic/town"
	"trafficd/cmd/internal/publish"
	"trafficd/pipeline/lib/replace"
	"trafficd/sources/forecasts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := &cobra.Command{Use: "traffic", Short: "Write the traffic of a simulated town", SilenceUsage: true}
	root.AddCommand(newMeasurements(), newForecasts())
	if root.ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func newMeasurements() *cobra.Command {
	c := town.DefaultMeasurementConfig()
	var registry, output string
	cmd := &cobra.Command{
		Use:   "measurements",
		Short: "Write measurements as NDJSON, ordered by time",
		Long: `Write the measurements of a detector in each direction of the town's streets, with rush hours,
moving jams, noise and outages. The same flags produce the same bytes.

--error-rate makes the given share of the items invalid, covering all error codes that the daemon
returns for single items.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			network, err := town.New(c)
			if err == nil && registry != "" {
				err = write(registry, network.WriteRegistry)
			}
			if err != nil {
				return err
			}
			return write(output, func(w io.Writer) error {
				_, err := network.Write(cmd.Context(), w)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Streets, "detectors", c.Streets, "number of detectors")
	townFlags(f, &c.Config, &c.From, &output)
	f.IntVar(&c.Days, "days", c.Days, "number of days")
	f.IntVar(&c.Count, "intervals", 0, "number of intervals, instead of --days")
	f.DurationVar(&c.Interval, "interval", c.Interval, "length of an interval")
	f.StringSliceVar(&c.Types, "types", c.Types, "measure types, assigned to the detectors in turn")
	f.BoolVar(&c.AllTypes, "all-types", false, "let every detector measure every type")
	f.Float64Var(&c.GapRate, "gap-rate", c.GapRate, "share of missing measurements, 0 to 0.9")
	f.Float64Var(&c.ErrorRate, "error-rate", 0, "share of invalid measurements, 0 to 1")
	f.StringVar(&registry, "registry", "", "write the detectors and their streets to this CSV file")
	return cmd
}

func newForecasts() *cobra.Command {
	c := town.DefaultForecastConfig()
	c.From = time.Now().UTC().Truncate(c.Step)
	var output, format string
	cmd := &cobra.Command{
		Use:   "forecasts",
		Short: "Write forecasts of the streets' speeds",
		Long: `Write forecasts of the speed in each direction of the town's streets. They agree with measurements
of the same --seed and --utc-offset.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := town.Forecasts(c)
			if err != nil {
				return err
			}
			return write(output, func(w io.Writer) error {
				_, err := publish.Write(w, format, all)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Streets, "streets", c.Streets, "number of streets, counting each direction")
	townFlags(f, &c.Config, &c.From, &output)
	f.IntVar(&c.Periods, "periods", c.Periods, "number of periods per street")
	f.DurationVar(&c.Step, "step", c.Step, "length of a period")
	f.BoolVar(&c.Details, "details", false, "add the optional members: lengths, speeds of free traffic, and bounds")
	f.StringVar(&format, "format", forecasts.FormatProtobuf, "protobuf, json or ndjson")
	return cmd
}

// townFlags adds the flags that both commands have.
func townFlags(f *pflag.FlagSet, c *town.Config, from *time.Time, output *string) {
	f.TimeVar(from, "from", *from, []string{time.RFC3339, time.DateOnly}, "start, in UTC")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the random numbers")
	f.Float64Var(&c.UTCOffset, "utc-offset", 0, "UTC offset of the town's rush hours, in hours")
	f.StringVar(output, "output", "-", "write to this file instead of standard output")
}

// write calls do with standard output if path is "-", or else with a file that it replaces
// atomically.
func write(path string, do func(io.Writer) error) error {
	if path == "-" {
		return do(os.Stdout)
	}
	if err := replace.File(path, 0o666, do); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
