package main

import (
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/forecast"
)

func newForecastGenerate(std streams) *cobra.Command {
	cfg := forecast.DefaultConfig()
	var from, codes, output, format string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Make synthetic forecasts",
		Long: `Makes forecasts of speeds with rush hours and noise that lasts, for a network of its
own, or for the location references of --codes FILE: OpenLR in base64, one a line,
also .gz and .xz. Street and fromnode count up; two neighbours are the directions
of one street.

Without --from the forecasts begin with the period that is under way. With it, the
same flags give the same bytes.`,
		Example: `  trafficctl forecast generate --streets 5000 --periods 24 --step 15m --output town.pb
  trafficctl forecast generate --codes lines.txt.xz --seed 7 | trafficctl forecast publish -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.From, err = parseStart(from, cfg.Step); err != nil {
				return err
			}
			var lines []string
			if codes != "" {
				if lines, err = forecast.ReadCodes(codes, std.in); err != nil {
					return err
				}
			}
			all, err := forecast.Generate(cfg, lines)
			if err != nil {
				return err
			}
			return writeForecasts(cmd.Context(), std, output, format, all)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Streets, "streets", cfg.Streets, "number of streets of the network; with --codes there are as many as codes")
	f.StringVar(&codes, "codes", "", "file of location references, or - for standard input")
	f.StringVar(&from, "from", "", "start of the first period, as 2026-11-01T06:00:00Z or a day (UTC)")
	f.IntVar(&cfg.Periods, "periods", cfg.Periods, "number of periods for each street")
	f.DurationVar(&cfg.Step, "step", cfg.Step, "length of a period")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "another seed makes other forecasts")
	f.StringVar(&output, "output", "-", "write to this file")
	f.StringVar(&format, "format", "", "protobuf, json or ndjson; by default after the name of --output, else ndjson")
	return cmd
}
