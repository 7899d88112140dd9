// Command chaos attacks the promise "nothing lost, nothing twice" until it
// holds. It runs the daemon between real stores, has clients send measurements
// that are all different, and meanwhile kills, stops, cuts off and fills up
// whatever there is, sets the clock and has the disk fail. Then it lets everything come to rest and
// compares what was answered 207 with what ClickHouse and Kafka hold.
//
//	clients ──wire──▶ trafficd ──wire──▶ ClickHouse     each wire is a toxiproxy
//	                  journal   ──wire──▶ broker(s)      the journal is on a small disk
//
// A reader begins with run.go and faults.go. The folders below are the clients
// (load), what they know (ledger), the plan of harm (nemesis), the parts that
// are harmed (rig), the daemon's clock and disk (spoilt) and the comparison
// (judge).
//
// # What it cannot show
//
// A crash of the machine: kill -9 leaves the kernel's memory as it is, so a
// missing fsync is found by the journal's own tests on a file system that
// crashes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/chaos/internal/nemesis"
	"trafficd/cmd/devstores/stores"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, errFound):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// errFound ends a program whose last line has said it.
var errFound = errors.New("something was lost, doubled, reordered, altered or answered wrongly")

func command() *cobra.Command {
	cfg := config{Broker: stores.Kfake, Brokers: 1, Duration: time.Minute, Clients: 4}
	runs := 1
	var given map[string]string
	c := &cobra.Command{
		Use:           "chaos",
		Short:         "Attack trafficd and its stores and count what is lost or doubled",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Example: `  chaos --seed 7 --duration 60s
  chaos --broker apache --brokers 3 --runs 2
  chaos --kills trafficd=10,clickhouse=0 --verbose`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Weights, err = parseWeights(given); err != nil {
				return err
			}
			if cfg.Seed == 0 {
				cfg.Seed = uint64(time.Now().UnixNano() % 1_000_000)
			}
			return runAll(cmd.Context(), cfg, runs, cmd.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&cfg.Broker, "broker", cfg.Broker, "kfake, apache or both; kfake forgets its producers when it is killed, so it is stopped cleanly")
	flags.IntVar(&cfg.Brokers, "brokers", cfg.Brokers, "how many; from 2 on, Apache Kafka has min.insync.replicas=2 and its brokers are killed one by one too")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long the harm lasts in each run")
	flags.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "of the first run, the others count on; 0 draws one")
	flags.IntVar(&runs, "runs", runs, "how many runs on each broker")
	flags.StringToStringVar(&given, "kills", nil, "how often a target is hit: trafficd, clickhouse, kafka, network, disk, clock; 1 is every four seconds, 0 never (default trafficd=6, clock=1, others 1.5)")
	flags.IntVar(&cfg.Clients, "clients", cfg.Clients, "that send at the same time")
	flags.StringVar(&cfg.Dir, "dir", "", "folder of a single run's data and logs, kept; default is a new one, kept if something was found")
	flags.BoolVarP(&cfg.Verbose, "verbose", "v", false, "say each fault")
	return c
}

// runAll ends with one line of sums.
func runAll(ctx context.Context, cfg config, runs int, out io.Writer) error {
	brokers := []string{cfg.Broker}
	if cfg.Broker == "both" {
		brokers = []string{stores.Kfake, stores.Apache}
	}
	first, total := cfg.Seed, sums{counts: nemesis.Counts{}}
	for _, cfg.Broker = range brokers {
		for n := range runs {
			cfg.Seed = first + uint64(n)
			fmt.Fprintf(out, "\n== broker %s × %d, seed %d, %v%s\n", cfg.Broker, cfg.Brokers, cfg.Seed, cfg.Duration, note(cfg.Broker))
			found, err := run(ctx, cfg, out)
			if err != nil {
				return err
			}
			total.add(found)
		}
	}
	fmt.Fprintln(out, total.lines(first))
	if !total.clean() {
		return errFound
	}
	return nil
}

func note(broker string) string {
	if broker == stores.Kfake {
		return " (kfake is stopped cleanly, not killed: it saves what it knows of producers only then)"
	}
	return ""
}
