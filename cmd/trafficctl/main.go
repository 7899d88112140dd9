// Command trafficctl is the command-line tool for integrators and operators of trafficd. It sends
// measurements, reads publications of traffic authorities, publishes forecasts, manages API keys,
// converts geometries, inspects a daemon's journal and dead letters, and delivers the journal of a
// lost daemon.
//
// Each command is a file, with most of its work in a package below internal:
//
//	main.go       exit codes, the tree of commands, the flags of a connection
//	send.go       send and resubmit; input.go: the flags that describe a file      → feed, send
//	batch.go      batch
//	detectors.go  detectors health
//	forecast.go   forecast publish and get                                         → forecast
//	geometry.go   geometry                                                         → geometry
//	feed.go       feed check and sites; feed_add.go: add                           → schemas/feeds
//	route.go      route; route_match.go: match; route_follow.go, route_typical.go  → route, follow
//	key.go        key new, list and revoke                                         → keyfile
//	journal.go    journal ls, cursors and verify; journal_*.go: dump, adopt, restamp → inspect
//	deadletter.go deadletter ls and resend
//	top.go        top and tap
//	text.go       numbers, times and text of others, for people; progress.go: the progress bar
//	output.go     files that are replaced atomically
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/version"
	"trafficd/cmd/trafficctl/internal/interrupt"
)

// Exit codes, as documented in the help texts.
const (
	exitDone     = 0
	exitFailed   = 1
	exitRejected = 2
)

// errRejected makes run return exitRejected without printing an error, because the command has
// already reported the rejections.
var errRejected = errors.New("some items were rejected")

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
	std.in = interrupt.Reader{Ctx: ctx, In: std.in}
	out := &checkedWriter{Writer: std.out}
	std.out = out
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("cannot write the output: %w", out.err)
	}
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errRejected):
		return exitRejected
	}
	fmt.Fprintln(std.err, "trafficctl:", err)
	return exitFailed
}

// checkedWriter keeps the first error, because commands do not check each line that they print.
type checkedWriter struct {
	io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.err = cmp.Or(w.err, err)
	return n, err
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "trafficctl",
		Short: "Send data to trafficd and operate it",
		Long: `trafficctl sends measurements to trafficd and resubmits those that were rejected. It
reads publications of traffic authorities, publishes and gets street forecasts, converts
geometries, and manages API keys. Operators use it to follow a daemon's state and to
inspect its journal and dead letters.

To try it in an empty directory, with a daemon without stores, which validates
measurements and discards them:

  umask 077 # other users must not read the key
  trafficctl key new --name demo --product-instance demo --rights ingest --file keys.yaml > demo.key
  echo detectorCode,measureTypeCode,timestampFrom,timestampTo,value > hour.csv
  echo D1,speed,2026-11-01T08:00:00Z,2026-11-01T08:05:00Z,48.5 >> hour.csv
  printf 'detectorCode\nD1\n' > detectors.csv
  trafficd --set clickhouse.enabled=false --set kafka.enabled=false --set journal.dir=journal \
      --set api.keys_file=keys.yaml --set 'registry.feeds=[{product_instance: demo, file: {path: detectors.csv}}]' &
  trafficctl send hour.csv --key-file demo.key # retries until the daemon is ready
  kill %% # stops the daemon

Exit codes: 0 success, 1 failure, 2 some items were rejected.`,
		Version:       version.Text(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	// A group is runnable only so that it can report unknown commands; its usage must not show that.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if not .HasAvailableSubCommands}}", 1))
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.AddCommand(newSend(std), newResubmit(std), newBatch(std), newDetectors(std), newKey(std),
		newForecast(std), newRoute(std), newJournal(std), newDeadLetter(std), newGeometry(std), newFeed(std), newTop(std), newTap(std),
		&cobra.Command{
			Use:     "version",
			Short:   "Print the version",
			Example: "  trafficctl version",
			Args:    cobra.NoArgs,
			Run:     func(*cobra.Command, []string) { fmt.Fprintln(std.out, "trafficctl", version.Text()) },
		})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	})
	addUsage(root)
	return root
}

// addUsage adds the usage line to the argument errors of cmd and its subcommands.
func addUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		addUsage(child)
	}
}

// group adds subcommands to cmd, which has no action of its own, and makes an unknown subcommand an
// error. By default, cobra prints the help and succeeds, or reports an unknown flag.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.DisableFlagParsing = true
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
			return cmd.Help()
		}
		var names []string
		for _, command := range cmd.Commands() {
			names = append(names, command.Name())
		}
		if flag, _, _ := strings.Cut(args[0], "="); strings.HasPrefix(flag, "-") {
			return fmt.Errorf("unknown flag: %s; %s requires a command: %s", flag, cmd.Name(), strings.Join(names, ", "))
		}
		return fmt.Errorf("unknown command %q for %s; its commands are %s", args[0], cmd.Name(), strings.Join(names, ", "))
	}
	return cmd
}

// Environment variables used if the corresponding flags are not set.
const (
	envKey = "TRAFFICD_KEY"
	envURL = "TRAFFICD_URL"
)

// connection holds the flags shared by the commands that connect to a daemon.
type connection struct {
	service client.Service
	cfg     client.Config
	keyFile string
	quiet   bool
	flags   *pflag.FlagSet
}

func (c *connection) register(f *pflag.FlagSet, service client.Service) {
	c.service, c.flags = service, f
	f.StringVar(&c.cfg.URL, "url", "http://127.0.0.1:8080", "base URL of the daemon; overrides $"+envURL)
	f.StringVar(&c.cfg.Key, "key", "", "API key with the "+service.Right+" right; other users of this machine can see it, so prefer "+
		"--key-file or $"+envKey)
	f.StringVar(&c.keyFile, "key-file", "", "file with the API key on its first line")
	f.StringVar(&c.cfg.CA, "ca", "", "PEM file with the CA certificates to trust instead of the system's")
	f.StringVar(&c.cfg.Cert, "cert", "", "PEM file of a client certificate, which the daemon may accept instead of a key")
	f.StringVar(&c.cfg.CertKey, "cert-key", "", "PEM file of the private key for --cert")
	f.DurationVar(&c.cfg.Timeout, "timeout", time.Minute, "time limit for a request and its response")
	f.BoolVar(&c.quiet, "quiet", false, "do not print progress")
}

// client returns a client of the service, which the caller must close. The flags take precedence
// over the environment variables. Setting both --key and --key-file is an error.
func (c *connection) client() (*client.Client, error) {
	cfg := c.cfg
	if url := os.Getenv(envURL); url != "" && !c.flags.Changed("url") {
		cfg.URL = url
	}
	switch {
	case cfg.Key != "" && c.keyFile != "":
		return nil, errors.New("use either --key or --key-file, not both")
	case c.keyFile != "":
		var err error
		if cfg.Key, err = client.ReadKey("--key-file", c.keyFile); err != nil {
			return nil, err
		}
	case cfg.Key == "":
		cfg.Key = os.Getenv(envKey)
	}
	return client.New(cfg, c.service)
}
