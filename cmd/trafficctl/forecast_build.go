package main

import (
	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/sources/forecasts"
)

func newForecastBuild(std streams) *cobra.Command {
	var input, output, format string
	cmd := &cobra.Command{
		Use:   "build FILE|-",
		Short: "Check forecasts and write them as one StreetForecastResponse",
		Long: `Reads forecasts as the daemon does and writes them as it takes them: times in UTC
and whole seconds, periods sorted, each street once with its last forecast. What
cannot be taken is left out and named; then the exit code is 2.`,
		Example: `  trafficctl forecast build town.ndjson --output town.pb
  trafficctl forecast build town.pb --format json | jq '.streetForecast | length'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := readForecasts(cmd.Context(), std, args[0], input)
			if err != nil {
				return err
			}
			if format == "" && output == forecast.Stdin {
				format = forecasts.FormatProtobuf
			}
			if err := writeForecasts(cmd.Context(), std, output, format, forecast.All(content.Forecasts)); err != nil {
				return err
			}
			return verdict(content)
		},
	}
	f := cmd.Flags()
	f.StringVar(&input, "input-format", "", "protobuf, json or ndjson; by default after the file's name")
	f.StringVar(&output, "output", "-", "write to this file")
	f.StringVar(&format, "format", "", "protobuf, json or ndjson; by default after the name of --output, else protobuf")
	return cmd
}
