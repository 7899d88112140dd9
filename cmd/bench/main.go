// Command bench measures what a batch costs the daemon from the socket to the journal, the forecast layer and the routing
// service, each compared with its parts on the same machine: times vary between machines, ratios much less.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// options say what is measured.
type options struct {
	daemon     string // the program trafficd
	trafficctl string // the program that generates forecasts
	rounds     int    // each figure is the median over the rounds
	batches    int    // per round
	attack     string // the only one of hostile; empty: all
	lines      io.Writer
	notes      io.Writer
	bodies     []body // in addition to the synthetic one
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{lines: os.Stdout, notes: os.Stderr}
	var files []string
	cmd := &cobra.Command{
		Use:   "bench [layer | hostile]",
		Short: "Measure what a batch costs the daemon, and the forecast layer",
		Long: `bench starts trafficd in a temporary directory, without stores, and prints one line per figure:

  bench: <name> <value> <unit>

gunzip_ms               CPU time to decompress the body
gunzip_scan_ms          the same with a JSON scanner skipping over it
ingest_cpu_ms           CPU time of the daemon for HTTP, key, gunzip, decode, validate, journal and 207
ingest_cpu_over_…       the daemon's time divided by these, round by round: compare ratios, times vary between runs
http_items_per_s_N      items per second over N connections
rss_64_batches_mb       the daemon's peak resident size while 64 clients send
geo_points_per_s_…      coordinates converted from degrees into a format, and back
geo_…_points_per_s      coordinates written in an encoding and read
soap_over_conversion    the daemon's CPU time for a convertGeometry of 1,000 points as WKT, divided by that
                        of reading, converting and writing

bench layer prints only these, for a layer of 100,000 streets and 12 periods:

layer_full_ms                    CPU time of a full build, in all forms that clients ask for
layer_full_over_floor            this divided by the CPU time to marshal the same documents and to compress each with gzip -6 and zstd
layer_update_1pct_ms             CPU time of an update of 1,000 neighbouring streets
layer_update_1pct_scattered_ms   the same for every hundredth street
layer_…_over_full                these divided by the full build
layer_gzip_over_gzip6, …         size of a compressed body divided by that of the layer compressed by gzip -6
layer_since_1pct_kb              size of the answer to a client that has the layer of before an update of 1 %
layer_minute_turn_over_full      CPU time of a minute that changes nothing, divided by the full build
layer_quarter_turn_over_full     the same for a minute in which a period ends
layer_rss_steady_mb, …_peak_mb   the daemon's resident size between changes, and while everything changes and clients read
layer_1k_over_nginx, …           requests per second of a daemon on one processor divided by those of nginx as packaged
                                 by Debian, sending the same bytes from a file; needs nginx and wrk
layer_1k_over_nginx_tuned, …     the same with an nginx that keeps the file open (open_file_cache)
layer_mixed_reads                reads, of 20,000, that see streets of two publications, while trafficctl publishes to one partition and to six

bench hostile lets one client attack the daemon, in at most five minutes, beside two well-behaved integrators, one
with a kept connection and one with a new connection for each request. It prints a line per attack, and fails if
fewer than 99 % of the integrators' requests succeed, or their 99th percentile exceeds both three times that before
the attack and 50 ms:

  hostile: <attack> success <percent> p99 <before ms> <during ms> rss <peak MB> status <what the attacker got>

months        batches whose items cycle through 680 months
heads         headers that announce bodies which never come
idempotency   many Idempotency-Keys with long answers
silent        4,400 connections without a byte
readers       large answers that are hardly read
items         bodies with more items than one may have
bombs         small bodies that decompress to large ones

The body is a synthetic batch of 14,000 items. --body adds NDJSON files of measurements, one batch each.`,
		Args:          cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs:     []string{"layer", "hostile"},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if runtime.GOOS != "linux" {
				return errors.New("the figures are read from /proc: bench runs only on Linux")
			}
			if len(args) > 0 && args[0] == "hostile" {
				return o.hostile(cmd.Context())
			}
			if len(args) > 0 {
				return o.run(cmd.Context(), o.layerUpdates, o.layerTurns, o.layerMemory, o.layerServing, o.layerMixed)
			}
			for _, path := range files {
				b, err := readBody(path)
				if err != nil {
					return err
				}
				o.bodies = append(o.bodies, b)
			}
			return o.run(cmd.Context(), o.batchCosts, o.decompressionBombs, o.geometries,
				o.layerUpdates, o.layerTurns, o.layerMemory, o.layerServing, o.layerMixed)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.daemon, "daemon", beside("trafficd"), "the program trafficd")
	f.StringVar(&o.trafficctl, "trafficctl", beside("trafficctl"), "the program trafficctl, which generates forecasts")
	f.IntVar(&o.rounds, "rounds", 7, "number of rounds; each figure is the median")
	f.IntVar(&o.batches, "batches", 50, "number of batches in a round")
	f.StringVar(&o.attack, "attack", "", "run only this attack of hostile")
	f.StringArrayVar(&files, "body", nil, "NDJSON file of measurements to send as one batch; its name prefixes the figures")
	return cmd
}

// beside returns a program in this program's directory.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

func (o options) run(ctx context.Context, parts ...func(context.Context) error) error {
	for _, measure := range parts {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// batchCosts measures the ingest of each body, and the throughput and memory of the synthetic one.
func (o options) batchCosts(ctx context.Context) error {
	first := synthetic()
	for _, b := range append([]body{first}, o.bodies...) {
		if err := o.ingest(ctx, b); err != nil {
			return err
		}
	}
	if err := o.throughput(ctx, first); err != nil {
		return err
	}
	return o.memory(ctx, first)
}
