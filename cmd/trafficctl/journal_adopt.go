package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficctl/internal/inspect"
	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline"
	"trafficd/pipeline/journal"
)

func newJournalAdopt(std streams) *cobra.Command {
	o := conf.Options{Environ: os.Environ()}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "adopt DIR",
		Short: "Deliver the journal of a lost daemon",
		Long: `Deliver the journal of a daemon that will not return, for example from the volume of a lost
machine, to the stores of a configuration. The stores receive each measurement exactly
once, even if it was in a block in flight, as after a restart of that daemon.

The command may be interrupted, killed and run again at any time, even while daemons are
running. It locks DIR, so neither another adopt nor the lost daemon can use DIR at the
same time. Once everything is delivered, running it again changes nothing, and the daemon
may start on DIR again.

Never adopt a copy while the original may still be delivered. Measurements that a store
rejects permanently are written to the dead-letter file (setting dead_letters; by default
a file in DIR). Run the command as the daemon's user, with the configuration of any daemon
that delivers to the same stores.

Exit codes: 0 everything is delivered, 1 interrupted or failed.`,
		Example: `  trafficctl journal adopt /mnt/lost/journal --config /etc/trafficd/trafficd.yaml
  TRAFFICD_CLICKHOUSE__PASSWORD=… trafficctl journal adopt /mnt/lost/journal --config trafficd.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Flags = []conf.Flag{{Name: "journal-dir", Key: "journal.dir", Value: args[0]}}
			c, origins, err := config.Load(o)
			if err != nil {
				return fmt.Errorf("cannot use the configuration: %w", err)
			}
			// The defaults may be the wrong stores.
			if o.File == "" && (c.ClickHouse.Enabled && origins["clickhouse.addresses"] == "" || c.Kafka.Enabled && origins["kafka.brokers"] == "") {
				return fmt.Errorf("cannot adopt %s: the stores are not set; add --config with the settings of a daemon that delivers to them",
					args[0])
			}
			c.ClickHouse.DeriveInterval = 0 // running daemons update the derived tables
			return adoptJournal(cmd.Context(), std, c, quiet)
		},
	}
	cmd.Flags().StringVar(&o.File, "config", "", "YAML file with the settings of a daemon that delivers to the same stores")
	cmd.Flags().StringArrayVar(&o.Set, "set", nil, "section.key=value; may be repeated")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "do not print progress")
	return cmd
}

// adoptJournal delivers the journal in c.Journal.Dir. It returns an error unless all is delivered.
func adoptJournal(ctx context.Context, std streams, c *config.Config, quiet bool) (err error) {
	dir, sinks := c.Journal.Dir, c.EnabledSinks()
	consumers, err := consumersOf(dir, sinks)
	if err != nil {
		return err
	}
	total, names, waiting := int64(0), []string{}, map[string]int64{}
	for _, x := range consumers {
		names, waiting[x.Name] = append(names, x.Name), int64(x.Rows)
		if x.Name != pipeline.IdempotencyConsumer {
			total += int64(x.Rows)
		}
	}
	display := newProgress(std.err, quiet, total)
	defer display.end()
	c.Log.SetLevel()
	log := zerolog.New(zerolog.ConsoleWriter{Out: notes{display}, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName}})
	j, err := journal.Open(c.Journal.Config, names, journal.WithLogger(log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	dead := pipeline.NewDeadLetters(c.DeadLetters)
	if err := dead.Check(); err != nil {
		return fmt.Errorf("%w; see the setting dead_letters", err)
	}
	hard, cut := context.WithCancel(context.Background())
	defer cut()
	soft, finish := context.WithCancel(hard)
	var running sync.WaitGroup
	defer running.Wait()
	defer finish() // runs before running.Wait
	errs := make([]error, len(sinks))
	deliveries := map[string]*pipeline.Delivery{}
	for i, s := range sinks {
		store, err := s.Open(c, log)
		if err != nil {
			return err
		}
		d, err := pipeline.NewDelivery(s.Name, s.Delivery(c), pipeline.Local(j, s.Name), store, dead, log)
		if err != nil {
			return errors.Join(err, store.Close())
		}
		deliveries[s.Name] = d
		running.Go(func() { errs[i] = d.Run(hard, soft) })
	}
	followDeliveries(ctx, display, deliveries, waiting)
	finish() // the deliveries end after their current blocks
	defer time.AfterFunc(c.ShutdownTimeout, cut).Stop()
	running.Wait()
	display.end()
	_, next := j.Bounds()
	for i, s := range sinks {
		frame, state := j.Cursor(s.Name).Load()
		at, err := pipeline.DescribeCursor(frame, state)
		if err == nil && (at.Plan != nil || at.Done.Frame != next) {
			err = fmt.Errorf("%s has not received the rows starting at %s; run the command again", s.Name, position(at.Done))
		}
		errs[i] = errors.Join(errs[i], err)
		fmt.Fprintf(std.out, "delivered to %s: %s\n", s.Name, plural(int(deliveries[s.Name].Status().Rows), "row"))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "everything in %s is delivered\n", dir)
	return nil
}

// followDeliveries shows progress until everything is delivered or ctx is done. waiting maps each
// sink to the number of rows that it had not received at the start.
func followDeliveries(ctx context.Context, display *progress, deliveries map[string]*pipeline.Delivery, waiting map[string]int64) {
	for left := true; left && ctx.Err() == nil; {
		left = false
		var done int64
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(deliveries)) {
			s := deliveries[name].Status()
			left = left || s.Frames > 0
			done += s.Rows
			text := fmt.Sprintf("%s %s of %s rows", name, grouped(s.Rows), grouped(waiting[name]))
			if s.Trouble != nil {
				text += " (failing)"
			}
			texts = append(texts, text)
		}
		text := strings.Join(texts, ", ")
		display.show(done, text, text)
		_ = client.Sleep(ctx, barInterval)
	}
}

// consumersOf returns the consumers of the journal in dir. It returns an error if the journal is
// damaged or its consumers do not match the enabled sinks.
func consumersOf(dir string, sinks []config.Sink) ([]inspect.Consumer, error) {
	f, err := inspect.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	consumers, gaps, err := f.Consumers()
	if err != nil {
		return nil, err
	}
	damaged := len(gaps) > 0
	cursors := map[string]bool{}
	for _, x := range consumers {
		cursors[x.Name] = true
		damaged = damaged || x.Err != nil || x.Ahead > 0
		enabled := slices.ContainsFunc(sinks, func(s config.Sink) bool { return s.Name == x.Name })
		if !enabled && x.Name != pipeline.IdempotencyConsumer {
			return nil, fmt.Errorf("cannot adopt %[1]s: its measurements must also be delivered to %[2]s, which is disabled; "+
				"add --set %[2]s.enabled=true", dir, x.Name)
		}
	}
	for _, s := range sinks {
		if !cursors[s.Name] {
			return nil, fmt.Errorf("cannot adopt %[1]s: its daemon did not deliver to %[2]s; add --set %[2]s.enabled=false", dir, s.Name)
		}
	}
	if damaged {
		return nil, fmt.Errorf("cannot adopt %[1]s: it is damaged; run trafficctl journal verify %[1]s to see what to do", dir)
	}
	return consumers, nil
}

// notes is an io.Writer for the log that does not garble the progress bar.
type notes struct{ *progress }

func (n notes) Write(line []byte) (int, error) {
	n.note(strings.TrimSpace(string(line)))
	return len(line), nil
}
