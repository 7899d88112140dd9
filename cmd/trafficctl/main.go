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
	_ "time/tzdata" // zones also where the machine has none

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/version"
)

// Exit codes, as the help texts promise them.
const (
	exitDone     = 0
	exitFailed   = 1
	exitRejected = 2
)

// errRejected makes the exit code 2: everything was answered, but not
// everything accepted. The summary has said so already.
var errRejected = errors.New("some items were rejected")

// streams are the standard streams, handed in for the tests.
type streams struct {
	in  io.Reader
	out io.Writer // results
	err io.Writer // everything for the person who watches
}

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore) // a second Ctrl-C ends the program at once
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
		Short: "The tool of those who send to trafficd and of those who run it",
		Long: `trafficctl sends detector measurements to trafficd, sends rejected ones again,
makes synthetic ones and makes keys. It makes, publishes and gets street forecasts,
converts geometries, here or by the routing service, whose jobs it looks after, and
looks at a daemon's journal and dead letters.

A first try, with a daemon on this machine:

  trafficctl key new --name demo --product-instance demo --rights ingest --file keys.yaml > demo.key
  trafficctl generate --detectors 14000 --registry-out detectors.csv --output /dev/null
  trafficd --set api.keys_file=keys.yaml --set 'registry.feeds=[{product_instance: demo, file: {path: detectors.csv}}]' &
  trafficctl generate --detectors 14000 --send --url http://127.0.0.1:8080 --key-file demo.key

Exit codes: 0 all done and all accepted, 2 some items were rejected, 1 failure.`,
		Version:       version.Text(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.AddCommand(newSend(std), newResubmit(std), newGenerate(std), newKey(std),
		newForecast(std), newJob(std), newJournal(std), newDeadLetter(std), newGeometry(std), newBench(std))
	for _, group := range root.Commands() {
		if group.HasSubCommands() {
			knowItsCommands(group)
		}
	}
	return root
}

// knowItsCommands has a group of commands refuse a word that is none of them; cobra would
// answer with the help, as if all were well, or with a complaint about its flags.
func knowItsCommands(group *cobra.Command) {
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
		return fmt.Errorf("%s has no command %q: there are %s", group.Name(), args[0], strings.Join(names, ", "))
	}
}
