// Command feeder pulls what traffic authorities publish about their detectors, and sends it to
// trafficd as any integrator does.
//
//	main.go   the command line
//	config/   settings
//	run.go    the process: feeds, readiness, metrics
//	fetch.go  downloads
//	pull.go   a publication becomes batches in the spool; the site table
//	send.go   batches of the spool are sent
//	sites.go  the list of sites, which trafficd polls
//	internal/ spool: what was not accepted yet, and what was sent
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"trafficd/cmd/feeder/config"
	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/version"
	"trafficd/schemas/contract"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C exits immediately
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "feeder:", err)
		os.Exit(1)
	}
}

type flags struct {
	file  string
	set   []string
	check conf.CheckMode
	print bool
}

func command() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:   "feeder",
		Short: "Send the detector feeds of traffic authorities to trafficd",
		Long: `feeder pulls publications of detector data, such as DATEX II, and sends each new or changed
value to trafficd once. It serves the list of their sites at /sites, for trafficd's setting
registry.feeds[].http.

Settings come from the defaults, a YAML file, the environment (FEEDER_SECTION__KEY) and --set;
later ones win. Only one instance may use a spool.`,
		Example:       "  feeder --config feeder.yaml",
		Version:       version.Text(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.Flags().StringVar(&f.file, "config", "", "YAML file with settings")
	root.Flags().StringArrayVar(&f.set, "set", nil, "section.key=value; may be repeated")
	f.check.AddTo(root)
	root.Flags().BoolVar(&f.print, "print-config", false, "print the effective settings as YAML, without secrets, and exit")
	return root
}

func (f *flags) serve(cmd *cobra.Command) error {
	c, origins, err := config.Load(conf.Options{Prefix: "FEEDER_", File: f.file, Environ: os.Environ(), Set: f.set})
	if f.print { // even if settings without a default are missing
		if err = conf.Print(cmd.OutOrStdout(), c, origins); err != nil {
			return conf.Invalid(err)
		}
		return nil
	}
	if f.check != "" && err == nil {
		err = conf.BecomeServiceUser(cmd.OutOrStdout(), f.file)
	}
	if f.check != "" && err == nil {
		err = check(cmd.Context(), c, f.check == "deep")
	}
	switch {
	case err != nil:
		return conf.Invalid(err)
	case f.check != "":
		fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
		return nil
	}
	return run(cmd.Context(), c, c.Log.Logger(os.Stderr))
}

// check returns the problems that would keep the feeder from working: those with the files and, if
// deep, those with trafficd and the feeds.
func check(ctx context.Context, c *config.Config, deep bool) error {
	var errs []error
	key, err := readKey(c.Trafficd.KeyFile)
	if err == nil {
		var daemon *client.Client
		if daemon, err = client.New(c.Trafficd.Config(key), client.Ingest); err == nil && deep {
			var empty []byte // a batch without items checks the address and the key
			if empty, err = compress(contract.Batch[string]()); err == nil {
				_, err = daemon.Post(ctx, "", empty)
			}
		}
	}
	errs = append(errs, err)
	if err := unix.Access(c.Spool.Dir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) { // it is created at the start
		errs = append(errs, fmt.Errorf("spool.dir: cannot write to %s: %w", c.Spool.Dir, err))
	}
	for i, f := range c.Feeds {
		err := f.TLS().CheckFiles("")
		if f.BodyFile != "" && err == nil {
			err = unix.Access(f.BodyFile, unix.R_OK)
		}
		var s *source
		if err == nil && deep {
			if s, err = newSource(f, f.URL, os.DevNull); err == nil {
				_, _, err = s.fetch(ctx)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("feeds[%d], %s: %w", i, f.Name, err))
		}
	}
	return errors.Join(errs...)
}
