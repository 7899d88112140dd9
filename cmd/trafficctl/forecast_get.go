package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/forecast"
)

func newForecastGet(std streams) *cobra.Command {
	s := newSending()
	r := forecast.Request{Horizon: -1}
	format := forecast.Formats[0]
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Get the forecast layer from a daemon",
		Long: `Gets the layer and decodes it. The key needs the right forecast.

Formats: table and csv have a row for each period; json is the message in protobuf's
JSON mapping; geojson has a line for each street, drawn straight between the points
of its OpenLR code, and null with a note where the code cannot be decoded; protobuf
is the message itself.

The layer's ETag is told on standard error. With --etag the daemon answers that
nothing has changed, if so; then nothing is printed and the exit code is 0.`,
		Example: `  trafficctl forecast get --key-file map.key --horizon 30 --format geojson > map.geojson
  trafficctl forecast get --key-file map.key --etag '"5f1c"' --format csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(forecast.Formats, format) {
				return fmt.Errorf("--format %q: write one of %v", format, forecast.Formats)
			}
			if r.Horizon < -1 {
				return fmt.Errorf("--horizon %d: write minutes from now, or -1 for all periods", r.Horizon)
			}
			cfg, err := s.config(cmd.Flags())
			if err != nil {
				return err
			}
			r.URL, r.Key, r.Timeout = cfg.URL, cfg.Key, cfg.Timeout
			return getForecasts(cmd.Context(), std, r, format, s.quiet)
		},
	}
	registerGet(cmd.Flags(), s, &r, &format)
	return cmd
}

func registerGet(f *pflag.FlagSet, s *sending, r *forecast.Request, format *string) {
	f.StringVar(&s.cfg.URL, "url", s.cfg.URL, "base URL of the daemon (or environment "+envURL+")")
	f.StringVar(&s.cfg.Key, "key", "", "API key with the right forecast; other users of this machine can see it: better --key-file or "+envKey)
	f.StringVar(&s.keyFile, "key-file", "", "file whose first line is the API key")
	f.DurationVar(&s.cfg.Timeout, "timeout", s.cfg.Timeout, "for the whole answer")
	f.BoolVar(&s.quiet, "quiet", false, "nothing on standard error but failures")
	f.IntVar(&r.Horizon, "horizon", r.Horizon, "only the period that covers so many minutes from now; -1: all periods")
	f.StringVar(&r.ETag, "etag", "", "ETag of the layer that is there already")
	f.StringVar(&r.Encoding, "encoding", "", "zstd, gzip or identity; by default what the daemon prefers")
	f.StringVar(format, "format", *format, strings.Join(forecast.Formats, ", "))
}

func getForecasts(ctx context.Context, std streams, r forecast.Request, format string, quiet bool) error {
	answer, err := forecast.Get(ctx, r)
	if err != nil {
		return err
	}
	if !quiet {
		fmt.Fprintln(std.err, "trafficctl:", describe(answer))
	}
	if answer.NotModified {
		return nil
	}
	return forecast.Show(std.out, format, answer.Layer)
}

func describe(a *forecast.Answer) string {
	text := "not modified"
	if !a.NotModified {
		text = fmt.Sprintf("%s streets, %s bytes", grouped(int64(len(a.Layer.StreetForecast))), grouped(int64(a.Size)))
		if a.Encoding != "" {
			text += fmt.Sprintf(" (%s as %s)", grouped(a.Received), a.Encoding)
		}
	}
	for _, part := range [][2]string{{"ETag", a.ETag}, {"last modified", a.Modified}, {"age in seconds", a.Age}} {
		if part[1] != "" {
			text += ", " + part[0] + " " + part[1]
		}
	}
	return text
}
