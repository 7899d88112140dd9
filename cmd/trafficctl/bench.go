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
		Use:   "bench",
		Short: "Measure what a batch costs the daemon, against gunzip alone",
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

The body is a synthetic batch of 14,000 items. --body adds files of NDJSON measurements, one batch each.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, path := range bodies {
				b, err := bench.ReadBody(path)
				if err != nil {
					return err
				}
				o.Named = append(o.Named, b)
			}
			return bench.Run(cmd.Context(), o)
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
