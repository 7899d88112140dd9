// Command quickstart demonstrates trafficd on one machine. It starts real stores and the daemon,
// sends a few days of traffic, waits until both stores have received it, starts the forecaster, and
// prints a report. It then sends live measurements until Ctrl-C. `make run` builds it and the
// programs that it starts.
//
// All data is in one directory (.run/quickstart), which is kept so that the next run reuses the
// same data and key.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

type options struct {
	dir       string
	feed      string
	data      string
	profile   string
	fresh     bool
	exit      bool
	broker    string
	detectors int
	days      int
}

func main() {
	var o options
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Start trafficd with real stores, send traffic, print a report, and continue with live traffic",
		Example: `  make run                            a synthetic town with 1,000 detectors
  make run DATA=~/aarhus              a data set; see ` + defaultProfile + `
  make run FEED=ndw                   a recorded publication of the Netherlands, replayed every minute
  make run ARGS='--fresh --exit'      start with an empty directory, exit after the report`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", ".run/quickstart", "directory for stores, journal, keys and logs, kept across restarts")
	f.StringVar(&o.feed, "feed", "",
		"pull a feed instead: ndw, a recorded publication in --data, or ndw-live, which needs network")
	f.StringVar(&o.data, "data", "", "directory of a data set to send instead of synthetic traffic")
	f.StringVar(&o.profile, "profile", "", "file that describes --data (default "+defaultProfile+")")
	f.BoolVar(&o.fresh, "fresh", false, "empty the directory first")
	f.BoolVar(&o.exit, "exit", false, "exit after the report, with an error if the counts differ")
	f.StringVar(&o.broker, "broker", "kfake", "Kafka-protocol broker: kfake, or apache (slower to start; needs Java)")
	f.IntVar(&o.detectors, "detectors", 1000, "number of detectors in the synthetic traffic, one per direction of each street")
	f.IntVar(&o.days, "days", 3, "number of days of synthetic traffic; the forecaster learns from complete days only")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		os.Exit(1)
	}
}
