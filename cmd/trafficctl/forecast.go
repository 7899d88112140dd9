package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/forecast"
)

func newForecast(std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forecast",
		Short: "Make, convert, publish and get street forecasts",
		Long: `Works on street forecasts: makes synthetic ones, converts files of them, puts them
into the topic that the daemon reads, and gets the layer that it serves.

Files hold a StreetForecastResponse as protobuf (.pb), in protobuf's JSON mapping
(.json), or one StreetForecast a line (.ndjson); also .gz. What the daemon would
skip or leave out, build and publish leave out as well, and say so; then the exit
code is 2.`,
		Example: `  trafficctl forecast generate --streets 5000 --output town.ndjson.gz
  trafficctl forecast publish town.ndjson.gz --brokers 127.0.0.1:9092
  trafficctl forecast get --key-file map.key --horizon 30 --format geojson > map.geojson`,
	}
	cmd.AddCommand(newForecastGenerate(std), newForecastBuild(std), newForecastPublish(std), newForecastGet(std))
	return cmd
}

// maxNotes are shown of the faults in a file; the rest is counted.
const maxNotes = 20

// readForecasts reads a file and tells its faults on standard error.
func readForecasts(ctx context.Context, std streams, path, format string) (forecast.Content, error) {
	notes := 0
	content, err := forecast.ReadFile(ctx, path, format, std.in, func(text string) {
		if notes++; notes <= maxNotes {
			fmt.Fprintln(std.err, "trafficctl:", text)
		}
	})
	if notes > maxNotes {
		fmt.Fprintf(std.err, "trafficctl: … and %s more\n", grouped(int64(notes-maxNotes)))
	}
	if err == nil && len(content.Forecasts) == 0 {
		err = fmt.Errorf("cannot use %s: %w", path, forecast.ErrNothing)
	}
	return content, err
}

// verdict is errRejected where a file had a fault.
func verdict(c forecast.Content) error {
	if c.Skipped+c.Remarks > 0 {
		return errRejected
	}
	return nil
}

// parseStart reads the beginning of the forecasts; none means the period that
// is under way.
func parseStart(text string, step time.Duration) (time.Time, error) {
	if text == "" {
		return time.Now().UTC().Truncate(step), nil
	}
	return parseMoment(text)
}
