// Command chaos tests exactly-once delivery under faults. It runs the daemon between real stores
// while clients send unique measurements, and meanwhile kills and pauses processes, cuts
// connections, fills the disk, changes the clock and makes reads and writes fail. It then waits for
// all deliveries and compares the accepted measurements with the contents of ClickHouse and Kafka.
//
//	clients ──wire──▶ trafficd ──wire──▶ ClickHouse     each wire is a toxiproxy
//	                  journal   ──wire──▶ broker(s)      the journal is on a small disk
//
// With one replica and one ClickHouse server, a forecaster learns from the first client's
// measurements, publishes forecasts over the same wires, and is killed too. Each layer that
// trafficd serves must equal exactly one publication, must not go back to an earlier one, and may
// be out of date only for as long as the outages last. At the end, it must equal the output of a
// newly started forecaster.
//
// With several replicas, each has its own wire, their journal is a log in Kafka, their clocks
// differ, and their volumes may be deleted after kill -9. Clients send each batch through HAProxy
// with the shipped configuration, to a random replica, or to all replicas at the same time. Two
// ClickHouse nodes are replicas of one shard, coordinated by ZooKeeper; their disks may be deleted
// too. With --links, brokers and nodes run in network namespaces, and the links are cut.
//
// Start reading with run.go and faults.go. The packages are load (the clients), ledger (the
// accepted items), nemesis (the schedule of faults), rig (the system under test), faultinject (the
// daemon's clock and disk) and judge (the comparison).
//
// It does not simulate a crash of the machine: after kill -9 the kernel still writes back its
// cache. The journal's own tests detect a missing fsync, on a simulated file system that crashes.
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

	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		if !errors.Is(err, errFound) {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
		os.Exit(1)
	}
}

// errFound makes the program exit with code 1. It is not printed, because the summary already
// reports the failure.
var errFound = errors.New("measurements were lost, duplicated, reordered or altered, or a response or exit was unexpected")

func command() *cobra.Command {
	cfg := config{Config: rig.Config{Broker: launch.Kfake, Brokers: 1, Nodes: 1, Replicas: 1, Clients: 4}, Duration: time.Minute}
	runs := 1
	var given map[string]string
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Inject faults into trafficd and its stores, and count lost and duplicated measurements",
		Long: `chaos injects faults into trafficd and its stores under load, and counts lost, duplicated,
reordered and altered measurements.`,
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
			switch {
			case min(runs, cfg.Clients, cfg.Brokers, cfg.Replicas) < 1:
				return errors.New("--runs, --clients, --brokers and --replicas must be at least 1")
			case cfg.Broker != launch.Kfake && cfg.Broker != launch.Apache && cfg.Broker != "both":
				return fmt.Errorf("--broker %q must be kfake, apache or both", cfg.Broker)
			case cfg.Duration <= 0:
				return fmt.Errorf("--duration %s must be positive", cfg.Duration)
			case cfg.Nodes < 1 || cfg.Nodes > 2:
				return errors.New("--nodes must be 1 or 2")
			case cfg.Links && (cfg.Broker != launch.Apache || cfg.Brokers == 1 || cfg.Nodes == 1):
				return errors.New("--links requires --broker apache, --brokers 2 or more, and --nodes 2")
			case cfg.Dir != "" && (runs > 1 || cfg.Broker == "both"):
				return errors.New("--dir is for a single run: it cannot be used with --runs or --broker both")
			}
			if cfg.Seed == 0 {
				cfg.Seed = uint64(time.Now().UnixNano() % 1_000_000)
			}
			return runAll(cmd.Context(), cfg, runs, cmd.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&cfg.Broker, "broker", cfg.Broker, "kfake, apache or both;"+
		" kfake is stopped cleanly, because it loses producer state when killed")
	flags.IntVar(&cfg.Brokers, "brokers", cfg.Brokers, "number of brokers;"+
		" with 2 or more, Apache Kafka has min.insync.replicas=2 and single brokers are killed too")
	flags.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "number of ClickHouse servers;"+
		" 2 are replicas of one shard, with ZooKeeper, and their disks are deleted too")
	flags.BoolVar(&cfg.Links, "links", cfg.Links, "cut the links between brokers and between ClickHouse nodes;"+
		" they are in network namespaces, which needs root, iproute2 and several of each, with --broker apache")
	flags.IntVar(&cfg.Replicas, "replicas", cfg.Replicas, "number of daemons;"+
		" with 2 or more, their journal is in Kafka, and volumes are deleted too")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long faults are injected in each run")
	flags.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the first run, incremented for each further run; 0 = random")
	flags.IntVar(&runs, "runs", runs, "number of runs on each broker")
	flags.StringToStringVar(&given, "kills", nil, "fault rate by target: trafficd, clickhouse, zookeeper, kafka, haproxy,"+
		" network, disk, clock, rollout, forecaster; 1 = every four seconds, 0 = never "+
		"(default trafficd=6, clock=1, haproxy=1, zookeeper=0.5, forecaster=0.5, rollout=0.25, others 1.5)")
	flags.Lookup("kills").DefValue = "" // the usage describes the default
	flags.IntVar(&cfg.Clients, "clients", cfg.Clients, "number of clients that send concurrently")
	flags.IntVar(&cfg.MinFaults, "faults", cfg.MinFaults, "minimum number of faults in all runs together")
	flags.StringVar(&cfg.Dir, "dir", "", "directory for the data and logs of a single run, never deleted (default a new directory, deleted "+
		"unless the run fails)")
	flags.BoolVarP(&cfg.Verbose, "verbose", "v", false, "print each fault, which is in faults.log in the directory anyway")
	return c
}

// plan returns the configurations of all runs.
func (cfg config) plan(runs int) (all []config) {
	brokers := []string{cfg.Broker}
	if cfg.Broker == "both" {
		brokers = []string{launch.Kfake, launch.Apache}
	}
	for _, cfg.Broker = range brokers {
		for n := range runs {
			one := cfg
			one.Seed += uint64(n)
			all = append(all, one)
		}
	}
	return all
}

// runAll performs all runs and prints the totals.
func runAll(ctx context.Context, cfg config, runs int, out io.Writer) (err error) {
	defer must.Return(&err)
	total := result{counts: nemesis.Counts{}}
	for _, one := range cfg.plan(runs) {
		fmt.Fprintf(out, "\n== broker %s × %d, seed %d, faults for %v", one.Broker, one.Brokers, one.Seed, one.Duration)
		if one.Broker == launch.Kfake {
			fmt.Fprint(out, " (kfake is stopped cleanly: it saves producer state only on a clean shutdown)")
		}
		fmt.Fprintln(out)
		total.add(must.Get(run(ctx, one, out)))
	}
	if hits := total.counts.Total(); hits < cfg.MinFaults {
		total.missed = fmt.Sprintf("faults: %d, goal %d", hits, cfg.MinFaults)
	}
	fmt.Fprintln(out, total.summary(cfg.Seed))
	if !total.clean() {
		return errFound
	}
	return nil
}
