package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
	"trafficd/sinks/clickhouse"
)

func migrateCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the tables in ClickHouse",
		Long: `migrate creates the database and the tables in ClickHouse, or updates them. It may be run
repeatedly. The daemon does the same when it first reaches ClickHouse, unless
clickhouse.migrate is false. In that case, run migrate before updating the daemon, as a
user that may create tables.`,
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
