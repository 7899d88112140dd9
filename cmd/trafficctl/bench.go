package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"trafficd/cmd/trafficctl/internal/bench"
)

func newBench(std streams) *cobra.Command {
	o := bench.Options{Lines: std.out, Notes: std.err}
	bodies := []string{}
	cmd := &cobra.Command{
		Use:   "bench [layer]",
		Short: "Measure what a batch costs the daemon, against gunzip alone, and the forecast layer",
		Long: `bench starts a trafficd of its own in a temporary folder, without stores, and prints one line for each figure:

  bench: <name> <value> <unit>

gunzip_ms               CPU time to decompress the body
gunzip_scan_ms          the same, and a JSON scanner going over it
ingest_cpu_ms           CPU time of the daemon for the whole way: HTTP, key, gunzip, decode, validate, journal, 207
ingest_cpu_over_…       the daemon's time over these, round by round: compare ratios, times vary between runs
http_items_per_s_N      items per second over N connections
rss_64_batches_mb       the daemon's largest resident size while 64 clients send
geo_points_per_s_…      coordinates converted from degrees into a format, and back
geo_…_points_per_s      coordinates written in an encoding and read again
soap_over_conversion    the daemon's CPU time for a convertGeometry of 1,000 points as WKT, over that of reading, converting and writing alone

bench layer prints these, and bench alone has them at its end, of a layer of 100,000 streets and 5 periods:

layer_full_ms                    CPU time to build it whole, in all forms that are served
layer_update_1pct_ms             the same after other forecasts for 1,000 streets of a district
layer_update_1pct_scattered_ms   the same for every hundredth street
layer_…_over_full                these over the whole build
layer_gzip_over_whole, …         size of a compressed body over that of the layer compressed in one go, at the default level
layer_rss_over_bodies            the daemon's largest resident size, while everything changes and clients read, over all bodies
layer_1k_over_nginx, …           requests per second of a daemon on one processor over those of nginx, as Debian packages
                                 it, sending the same bytes from a file, turn by turn; needs nginx and wrk
layer_1k_over_nginx_tuned, …     the same with an nginx that keeps the file open (open_file_cache)

The body is a synthetic batch of 14,000 items. --body adds files of NDJSON measurements, one batch each.`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"layer"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return bench.RunLayer(cmd.Context(), o)
			}
			for _, path := range bodies {
				b, err := bench.ReadBody(path)
				if err != nil {
					return err
				}
				o.Named = append(o.Named, b)
			}
			if err := bench.Run(cmd.Context(), o); err != nil {
				return err
			}
			return bench.RunLayer(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Daemon, "daemon", beside("trafficd"), "the program trafficd")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 7, "rounds; each figure is the median")
	cmd.Flags().IntVar(&o.Bodies, "batches", 50, "batches in a round")
	cmd.Flags().StringArrayVar(&bodies, "body", nil, "NDJSON file whose measurements are one more batch; its name prefixes the figures")
	return cmd
}

// beside is a program in the folder of this one.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
