// Command trafficctl is the tool for integrators and operators: it sends measurements, manages keys,
// forecasts, geometries and routing jobs over HTTP, and inspects a daemon's journal and dead letters
// in its files, which it never changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // time zones for machines without them

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/version"
)

// Exit codes, as documented in the help texts.
const (
	exitDone     = 0
	exitFailed   = 1
	exitRejected = 2
)

// errRejected sets exit code 2. The command has reported the rejections already.
var errRejected = errors.New("some items were rejected")

// streams are the standard streams.
type streams struct {
	in  io.Reader
	out io.Writer // results
	err io.Writer // messages and progress
}

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore) // a second Ctrl-C exits immediately
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

func run(ctx context.Context, args []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errRejected):
		return exitRejected
	}
	fmt.Fprintln(std.err, "trafficctl:", err)
	return exitFailed
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "trafficctl",
		Short: "Send data to trafficd and operate it",
		Long: `trafficctl sends detector measurements to trafficd, resubmits rejected ones, and generates
synthetic ones. It manages API keys, generates, publishes and gets street forecasts,
converts geometries, manages routing jobs, and inspects a daemon's journal and dead
letters.

To try it with a daemon on this machine:

  trafficctl key new --name demo --product-instance demo --rights ingest --file keys.yaml > demo.key
  trafficctl generate --detectors 14000 --registry-out detectors.csv --output /dev/null
  trafficd --set api.keys_file=keys.yaml --set 'registry.feeds=[{product_instance: demo, file: {path: detectors.csv}}]' &
  trafficctl generate --detectors 14000 --send --url http://127.0.0.1:8080 --key-file demo.key

Exit codes: 0 success, 2 some items were rejected, 1 failure.`,
		Version:       version.Text(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.AddCommand(newSend(std), newResubmit(std), newGenerate(std), newKey(std),
		newForecast(std), newJob(std), newJournal(std), newDeadLetter(std), newGeometry(std), newVersion(std))
	for _, group := range root.Commands() {
		if group.HasSubCommands() {
			rejectUnknownCommands(group)
		}
	}
	return root
}

// rejectUnknownCommands makes an unknown command in a group an error. By default cobra prints the
// help and succeeds, or complains about a flag.
func rejectUnknownCommands(group *cobra.Command) {
	group.FParseErrWhitelist.UnknownFlags = true
	group.DisableFlagsInUseLine = true
	group.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return group.Help()
		}
		var names []string
		for _, command := range group.Commands() {
			names = append(names, command.Name())
		}
		return fmt.Errorf("unknown command %[2]q for %[1]s; it has %[3]s", group.Name(), args[0], strings.Join(names, ", "))
	}
}

func newVersion(std streams) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  trafficctl version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(std.out, "trafficctl", version.Text())
			return err
		},
	}
}
