// Command bench measures the daemon's CPU time and memory for ingestion, from the socket to the
// journal, for the forecast layer and for the routing service. It compares each with a baseline on
// the same machine, because ratios vary much less between machines than times.
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
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/must"
)

// options holds the settings of a benchmark.
type options struct {
	daemon     string // path of trafficd
	trafficctl string // path of trafficctl, which generates forecasts
	rounds     int    // each figure is the median of the rounds
	batches    int    // per round
	before     string // path of another version of trafficd; empty = none
	axe        string // path of axe-core
	telegraf   string // path of Telegraf
	attack     string // the only attack that hostile runs; empty: all
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
		Use:   "bench [ingest | deliver | layer | page | archive | journal | hostile | peers]",
		Short: "Measure the CPU time and memory of the daemon",
		Long: `bench starts trafficd in a temporary directory and prints one line per figure:

  bench: <name> <value> <unit>

gunzip_ms               CPU time to decompress the body with klauspost's gzip
gunzip_scan_ms          CPU time to decompress the body and scan its JSON
ingest_cpu_ms           CPU time of the daemon per batch, from the request to the response
inflate_over_klauspost  CPU time of the daemon's decompression of the body divided by gunzip_ms; text_…: the same for prose
ingest_cpu_over_…       ingest_cpu_ms divided by one of the above, in each round; ratios vary less between runs than times
http_items_per_s_N      items per second over N connections
http_p50_ms             time from when a batch is due to its 207, with batches at 70 % of the rate of 4 connections
http_p99_over_p50       99th percentile of that time divided by its median
rss_idle_mb             the daemon's resident size after startup
registry_1m_…           time until a daemon with a registry of a million detectors is ready, its resident size, and the peak while reading
rss_64_batches_mb       the daemon's peak resident size while 64 clients send
geo_points_per_s_…      points converted from degrees into a format and back
geo_…_points_per_s      points written in an encoding and read
soap_over_conversion    the daemon's CPU time for a convertGeometry request of 1,000 points as WKT, divided by
                        the CPU time to read, convert and write them

bench ingest measures only ingestion: the lines above without geo_ and soap_.

bench deliver measures ingestion with delivery to a ClickHouse and a Kafka-compatible broker that it starts:

delivered_cpu_s_per_million      CPU seconds of the daemon for a million measurements, from the request until both stores have them
delivered_over_bare_and_ingest   the same divided by the CPU time of ingestion alone plus that of bare_clickhouse and bare_kafka
bare_clickhouse_…, bare_kafka_…  CPU time of clickhouse-go and of franz-go, with lz4, for a million finished rows and records
…_bytes_per_row                  size on the network; delivered_clickhouse_…: without compression, as the server is on this machine
delivered_…_rows_per_…           rows per block of ClickHouse and per request to Kafka, under load

bench layer measures only the forecast layer, with 100,000 streets of 12 periods:

layer_full_ms                    CPU time of a full build: the whole layer and five horizons as protobuf in gzip, which browsers request
layer_full_over_floor            layer_full_ms divided by the CPU time to marshal the same documents and to compress each with gzip -6
layer_update_1pct_ms             CPU time of an update of 1,000 neighbouring streets
layer_update_1pct_scattered_ms   the same for every hundredth street
layer_…_over_full                an update time divided by layer_full_ms
layer_gzip_over_gzip6, …         size of a compressed body divided by that of the layer compressed by gzip -6
layer_since_1pct_kb              size of the response to a client that follows the layer, after an update of 1 % of the streets
layer_since_1pct_horizon_kb      the same for a horizon, which the map page follows
layer_minute_turn_over_full      CPU time per minute without changes, divided by that of a full build; clients ask for horizons,
                                 as the map does
layer_quarter_turn_over_full     the same at the end of a period, including the work done in advance
layer_whole_…_turn_over_full     the same if clients also ask for the whole layer, in which every street changes when a period ends
layer_rss_steady_mb, …_peak_mb   the daemon's resident size when idle, and its peak while all streets change and clients read
layer_1k_over_nginx, …           requests per second of a daemon on one CPU, divided by those of nginx with Debian's
                                 configuration, which sends the same bytes from a file; needs nginx and wrk
layer_1k_over_nginx_tuned, …     the same with an nginx that keeps the file open (open_file_cache); …_spread: largest minus smallest
                                 ratio of the rounds
layer_mixed_reads                of 20,000 reads, those that return streets of two publications, while trafficctl publishes to one partition
                                 and to six

bench page measures the web page in Chromium, with software rendering:

page_gzip_kb                     size of all its files, compressed
page_fps_20k                     frames per second while the horizon slider moves, with 20,000 streets
page_step_100k_ms                time from a step of the slider until 100,000 streets are shown in their new colours
page_first_view_100k_ms          time from opening the page until 100,000 streets are on the screen
page_heap_100k_mb                memory of the tab's process with 100,000 streets and five horizons
page_axe_violations              violations that axe-core finds in both views
page_ingest_p99_ms, …_50_pages_ms, …_ratio
                                 99th percentile of the time to a 207 for 14,000 items, and the same while 50 clients request
                                 what open pages with both views request
page_rss_50_pages_mb             growth of the daemon's resident size with these clients

bench archive measures the archive with two generated days of 8 million measurements each, archived through the daemon:

archive_derived_over_delivery    CPU time of ClickHouse for a day with derived tables, divided by that for a day without; includes merges
archive_latest_ms, …_all_ms      time of a query for the latest values of one measure type, of all measure types
archive_slice_ms                 time of a query for one interval of 5 minutes
archive_15m_day_ms               time of a query for all averages of 15 minutes of a day
archive_…_bytes_per_row          size of a table on disk, divided by the number of measurements; archive_bytes_per_row: of all tables

bench journal compares a daemon whose journal is a log in three Apache brokers on this machine with one whose journal is on its disk:

journal_kafka_cpu_over_local     the daemon's CPU time per batch, from the request until it is forwarded to Kafka
journal_before_cpu_over_local    that of the daemon of --before with a journal on its disk, divided by that of --daemon
journal_…_items_per_s            items per second over four connections, until they are forwarded to Kafka; of one partition of the log
journal_…_p50_ms, …_p99_ms       time to a 207 for 14,000 items over one connection

bench hostile attacks the daemon as one client while two well-behaved integrators send batches, one over a persistent
connection and one over a new connection for each request. It takes at most five minutes and prints a line per attack.
It fails if fewer than 99 % of the integrators' requests succeed, or if their 99th percentile latency exceeds both 50 ms
and three times the latency before the attack:

  hostile: <attack> success <percent> p99 <before ms> <during ms> rss <peak MB> status <responses to the attacker>

months        batches whose items cycle through 680 months
heads         request headers without the announced bodies
idempotency   many Idempotency-Keys with large responses
silent        4,400 connections that send nothing
readers       large responses, read very slowly
items         bodies that exceed the hard limit of items
bombs         small bodies that decompress to large ones

bench peers sends the synthetic batch over two connections, in turn, to the daemon, to a net/http handler that decodes
it with encoding/json into maps, and to Telegraf (http_listener_v2, json, file), and prints what each of them leaves out:

peers_items_per_s_…              items per second, until the last response
peers_cpu_ms_…                   CPU time per batch, until all its items are in a file; for the daemon, in the journal
peers_rss_mb_…                   peak resident size
peers_items_per_s_over_telegraf  the daemon's items per second divided by Telegraf's

The batch is synthetic and has 14,000 items. --body adds batches from NDJSON files of measurements, one per file.`,
		Args:          cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs:     []string{"ingest", "deliver", "layer", "page", "archive", "journal", "hostile", "peers"},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if runtime.GOOS != "linux" {
				return errors.New("bench runs only on Linux, because it reads /proc")
			}
			for _, path := range files {
				b, err := readBody(path)
				if err != nil {
					return err
				}
				o.bodies = append(o.bodies, b)
			}
			ingest, layer := []part{o.batchCosts, o.registry}, []part{o.layerUpdates, o.layerTurns, o.layerMemory, o.layerServing, o.layerMixed}
			return run(cmd.Context(), map[string][]part{
				"":        slices.Concat(ingest, []part{o.decompressionBombs, o.geometries}, layer),
				"ingest":  ingest,
				"layer":   layer,
				"deliver": {o.deliver},
				"archive": {o.archive},
				"journal": {o.journalInApache},
				"hostile": {o.hostile},
				"peers":   {o.peers},
				"page":    {o.pageSize, o.pageView, o.pageAccess, o.pageLoad},
			}[strings.Join(args, "")])
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "plain ADDRESS REGISTRY OUTPUT", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error { return plain(args[0], args[1], args[2]) },
	})
	f := cmd.Flags()
	f.StringVar(&o.daemon, "daemon", beside("trafficd"), "path of trafficd")
	f.StringVar(&o.before, "before", "", "path of another version of trafficd, which bench journal compares")
	f.StringVar(&o.trafficctl, "trafficctl", beside("trafficctl"), "path of trafficctl, which generates forecasts")
	f.IntVar(&o.rounds, "rounds", 7, "number of rounds; each figure is their median")
	f.IntVar(&o.batches, "batches", 50, "number of batches per round")
	f.StringVar(&o.axe, "axe", "sources/page/app/node_modules/axe-core/axe.min.js", "path of axe-core for bench page")
	f.StringVar(&o.telegraf, "telegraf", "telegraf", "path of Telegraf for bench peers")
	f.StringVar(&o.attack, "attack", "", "run only this attack of bench hostile (default all)")
	f.StringArrayVar(&files, "body", nil, "NDJSON file of measurements to send as one batch; its name prefixes the figures")
	return cmd
}

// beside returns the path of a program in the directory of this executable.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// part measures figures and prints them.
type part func(context.Context) error

func run(ctx context.Context, parts []part) error {
	for _, measure := range parts {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// batchCosts measures the decompression and ingestion of each body, and the throughput and memory
// of the synthetic one.
func (o options) batchCosts(ctx context.Context) (err error) {
	defer must.Return(&err)
	first := synthetic()
	for _, b := range append([]body{first, prose()}, o.bodies...) {
		must.Do(o.inflate(b))
	}
	for _, b := range append([]body{first}, o.bodies...) {
		must.Do(o.ingest(ctx, b))
	}
	must.Do(o.throughput(ctx, first))
	return o.memory(ctx, first)
}
