// Command forecaster forecasts the speeds of streets from the measurements in the archive, and
// publishes them to the topic or the file that the daemon reads.
//
//	main.go      the command line, the connection to the archive
//	config/      settings
//	run.go       an interval: learn, read, forecast, publish
//	explain.go   how a forecast was computed
//	evaluate.go  backtests
//	internal/    model, archive (learning in ClickHouse), streets, evaluate
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/spf13/cobra"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C exits immediately
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "forecaster:", err)
		os.Exit(1)
	}
}

type flags struct {
	file  string
	set   []string
	check conf.CheckMode
	print bool
}

func command() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:   "forecaster",
		Short: "Forecast the speeds of streets from archived measurements",
		Long: `forecaster learns a weekly profile and a regression of recent residuals per detector in
ClickHouse. In every interval, it publishes a forecast of each street, which trafficd serves.

Settings come from the defaults, a YAML file, the environment (FORECASTER_SECTION__KEY) and
--set; later ones win. Any number of instances may run; they publish the same bytes.`,
		Example: `  forecaster --config forecaster.yaml
  forecaster explain --street 4711 --horizon 30
  forecaster evaluate --from 2026-09-01 --to 2026-10-01`,
		Version:       version.Text(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	p := root.PersistentFlags()
	p.StringVar(&f.file, "config", "", "YAML file with settings")
	p.StringArrayVar(&f.set, "set", nil, "section.key=value; may be repeated")
	f.check.AddTo(root)
	root.Flags().BoolVar(&f.print, "print-config", false, "print the effective settings as YAML, without secrets, and exit")
	root.AddCommand(explainCommand(f), evaluateCommand(f))
	return root
}

func (f *flags) load() (*config.Config, conf.Origins, error) {
	return config.Load(conf.Options{Prefix: "FORECASTER_", File: f.file, Environ: os.Environ(), Set: f.set})
}

func (f *flags) serve(cmd *cobra.Command) error {
	c, origins, err := f.load()
	if f.print { // even if settings without a default are missing
		if err = errors.Join(err, conf.Print(cmd.OutOrStdout(), c, origins)); err != nil {
			return conf.Invalid(err)
		}
		return nil
	}
	err = errors.Join(err, c.ValidateOutput(origins))
	if f.check != "" && err == nil {
		err = conf.BecomeServiceUser(cmd.OutOrStdout(), f.file)
	}
	if f.check != "" && err == nil {
		err = check(cmd.Context(), cmd.OutOrStdout(), c, origins, f.check == "deep")
	}
	switch {
	case err != nil:
		return conf.Invalid(err)
	case f.check != "":
		fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
		return nil
	}
	return run(cmd.Context(), c, c.Log.Logger(os.Stderr))
}

// connect returns a connection to the archive that is dialled on first use.
func connect(c *config.Config) (driver.Conn, error) {
	t := c.ClickHouse
	t.ClickHouse.Database = "" // it might not exist yet; statements use qualified names
	return t.Open(&clickhouse.Options{
		Addr: []string{t.Address}, DialTimeout: 10 * time.Second, ReadTimeout: t.Timeout, MaxOpenConns: 3,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	})
}

// newSource returns the product instance's archive. learned is the database of the learned tables.
func newSource(c *config.Config, conn driver.Conn, learned string) *archive.Source {
	m := c.Model
	zone, err := time.LoadLocation(m.TimeZone)
	if err != nil {
		zone = time.UTC // unreachable: the setting is validated
	}
	return &archive.Source{
		Conn: conn, Database: c.ClickHouse.Database, Table: c.ClickHouse.Table, Learned: learned, Instance: m.ProductInstance,
		Measure: m.Measure, Count: m.Count, Most: m.Most, Zero: m.Zero,
		Interval: m.Interval, Horizons: m.Horizons, Location: zone, Holidays: m.HolidayDates(),
	}
}
