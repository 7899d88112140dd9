// Command trafficd accepts batches of detector measurements over HTTP, makes the valid measurements
// durable and delivers each exactly once to ClickHouse and Kafka. It also serves street forecasts
// and converts geometries.
//
//	main.go        the command line
//	config/        settings: defaults, file, environment, flags; the sinks
//	daemon.go      the parts, in the order of start and stop; the memory limit
//	reload.go      SIGHUP
//	steps.go       starts and stops the parts within a time limit; systemd
//	check.go       --check-config
//	rename.go      renames product instances and detectors in ClickHouse
//	deliveries.go  the delivery loops
//	routes.go      the paths for clients and operators
//	readiness.go   the reasons in /readyz
//	health.go      health checks of containers
//	status/        /status
//	tracing/       OpenTelemetry
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/program"
	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficd/config"
	"trafficd/sinks/clickhouse"
)

func main() {
	err := command().ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, errLogged) {
		fmt.Fprintln(os.Stderr, "trafficd:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// errLogged replaces an error that has been logged, so that main does not print it again.
var errLogged = errors.New("see the log")

// flags holds the command line flags of the subcommands that read the configuration.
type flags struct {
	program.Flags
	names []conf.Flag // flags that set a key
}

func command() *cobra.Command {
	f := &flags{names: []conf.Flag{
		{Name: "log-level", Key: "log.level"},
		{Name: "listen", Key: "api.listen"},
		{Name: "ops-listen", Key: "ops.listen"},
		{Name: "journal-dir", Key: "journal.dir"},
	}}
	root := &cobra.Command{
		Use:   "trafficd",
		Short: "Ingest detector measurements and deliver each exactly once to ClickHouse and Kafka",
		Long: `trafficd accepts gzip-compressed JSON batches of detector measurements over HTTP,
validates each measurement, makes the valid ones durable in its journal, responds with 207,
and delivers each exactly once to ClickHouse (archive) and a Kafka topic.

Settings come from the defaults, a YAML file, the environment and flags; later ones win.
The environment variable for a key is TRAFFICD_SECTION__KEY. Relative paths in settings
are relative to the working directory, not to the file. --print-config shows every key with
its help, its value and the origin of the value. --check-config reports all problems with
the settings and the files named in them. --check-config=deep also connects to ClickHouse
and Kafka, reads each feed once, and reports what would keep the daemon from using them:
TLS, users, grants, tables, topics, clocks. It changes nothing. As root, both check as the
user trafficd if there is one, because the unit of systemd runs the daemon as this user.

SIGHUP reads the settings again and reloads the log level, the keys, the registry feeds and
the TLS certificate; other changed settings require a restart. The log and /readyz name
them, and what is invalid. Invalid settings have no effect.

SIGTERM and SIGINT drain the daemon: requests in progress are completed, everything
accepted is durable, and the exit code is 0. A second signal exits immediately. During the
start, they end the daemon within two seconds.`,
		Example: `  trafficd --config /etc/trafficd/trafficd.yaml
  trafficd --config trafficd.yaml --check-config=deep
  trafficd --set kafka.enabled=false --set clickhouse.addresses=ch1:9000,ch2:9000
  TRAFFICD_CLICKHOUSE__PASSWORD=… trafficd --config trafficd.yaml --print-config`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
	f.AddTo(root)
	for i := range f.names {
		n := &f.names[i]
		root.PersistentFlags().StringVar(&n.Value, n.Name, "", "short for --set "+n.Key+"=…")
	}
	root.AddCommand(migrateCommand(f), renameCommand(f), healthCommand(f), &cobra.Command{
		Use:   "version",
		Short: "Print the version, revision and Go version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "trafficd", version.Text()) },
	})
	return root
}

// load reads the settings from all sources. It returns a configuration even if it also returns an
// error.
func (f *flags) load(cmd *cobra.Command) (*config.Config, conf.Origins, error) {
	o := conf.Options{File: f.File, Environ: os.Environ(), Set: f.Set}
	for _, n := range f.names {
		if cmd.Flags().Changed(n.Name) {
			o.Flags = append(o.Flags, n)
		}
	}
	return config.Load(o)
}

func (f *flags) serve(cmd *cobra.Command) error {
	if f.Check != "" && f.Print {
		return errors.New("use either --check-config or --print-config, not both")
	}
	c, origins, err := f.load(cmd)
	switch {
	case f.Check != "":
		if err := program.BecomeServiceUser(cmd.OutOrStdout(), f.File); err != nil {
			return err
		}
		if err = check(cmd.Context(), cmd.OutOrStdout(), c, origins, err, f.Check == "deep"); err != nil {
			return conf.Invalid(err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
		return nil
	case f.Print && err != nil:
		return conf.Invalid(err)
	case f.Print:
		return conf.Print(cmd.OutOrStdout(), c, origins)
	}
	log := c.Log.Logger(os.Stderr)
	if err != nil {
		for problem := range strings.Lines(err.Error()) {
			log.Error().Str("error", strings.TrimSpace(problem)).Msg("cannot use the configuration")
		}
		return errLogged
	}
	if err := serve(c, log, func() (*config.Config, error) {
		c, _, err := f.load(cmd)
		return c, err
	}); err != nil {
		log.Error().Err(conf.Absolute(err)).Msg("trafficd exits with an error")
		return errLogged
	}
	return nil
}

func migrateCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the tables in ClickHouse",
		Long: `migrate creates the database and the tables in ClickHouse, or updates them. It may be run
repeatedly. The daemon does the same when it first reaches ClickHouse, unless
clickhouse.migrate is false. In that case, run migrate before updating the daemon, as a
user that may create tables.

Only migrate creates tables again that were dropped. They are then empty; those derived from
the archive are filled from it.`,
		Example: `  trafficd migrate --config trafficd.yaml
  TRAFFICD_CLICKHOUSE__PASSWORD=… trafficd migrate --set clickhouse.username=admin`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := f.load(cmd)
			if err != nil {
				return conf.Invalid(err)
			}
			if !c.ClickHouse.Enabled {
				return errors.New("cannot migrate: clickhouse.enabled is false")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			log := c.Log.Logger(os.Stderr)
			if err := clickhouse.Migrate(ctx, c.ClickHouse.Config, log); err != nil {
				return err
			}
			log.Info().Strs("addresses", c.ClickHouse.Addresses).Str("database", c.ClickHouse.Database).Msg("the tables are up to date")
			return nil
		},
	}
}
