package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/measurement"
	"trafficd/cmd/trafficctl/internal/send"
)

// Environment variables that stand in for flags.
const (
	envKey = "TRAFFICD_KEY"
	envURL = "TRAFFICD_URL"
)

// sending holds the flags that all commands share which send measurements.
type sending struct {
	cfg      send.Config
	keyFile  string
	noOrder  bool
	onBadRow string
	rejected string
	json     bool
	quiet    bool
}

func newSending() *sending { return &sending{cfg: send.DefaultConfig(), onBadRow: "stop"} }

func (s *sending) register(f *pflag.FlagSet) {
	f.StringVar(&s.cfg.URL, "url", s.cfg.URL, "base URL of the daemon (or environment "+envURL+")")
	f.StringVar(&s.cfg.Key, "key", "", "API key with the right ingest; other users of this machine can see it: better --key-file or "+envKey)
	f.StringVar(&s.keyFile, "key-file", "", "file whose first line is the API key")
	f.IntVar(&s.cfg.Batch, "batch", s.cfg.Batch, "measurements in a batch")
	f.IntVar(&s.cfg.Concurrency, "concurrency", s.cfg.Concurrency, "batches under way at the same time")
	f.BoolVar(&s.noOrder, "no-order", false, "do not keep the order of each detector's measurements: faster where a few detectors have most of the data")
	f.DurationVar(&s.cfg.Timeout, "timeout", s.cfg.Timeout, "for one request and its answer")
	f.DurationVar(&s.cfg.RetryFor, "retry-for", s.cfg.RetryFor, "how long a batch is tried again after a lost connection, 408, 409, 429 or 5xx")
	f.StringVar(&s.onBadRow, "on-bad-row", s.onBadRow, "a row that cannot be read: stop or skip")
	f.StringVar(&s.rejected, "rejected", "", "write rejected items to this file, as NDJSON for trafficctl resubmit")
	f.BoolVar(&s.json, "json", false, "print the summary as one line of JSON")
	f.BoolVar(&s.quiet, "quiet", false, "no progress on standard error")
}

// config completes the settings from files and the environment.
func (s *sending) config(flags *pflag.FlagSet) (send.Config, error) {
	cfg := s.cfg
	cfg.Ordered = !s.noOrder
	if url := os.Getenv(envURL); url != "" && !flags.Changed("url") {
		cfg.URL = url
	}
	switch s.onBadRow {
	case "stop", "skip":
		cfg.SkipBadRows = s.onBadRow == "skip"
	default:
		return cfg, fmt.Errorf("--on-bad-row %q: write stop or skip", s.onBadRow)
	}
	var err error
	cfg.Key, err = s.key()
	return cfg, err
}

// key: the flag goes before the file, and the file before the environment.
func (s *sending) key() (string, error) {
	switch {
	case s.cfg.Key != "" && s.keyFile != "":
		return "", errors.New("--key and --key-file exclude one another")
	case s.cfg.Key != "":
		return s.cfg.Key, nil
	case s.keyFile == "":
		return os.Getenv(envKey), nil
	}
	text, err := os.ReadFile(s.keyFile)
	if err != nil {
		return "", fmt.Errorf("cannot read the key (--key-file): %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), nil
}

// input is where a run's items come from, with what the progress needs.
type input struct {
	items iter.Seq2[measurement.Item, error]
	bytes func() int64 // read so far; nil: not a file
	size  int64        // of all of it; -1: not known
	empty func() int64 // values left out because their cell is empty
	again string       // how to go on after row n, with %d for it; empty: cannot be told
}

// run sends the input and reports. Once the sending has begun there is always
// a summary, whatever becomes of it.
func (s *sending) run(ctx context.Context, flags *pflag.FlagSet, std streams, in input) error {
	cfg, err := s.config(flags)
	if err != nil {
		return err
	}
	rejected, closeRejected, err := s.openRejected()
	if err != nil {
		return err
	}
	shown := newProgress(std.err, in, s.quiet)
	sender, err := send.New(cfg, rejected, shown.note)
	if err != nil {
		return errors.Join(err, closeRejected())
	}
	start := time.Now()
	stop := shown.follow(sender.Tally)
	err = sender.Send(ctx, in.items)
	stop()
	err = errors.Join(err, closeRejected())
	return s.report(ctx, std, newSummary(sender.Tally(), in, time.Since(start), err), err)
}

func (s *sending) report(ctx context.Context, std streams, sum summary, err error) error {
	if s.json {
		sum.printJSON(std.out)
	} else {
		sum.print(std.out, s.rejected)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted (%w); the summary says what was acknowledged", context.Cause(ctx))
	case err != nil:
		return err
	case sum.Rejected > 0 || sum.BadRows > 0:
		return errRejected
	}
	return nil
}

// openRejected makes the file for rejected items. It never writes over one
// with content: the items in it may stand nowhere else.
func (s *sending) openRejected() (io.Writer, func() error, error) {
	if s.rejected == "" {
		return nil, func() error { return nil }, nil
	}
	if info, err := os.Stat(s.rejected); err == nil && info.Size() > 0 {
		return nil, nil, fmt.Errorf("--rejected %s is there already: name another file, or remove it if its items are settled", s.rejected)
	}
	f, err := os.Create(s.rejected)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create the file of rejected items: %w", err)
	}
	return f, f.Close, nil
}
