// Command forecaster forecasts the speeds of streets from the measurements in the archive, and
// publishes them to the topic or the file that the daemon reads.
//
//	main.go      the command line, the connection to the archive
//	config/      settings
//	run.go       an interval: learn, read, forecast, publish
//	health.go    tests of the detectors
//	explain.go   how a forecast was computed
//	evaluate.go  backtests
//	internal/    model, archive (learning in ClickHouse), health, streets, evaluate
package main

import (
	"context"
	"os"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/spf13/cobra"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/archive"
	"trafficd/cmd/forecaster/internal/health"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/program"
)

func main() { program.Main(command()) }

func command() *cobra.Command {
	p := &program.Program[config.Config]{
		Name:  "forecaster",
		Short: "Forecast the speeds of streets from archived measurements",
		Long: `forecaster learns a weekly profile and a regression of recent residuals per detector in
ClickHouse. In every interval, it publishes a forecast of each street, which trafficd serves.

Settings come from the defaults, a YAML file, the environment (FORECASTER_SECTION__KEY) and
--set; later ones win. Any number of instances may run; they publish the same bytes.`,
		Example: `  forecaster --config forecaster.yaml
  forecaster explain --street 4711 --horizon 30
  forecaster evaluate --from 2026-09-01 --to 2026-10-01`,
		Load:     config.Load,
		Complete: (*config.Config).ValidateOutput,
		Check:    check,
		Run: func(ctx context.Context, c *config.Config) error {
			return run(ctx, c, c.Log.Logger(os.Stderr))
		},
	}
	root := p.Command()
	root.AddCommand(explainCommand(p.Settings), evaluateCommand(p.Settings))
	return root
}

// load returns the settings of a subcommand.
type load = func() (*config.Config, conf.Origins, error)

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
		Interval: m.Interval, Horizons: m.Horizons, Location: zone, Holidays: m.HolidayDates(), Refused: health.Refused(),
	}
}
