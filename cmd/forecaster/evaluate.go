package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/forecaster/config"
	"trafficd/cmd/forecaster/internal/evaluate"
	"trafficd/cmd/forecaster/internal/model"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/streets"
	schema "trafficd/schemas/clickhouse"
)

func evaluateCommand(settings load) *cobra.Command {
	var from, to, scratch, format, input string
	var asJSON bool
	var hidden int
	cmd := &cobra.Command{
		Use:   "evaluate",
		Short: "Backtest the model on the archive",
		Long: `Learn the archive in a temporary database, from 120 days before --from on. Forecast every
interval from --from to --to with the measurements before its origin, as if all of them had
arrived by then, and compare the model with persistence (the last usable reading), with its
weekly profile alone, and with that profile plus the last residual. Only readings of 5
vehicles or more are compared. Readings of sick detectors are neither used nor compared. The
database is dropped at the end.

Bounds are compared as they are published, in km/h and rounded, for a street of one detector.
Readings are also grouped: by the hours of the local day, by the basis of the forecast, by tenths
of the detectors from the fewest vehicles to the most, and by the state of traffic before the
origin, which is the first of these:
  gap         no usable reading in the last 3 intervals of model.interval
  building    the mean speed of these is below that of the 9 intervals before by more than 10% of
              the speed of free flow, which is the 85th percentile of the detector's profile, in km/h
  recovering  it is above that of the 9 intervals before by more than 10% of the speed of free flow
  jammed      it is below 60% of the speed of free flow
  free        none of these
The noise floor is the mean absolute error of a perfect forecast: a reading is the mean of a few
vehicles. It is computed from the numbers of vehicles and the differences of successive readings.

With --hide, impute the last value of that percentage of the detectors, others in each hour,
from their profile and their neighbours, and compare it with the hidden reading.`,
		Example: `  forecaster evaluate --from 2026-09-01 --to 2026-10-01
  forecaster evaluate --from 2026-09-01 --to 2026-10-01 --json | jq '.[].mae[0]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, _, err := settings()
			if err != nil {
				return conf.Invalid(err)
			}
			if (format == formatMETRLA) != (input != "") || format != "" && format != formatMETRLA {
				return fmt.Errorf("--format is %q, must be %s if --input is set, or else empty", format, formatMETRLA)
			}
			var table *detectorTable
			if input != "" {
				if table, err = readMETRLA(input); err != nil {
					return err
				}
				c.Model.ProductInstance, c.Model.Count, c.Model.TimeZone = formatMETRLA, "", "UTC" // its times are local
				from, to = table.split().Format(time.RFC3339), table.end().Format(time.RFC3339)
			}
			first, err := parseTime(c, from)
			if err != nil {
				return fmt.Errorf("--from: %w", err)
			}
			last, err := parseTime(c, to)
			if err != nil {
				return fmt.Errorf("--to: %w", err)
			}
			if !last.After(first) {
				return fmt.Errorf("--to %s must be after --from %s", to, from)
			}
			if hidden < 0 || hidden > 50 {
				return fmt.Errorf("--hide is %d, must be from 0 to 50", hidden)
			}
			e := evaluate.Evaluation{From: first, To: last, Horizons: evaluatedHorizons, Hidden: hidden}
			results, err := backtest(cmd.Context(), c, table, scratch, &e, func(day time.Time) {
				fmt.Fprintf(os.Stderr, "forecaster: learned %s\n", day.Format(time.DateOnly))
			})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(results)
			}
			if err := printResults(cmd.OutOrStdout(), results); err != nil || hidden == 0 {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Imputed: %d hidden readings, MAE %.3f%s, %.3f times that of the forecasts for 15 minutes.\n",
				e.Imputed.Readings, e.Imputed.MAE, evaluate.InUnit(results), e.Imputed.MAE/results[0].MAE[0])
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "first time to forecast, such as 2026-09-01 (local) or 2026-09-01T06:00:00Z")
	cmd.Flags().StringVar(&to, "to", "", "end of the time to forecast, in the same format")
	cmd.Flags().StringVar(&format, "format", "", "metr-la: evaluate the file --input instead of the archive; its last 20% are forecast")
	cmd.Flags().StringVar(&input, "input", "", "CSV file with a column of local times and a column of speeds for each sensor,\n"+
		"where 0 and empty mean missing, as pandas writes the published HDF5 file with to_csv")
	cmd.Flags().StringVar(&scratch, "scratch", "forecaster_evaluation",
		"database for the learned tables; dropped before and after")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&hidden, "hide", 0, "percentage of the detectors whose last value is hidden and imputed; not in JSON")
	return cmd
}

func parseTime(c *config.Config, text string) (time.Time, error) {
	zone, err := time.LoadLocation(c.Model.TimeZone)
	if err != nil {
		return time.Time{}, err
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return model.StartOfDay(day.Year(), day.Month(), day.Day(), zone), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is not a time such as 2026-09-01 or 2026-09-01T06:00:00Z", text)
	}
	return t, nil
}

var evaluatedHorizons = []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour}

// backtest evaluates the model on the archive or, if table is not nil, on its values. It keeps the
// learned tables in the database scratch, which it drops at the end.
func backtest(
	ctx context.Context, c *config.Config, table *detectorTable, scratch string, e *evaluate.Evaluation, progress func(time.Time),
) (
	results []evaluate.Result, err error,
) {
	if scratch == c.ClickHouse.Database {
		return nil, fmt.Errorf("--scratch %s is the database of the archive, which would be dropped", scratch)
	}
	conn, err := connect(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	drop := fmt.Sprintf("DROP DATABASE IF EXISTS `%s` SYNC", scratch)
	if err := conn.Exec(ctx, drop); err != nil {
		return nil, fmt.Errorf("cannot drop the database %s: %w", scratch, err)
	}
	defer func() { _ = conn.Exec(context.WithoutCancel(ctx), drop) }()
	if _, err := schema.Migrate(ctx, conn, schema.Layout{Database: scratch, Table: c.ClickHouse.Table}); err != nil {
		return nil, err
	}
	source := newSource(c, conn, scratch)
	if table != nil {
		source.Database, source.Table, source.Refused = scratch, "metr_la", nil
		if err := table.insert(ctx, conn, "`"+scratch+"`.metr_la", c.Model); err != nil {
			return nil, fmt.Errorf("cannot insert the file's values: %w", err)
		}
	}
	e.Source, e.Bounds = source, servedBounds(c.Forecasts)
	if results, err = e.Run(ctx, progress); err != nil {
		return nil, err
	}
	if table == nil {
		unit, err := source.Unit(ctx)
		if err != nil {
			return nil, err
		}
		for i := range results {
			results[i].Unit = unit
		}
	}
	return results, nil
}

// servedBounds returns the bounds in the record of a street of one detector.
func servedBounds(c config.Forecasts) func(*model.Learned, model.Forecast) (low, high float64) {
	street := streets.Street{Detectors: make([]string, 1), Lengths: []float64{1}}
	return func(l *model.Learned, f model.Forecast) (low, high float64) {
		p := combine(c, &model.Step{Learned: l}, &street, [][]model.Forecast{{f}}, 0)
		if p == nil || p.SpeedLow == nil || p.SpeedHigh == nil {
			return math.NaN(), math.NaN()
		}
		return *p.SpeedLow, *p.SpeedHigh
	}
}

func printResults(w io.Writer, results []evaluate.Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	unit := evaluate.InUnit(results)
	fmt.Fprintf(table, "minutes\treadings\tcoverage\tmethod\tMAE%s\tworst tenth\tRMSE%s\tMAPE\t\n", unit, unit)
	for _, r := range results {
		for m, name := range evaluate.Methods {
			fmt.Fprintf(table, "%d\t%d\t%.1f%%\t%s\t%.3f\t%.3f\t%.3f\t%.1f%%\t\n",
				r.Minutes, r.Readings, r.Coverage, name, r.MAE[m], r.Worst[m], r.RMSE[m], r.MAPE[m])
		}
	}
	fmt.Fprintf(table, "\n\tminutes\treadings\tcoverage\tMAE%s: model\tpersistence\tprofile\tmodel / better\t\n", unit)
	for _, r := range results {
		for _, g := range r.Groups {
			coverage := "-"
			if g.Coverage != nil {
				coverage = fmt.Sprintf("%.1f%%", *g.Coverage)
			}
			fmt.Fprintf(table, "%s %s\t%d\t%d\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t\n",
				g.By, g.Name, r.Minutes, g.Readings, coverage, g.MAE[0], g.MAE[1], g.MAE[2], g.Ratio())
		}
	}
	fmt.Fprintln(table)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.Floor != nil {
			fmt.Fprintf(w, "At %d minutes, the noise floor is %.3f%s: the model closes %.1f%% of the gap between the profile and it.\n",
				r.Minutes, *r.Floor, unit, *r.Closed)
		}
	}
	_, err := fmt.Fprint(w, `Coverage is the share of readings within the bounds of the forecast, and should be 80%. MAE is the
mean absolute error, MAPE the mean of the errors relative to the reading; lower is better. Worst
tenth is the MAE of the tenth of the detectors for which that of the model is highest.
Persistence repeats the last usable reading.
`)
	return err
}
