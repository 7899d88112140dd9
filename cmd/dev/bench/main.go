// Command bench measures the daemon's CPU time and memory: for ingestion, from the socket to the
// journal, and for the forecast layer. It compares them with baselines on the same machine, because
// ratios vary much less between machines than times do.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"trafficd/cmd/dev/must"
)

type options struct {
	daemon   string    // path of trafficd
	rounds   int       // each figure is the median of the rounds
	batches  int       // per round
	before   string    // path of another version of trafficd, for bench journal; empty = none
	telegraf string    // path of Telegraf
	output   string    // directory to which bench profile writes
	attack   string    // the only attack that bench hostile runs; empty = all
	lines    io.Writer // receives the figures
	notes    io.Writer // receives everything else
	bodies   []body    // bodies to send in addition to the synthetic one
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

//go:embed help.txt
var help string // describes all figures

func command() *cobra.Command {
	o := options{lines: os.Stdout, notes: os.Stderr}
	var files []string
	cmd := &cobra.Command{
		Use:           "bench [ingest | deliver | layer | serving | archive | journal | hostile | peers | profile]",
		Short:         "Measure the CPU time and memory of the daemon",
		Long:          strings.TrimSpace(help),
		Args:          cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs:     []string{"ingest", "deliver", "layer", "serving", "archive", "journal", "hostile", "peers", "profile"},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if runtime.GOOS != "linux" {
				return errors.New("bench runs only on Linux, because it reads /proc")
			}
			if min(o.rounds, o.batches) < 1 {
				return errors.New("--rounds and --batches must be at least 1")
			}
			for _, path := range files {
				b, err := readBody(path)
				if err != nil {
					return err
				}
				o.bodies = append(o.bodies, b)
			}
			ingest := []part{o.batchCosts, o.registry}
			layer := []part{o.layerUpdates, o.layerTurns, o.layerMemory}
			serving := []part{o.layerServing}
			return run(cmd.Context(), map[string][]part{
				"":        slices.Concat(ingest, []part{o.decompressionBombs}, layer, serving),
				"ingest":  ingest,
				"layer":   layer,
				"serving": serving,
				"deliver": {o.deliver},
				"archive": {o.archive},
				"journal": {o.journalInApache},
				"hostile": {o.hostile},
				"peers":   {o.peers},
				"profile": {o.profile},
			}[strings.Join(args, "")])
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "plain ADDRESS REGISTRY OUTPUT", Hidden: true, Args: cobra.ExactArgs(3), PreRun: exitOnSignals,
		RunE: func(_ *cobra.Command, args []string) error { return plain(args[0], args[1], args[2]) },
	})
	cmd.AddCommand(&cobra.Command{
		Use: "bare ADDRESS", Hidden: true, Args: cobra.ExactArgs(1), PreRun: exitOnSignals,
		RunE: func(_ *cobra.Command, args []string) error { return bare(args[0]) },
	})
	f := cmd.Flags()
	f.StringVar(&o.daemon, "daemon", beside("trafficd"), "path of trafficd")
	f.StringVar(&o.before, "before", "", "path of another version of trafficd to compare in bench journal")
	f.IntVar(&o.rounds, "rounds", 7, "number of rounds; each figure is their median")
	f.IntVar(&o.batches, "batches", 50, "number of batches per round")
	f.StringVar(&o.telegraf, "telegraf", "telegraf", "path of Telegraf for bench peers")
	f.StringVar(&o.output, "output", ".cache/profiles", "directory to write the CPU profiles of bench profile to")
	f.StringVar(&o.attack, "attack", "", "run only this attack of bench hostile (default all)")
	f.StringArrayVar(&files, "body", nil, "NDJSON file of measurements to send as one batch; its name prefixes the figures")
	return cmd
}

// exitOnSignals makes signals end a peer at once. Otherwise, bench would wait for it before it
// kills it.
func exitOnSignals(*cobra.Command, []string) { signal.Reset() }

// beside returns the path of a program in the directory of this executable.
func beside(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// part measures and prints figures. Like most functions of this program, it reports errors through
// package must.
type part func(context.Context)

func run(ctx context.Context, parts []part) (err error) {
	defer must.Return(&err)
	for _, measure := range parts {
		measure(ctx)
	}
	return nil
}

// series adds a value to the figure with the given name.
type series func(name string, value float64, unit string)

// medians calls measure n times after a warm-up, and prints the median of each figure.
func (o options) medians(n int, measure func(add series)) {
	measure(func(string, float64, string) {})
	var names []string
	values, units := map[string][]float64{}, map[string]string{}
	for range n {
		measure(func(name string, value float64, unit string) {
			if values[name] == nil {
				names = append(names, name)
			}
			values[name], units[name] = append(values[name], value), unit
		})
	}
	for _, name := range names {
		o.line(name, median(values[name]), units[name])
	}
}

// inBackground calls do in n goroutines, numbered from 0. stop cancels their context and waits
// until all calls have returned.
func inBackground(ctx context.Context, n int, do func(ctx context.Context, i int)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { do(ctx, i) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// batchCosts measures the decompression and ingestion of each body, and the throughput and memory
// with the synthetic one.
func (o options) batchCosts(ctx context.Context) {
	first := synthetic()
	for _, b := range append([]body{first, prose()}, o.bodies...) {
		o.inflate(b)
	}
	for _, b := range append([]body{first}, o.bodies...) {
		o.ingest(ctx, b)
	}
	o.throughput(ctx, first)
	o.memory(ctx, first)
}
