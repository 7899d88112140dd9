// Command feeder pulls what traffic authorities publish about their detectors, and sends it to
// trafficd as any integrator does.
//
//	main.go   the command line
//	config/   settings
//	run.go    the process: feeds, readiness, metrics
//	pull.go   a publication becomes batches in the spool; the site table
//	send.go   batches of the spool are sent
//	sites.go  the list of sites, which trafficd polls
//	internal/ spool: what was not accepted yet, and what was sent
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"trafficd/cmd/feeder/config"
	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/program"
	"trafficd/schemas/contract"
)

func main() { program.Main(command()) }

func command() *cobra.Command {
	p := &program.Program[config.Config]{
		Name:  "feeder",
		Short: "Send the detector feeds of traffic authorities to trafficd",
		Long: `feeder pulls publications of detector data, such as DATEX II, and sends each new or changed
value to trafficd once. It serves the list of their sites at /sites, for trafficd's setting
registry.feeds[].http.

trafficctl feed add shows what a publication contains and writes its configuration. Settings
come from the defaults, a YAML file, the environment (FEEDER_SECTION__KEY) and --set; later
ones win. Only one instance may use a spool.`,
		Example: "  feeder --config feeder.yaml",
		Load:    config.Load,
		Check: func(ctx context.Context, _ io.Writer, c *config.Config, _ conf.Origins, deep bool) error {
			return check(ctx, c, deep)
		},
		Run: func(ctx context.Context, c *config.Config) error { return run(ctx, c, c.Log.Logger(os.Stderr)) },
	}
	return p.Command()
}

// check returns the problems that would keep the feeder from working: those with the files and, if
// deep, those with trafficd and the feeds.
func check(ctx context.Context, c *config.Config, deep bool) error {
	var errs []error
	daemon, err := c.Trafficd.Client()
	if err == nil && deep {
		var empty []byte // a batch without items checks the address and the key
		if empty, err = compress(contract.Batch[string]()); err == nil {
			_, err = daemon.Post(ctx, "", empty)
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
		var s *authority.Source
		if err == nil && deep {
			if s, err = authority.NewSource(f, f.URL, os.DevNull); err == nil {
				_, _, err = s.Fetch(ctx)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("feeds[%d], %s: %w", i, f.Name, err))
		}
	}
	return errors.Join(errs...)
}
