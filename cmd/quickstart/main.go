// Command quickstart shows the whole of trafficd in a minute on one machine: it
// builds the programs, starts real stores and the daemon, sends a day of
// traffic, waits until it stands in both stores, and prints what a newcomer
// wants to know. It stays up until Ctrl-C.
//
// Everything lives in one folder (.run/quickstart) that survives: the next
// start goes on with the same data, keys and addresses.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// The kernel ends the children together with the thread that started them
// (see children): that has to be the main thread, which ends last.
func init() { runtime.LockOSThread() }

type options struct {
	dir       string
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
		Short: "Start trafficd with real stores, send traffic, show where it went",
		Example: `  go run ./cmd/quickstart                    a synthetic day of 1,000 detectors
  go run ./cmd/quickstart --data ~/aarhus    a data set; see ` + profileFolder + `
  go run ./cmd/quickstart --fresh --exit     from an empty folder, and end after the report`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", ".run/quickstart", "folder for stores, journal, keys and logs; it survives")
	f.StringVar(&o.data, "data", "", "folder with a data set to send in place of synthetic traffic")
	f.StringVar(&o.profile, "profile", "", "how to read --data: a name in "+profileFolder+" or a file (default: found by folder name or columns)")
	f.BoolVar(&o.fresh, "fresh", false, "empty the folder first")
	f.BoolVar(&o.exit, "exit", false, "end after the report, with an error if the counts do not agree")
	f.StringVar(&o.broker, "broker", "kfake", "Kafka-protocol broker: kfake, or apache (slower to start; needs Java)")
	f.IntVar(&o.detectors, "detectors", 1000, "synthetic traffic: number of detectors")
	f.IntVar(&o.days, "days", 1, "synthetic traffic: number of days")

	cmd.AddCommand(tailCommand())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		os.Exit(1)
	}
}

// moduleRoot is the folder with go.mod, from the working folder upwards.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("cannot find go.mod: run quickstart inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}
