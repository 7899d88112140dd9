// Package program has what the programs share: the flags that read settings and, for those beside
// the daemon, the command line, the listener for operators and the end.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/internal/version"
)

// Program is a program that runs until SIGINT or SIGTERM. C holds its settings.
type Program[C any] struct {
	Name, Short, Long, Example string

	// Load returns the settings, even if it also returns an error.
	Load func(conf.Options) (*C, conf.Origins, error)
	// Complete reports what Run needs and subcommands do not. It may be nil.
	Complete func(*C, conf.Origins) error
	// Check returns the problems that would keep the program from working: those with the files and,
	// if deep, those with the servers that it uses. It writes warnings to w.
	Check func(ctx context.Context, w io.Writer, c *C, origins conf.Origins, deep bool) error
	// Run runs the program until ctx is done.
	Run func(ctx context.Context, c *C) error

	flags Flags
}

// Flags are the flags of a program that reads settings.
type Flags struct {
	File  string
	Set   []string
	Check checkMode // "files", "deep", or empty
	Print bool
}

// AddTo adds the flags, and --version, to the command of a program.
func (f *Flags) AddTo(root *cobra.Command) {
	root.Version, root.SilenceUsage, root.SilenceErrors = version.Text(), true, true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.PersistentFlags().StringVar(&f.File, "config", "", "YAML file with settings")
	root.PersistentFlags().StringArrayVar(&f.Set, "set", nil, "section.key=value; may be repeated")
	f.Check.addTo(root)
	root.Flags().BoolVar(&f.Print, "print-config", false, "print the effective settings as YAML, without secrets, and exit")
}

// Main executes the command of a program.
func Main(c *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C exits immediately
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, c.Name()+":", err)
		os.Exit(1)
	}
}

// Command returns the command line.
func (p *Program[C]) Command() *cobra.Command {
	root := &cobra.Command{
		Use:     p.Name,
		Short:   p.Short,
		Long:    p.Long,
		Example: p.Example,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.serve(cmd) },
	}
	p.flags.AddTo(root)
	return root
}

// Settings returns the settings that the flags, the file and the environment give.
func (p *Program[C]) Settings() (*C, conf.Origins, error) {
	return p.Load(conf.Options{Prefix: strings.ToUpper(p.Name) + "_", File: p.flags.File, Environ: os.Environ(), Set: p.flags.Set})
}

func (p *Program[C]) serve(cmd *cobra.Command) error {
	c, origins, err := p.Settings()
	if p.flags.Print {
		if err = errors.Join(err, conf.Print(cmd.OutOrStdout(), c, origins)); err != nil {
			return conf.Invalid(err)
		}
		return nil
	}
	if p.Complete != nil {
		err = errors.Join(err, p.Complete(c, origins))
	}
	if p.flags.Check != "" && err == nil {
		err = BecomeServiceUser(cmd.OutOrStdout(), p.flags.File)
	}
	if p.flags.Check != "" && err == nil {
		err = p.Check(cmd.Context(), cmd.OutOrStdout(), c, origins, p.flags.Check == "deep")
	}
	switch {
	case err != nil:
		return conf.Invalid(err)
	case p.flags.Check != "":
		fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
		return nil
	}
	return p.Run(cmd.Context(), c)
}

// stopTime is the time limit for operators' requests after work has returned.
const stopTime = 5 * time.Second

// Serve serves operators while work runs.
func Serve(
	ctx context.Context, name string, c ops.Config, readiness func() ops.Readiness, routes map[string]http.Handler,
	log zerolog.Logger, work func(),
) error {
	o, err := ops.Start(c, readiness, routes, log)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		o.Stop(stopping)
	}()
	log.Info().Str("version", version.Text()).Int("pid", os.Getpid()).Msg(name + " starts")
	work()
	log.Info().Msg(name + " stopped")
	return nil
}

// Status is a state that readiness checks read while others change it. The zero value must be set
// with Store first.
type Status[T any] struct{ atomic.Pointer[T] }

// Update changes the state. It is safe for concurrent use.
func (s *Status[T]) Update(change func(*T)) {
	for {
		before := s.Load()
		after := *before
		change(&after)
		if s.CompareAndSwap(before, &after) {
			return
		}
	}
}
