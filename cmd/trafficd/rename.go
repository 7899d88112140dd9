package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
	schema "trafficd/schemas/clickhouse"
	"trafficd/sinks/clickhouse"
)

func renameCommand(f *flags) *cobra.Command {
	var r schema.Rename
	cmd := &cobra.Command{
		Use:   "rename",
		Short: "Rename a product instance or a detector in ClickHouse, with its history",
		Long: `rename gives the measurements of a product instance, or of one of its detectors, another
name: in the archive and its views, the lists of detectors, and what the forecaster has
learned. If both names have a measurement of the same interval, the one that was accepted
last stays. It may be run while the daemon runs, and again after an error.

The old name must be out of use: first change it in the detector list and, for a product
instance, in the keys, then wait until all of its measurements are delivered. rename refuses
if one was accepted within the last 10 minutes. Records in Kafka keep the old name.

The user in ClickHouse needs the grants of migrate and ALTER DELETE on the tables and, in a
cluster, SYSTEM SYNC REPLICA.`,
		Example: `  trafficd rename --config trafficd.yaml --product-instance city --detector MQ-1 --to MQ-0001
  trafficd rename --config trafficd.yaml --product-instance city --to metropolis`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := f.load(cmd)
			if err != nil {
				return conf.Invalid(err)
			}
			what := fmt.Sprintf("product instance %q", r.ProductInstance)
			if r.Detector != "" {
				what = fmt.Sprintf("detector %q of %s", r.Detector, what)
			}
			switch {
			case !c.ClickHouse.Enabled:
				return errors.New("cannot rename: clickhouse.enabled is false")
			case r.To == "" || r.To == r.Detector || r.Detector == "" && r.To == r.ProductInstance:
				return errors.New("cannot rename: --to must be another name")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			n, err := clickhouse.RenameIn(ctx, c.ClickHouse.Config, r, time.Now())
			if err != nil {
				return fmt.Errorf("cannot rename %s to %q: %w", what, r.To, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "renamed %s to %q: %d measurements\n", what, r.To, n)
			return nil
		},
	}
	p := cmd.Flags()
	p.StringVar(&r.ProductInstance, "product-instance", "", "product instance to rename, or of the detector")
	p.StringVar(&r.Detector, "detector", "", "code of the detector to rename")
	p.StringVar(&r.To, "to", "", "new name")
	_ = cmd.MarkFlagRequired("product-instance")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}
