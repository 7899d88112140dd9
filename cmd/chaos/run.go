package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/chaos/internal/judge"
	"trafficd/cmd/chaos/internal/ledger"
	"trafficd/cmd/chaos/internal/load"
	"trafficd/cmd/chaos/internal/nemesis"
	"trafficd/cmd/chaos/internal/rig"
	"trafficd/cmd/devstores/stores"
)

// config is one run.
type config struct {
	Broker   string
	Brokers  int
	Duration time.Duration // of the harm
	Seed     uint64
	Weights  map[string]float64
	Clients  int
	Dir      string // empty: a new one, kept only if something was found
	Verbose  bool   // says each fault
}

// settleLimit bounds the time from the end of the harm to the last delivery.
const settleLimit = 3 * time.Minute

// result is what a run has found.
type result struct {
	accepted int // items
	stores   []*judge.Verdict
	wrong    []string // answers and ends that must not be
	counts   nemesis.Counts
}

func (r *result) faults() int {
	n := len(r.wrong)
	for _, v := range r.stores {
		n += v.Faults()
	}
	return n
}

// run makes one run in its folder.
func run(ctx context.Context, cfg config, out io.Writer) (found *result, err error) {
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("cannot make the run's folder: %w", err)
		}
		return attack(ctx, cfg, out)
	}
	if cfg.Dir, err = os.MkdirTemp("", "chaos-"); err != nil {
		return nil, fmt.Errorf("cannot make the run's folder: %w", err)
	}
	found, err = attack(ctx, cfg, out)
	if err == nil && found.faults() == 0 {
		return found, os.RemoveAll(cfg.Dir)
	}
	fmt.Fprintln(out, "logs and data are kept in", cfg.Dir)
	return found, err
}

// attack harms a system under load, lets it come to rest and judges it. An
// error means that there is no verdict.
func attack(ctx context.Context, cfg config, out io.Writer) (found *result, err error) {
	book := &ledger.Ledger{}
	size := load.Config{Clients: cfg.Clients, Detectors: 20, Items: 200, Pause: 30 * time.Millisecond, Seed: cfg.Seed}
	registry := filepath.Join(cfg.Dir, "detectors.csv")
	if err := load.WriteRegistry(registry, size); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "starting; the first time, what is missing is fetched: toxiproxy, ClickHouse (178 MB), Apache Kafka (43 MB); see stores.log in", cfg.Dir)
	r, err := rig.Start(ctx, rig.Config{Dir: cfg.Dir, Registry: registry, Broker: cfg.Broker, Brokers: cfg.Brokers, LowDisk: cfg.Seed%2 == 0, Wrong: book.Wrong})
	defer func() { err = errors.Join(err, r.Close()) }()
	if err != nil {
		return nil, err
	}
	if r.Disk == nil {
		fmt.Fprintln(out, "mounts are not permitted: no full disk in this run, only a full journal")
	}
	counts, err := harm(ctx, cfg, r, size, book, out)
	if err != nil {
		return nil, err
	}
	if err := r.Drain(ctx, settleLimit); err != nil {
		book.Wrong("%v", err)
	}
	return judgeAll(ctx, r, book, counts, out)
}

// harm has clients send while the nemesis is at work, and returns when nothing
// is harmed any more and each batch has its 207.
func harm(ctx context.Context, cfg config, r *rig.Rig, size load.Config, book *ledger.Ledger, out io.Writer) (nemesis.Counts, error) {
	begin := time.Now()
	log := func(format string, args ...any) {
		if cfg.Verbose {
			fmt.Fprintf(out, "%7.3f %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
		}
	}
	hard, cancel := context.WithTimeout(ctx, cfg.Duration+settleLimit)
	defer cancel()
	soft, stop := context.WithTimeout(hard, cfg.Duration)
	defer stop()
	sent := make(chan struct{})
	go func() { // ends with hard at the latest
		defer close(sent)
		if err := load.Run(soft, hard, size, r.Endpoint(), rig.APIKey, book); err != nil {
			book.Wrong("%v", err)
		}
	}()
	counts, err := nemesis.Run(soft, cfg.Seed, targets(r, cfg), log)
	stop()
	if err != nil {
		cancel()
	}
	keepUp(ctx, r, sent)
	return counts, errors.Join(err, ctx.Err())
}

// keepUp is the service manager: until all is sent it starts again what ends by
// itself, or has ended so while the harm lasted and nobody looked.
func keepUp(ctx context.Context, r *rig.Rig, sent <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-sent:
			return
		case <-tick.C:
			_ = errors.Join(r.Daemon.Start(), r.Archive.Revive(ctx)) // the next tick tries again, and Drain tells
		}
	}
}

// judgeAll reads both stores and compares.
func judgeAll(ctx context.Context, r *rig.Rig, book *ledger.Ledger, counts nemesis.Counts, out io.Writer) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := r.Archive.Unmerged(ctx); err != nil {
		return nil, err
	}
	rows, err := judge.ReadArchive(ctx, r.Archive.Do, rig.Table)
	if err != nil {
		return nil, err
	}
	records, err := stores.ReadTopic(ctx, r.Broker.Addresses(), rig.Topic)
	if err != nil {
		return nil, err
	}
	accepted, wrong, tally := book.Read()
	arrived := judge.ParseRecords(records)
	forward := judge.Forward(accepted, arrived)
	judge.Agree(forward, rows, arrived)
	found := &result{accepted: len(accepted), stores: []*judge.Verdict{judge.Archive(accepted, rows), forward}, wrong: wrong, counts: counts}
	report(out, tally, found)
	return found, nil
}
