package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/chaos/internal/load"
	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/schemas/contract"
)

type config struct {
	rig.Config               // an empty Dir means a new directory, kept only after a failure
	Duration   time.Duration // how long faults are injected
	Seed       uint64
	Weights    map[string]float64
	MinFaults  int  // minimum number of faults in all runs together; 0 = none
	Verbose    bool // print each fault too
}

// settleLimit bounds the time from the last fault to the last delivery.
const settleLimit = 3 * time.Minute

// result is the combined outcome of one or more runs.
type result struct {
	accepted   int // items
	stores     []*judge.Verdict
	unexpected []string // responses and exits that should not have happened
	counts     nemesis.Counts
	missed     string // the goal for the number of faults that was missed; empty = none
}

func (r *result) violations() int {
	n := len(r.unexpected)
	for _, v := range r.stores {
		n += v.Faults()
	}
	return n
}

// add adds another run's outcome, except for the number of accepted items.
func (r *result) add(o *result) {
	r.stores, r.unexpected = append(r.stores, o.stores...), append(r.unexpected, o.unexpected...)
	r.counts.Add(o.counts)
}

func (r *result) clean() bool { return r.violations() == 0 && r.missed == "" }

// run performs one run in cfg.Dir or, if that is empty, in a new directory, which it deletes unless
// the run returns an error or finds a violation.
func run(ctx context.Context, cfg config, out io.Writer) (found *result, err error) {
	temporary := cfg.Dir == ""
	if temporary {
		cfg.Dir, err = os.MkdirTemp("", "chaos-")
	} else {
		err = os.MkdirAll(cfg.Dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot create the run's directory: %w", err)
	}
	found, err = attack(ctx, cfg, out)
	if temporary && err == nil && found.clean() {
		return found, os.RemoveAll(cfg.Dir)
	}
	fmt.Fprintln(out, "logs and data are kept in", cfg.Dir)
	return found, err
}

// attack injects faults into a system under load, waits for all deliveries and judges the contents
// of the stores. If it returns an error, found is nil or must not be used.
func attack(ctx context.Context, cfg config, out io.Writer) (found *result, err error) {
	defer must.Return(&err)
	book := &ledger.Ledger{}
	loadConfig := load.Config{Clients: cfg.Clients, Detectors: 20, Items: 200, Pause: 30 * time.Millisecond, Seed: cfg.Seed}
	fmt.Fprintln(out, "starting; the first run downloads toxiproxy, ClickHouse (178 MB) and Apache Kafka (43 MB); see stores.log in", cfg.Dir)
	cfg.Detectors, cfg.LowDisk, cfg.Unexpected = load.Detectors(loadConfig), cfg.Seed%2 == 0, book.AddUnexpected
	r, err := rig.Start(ctx, cfg.Config)
	defer func() { err = errors.Join(err, r.Close()) }()
	must.Do(err)
	loadConfig.Endpoints, loadConfig.Balancer = r.Endpoints()
	if r.Disk == nil && cfg.Replicas == 1 {
		fmt.Fprintln(out, "mounts are not permitted: this run fills the journal but not the disk")
	}
	verbose := io.Discard
	if cfg.Verbose {
		verbose = out
	}
	log := must.Get(newFaultLog(cfg.Dir, verbose))
	defer func() { err = errors.Join(err, log.close()) }()
	hard, cancel := context.WithTimeout(ctx, cfg.Duration+settleLimit)
	defer cancel()
	soft, stop := context.WithTimeout(hard, cfg.Duration)
	defer stop()
	clients := load.New(loadConfig, book)
	layers, asked := observe(ctx, r, book), observeBatches(ctx, r, book)
	defer layers.stop()
	defer asked.stop()
	sent := send(soft, hard, clients, book)
	counts, err := nemesis.Run(soft, cfg.Seed, layers.recordOutages(targets(r, cfg)), log.add)
	stop()
	if err != nil {
		cancel()
	}
	supervise(r, sent) // all faults have been undone, so every batch still in flight receives a 207
	must.Do(errors.Join(err, ctx.Err()))
	must.Do(layers.settle(ctx, out))
	if err := r.Drain(ctx, settleLimit); err != nil {
		book.AddUnexpected("%v", err)
	}
	asked.stop()
	states := must.Get(asked.settle(ctx))
	if err := r.Terminate(); err != nil {
		book.AddUnexpected("%v", err)
	}
	found = must.Get(judgeAll(ctx, r, asked, states, counts, out))
	log.explain(out, found.stores)
	return found, nil
}

// send starts the clients in the background. Once soft is done, they finish their current batches;
// once hard is done, they give up. The returned channel is closed when all of them have stopped.
func send(soft, hard context.Context, clients load.Clients, book *ledger.Ledger) (sent chan struct{}) {
	sent = make(chan struct{})
	go func() {
		defer close(sent)
		if err := clients.Run(soft, hard); err != nil {
			book.AddUnexpected("%v", err)
		}
	}()
	return sent
}

// supervise acts as the service manager: until all batches are sent, it restarts any process that
// has exited.
func supervise(r *rig.Rig, sent <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-sent:
			return
		case <-tick.C:
			_ = r.Revive() // the next tick retries, and Drain reports errors
		}
	}
}

// judgeAll compares the contents of both stores with the ledger, and prints a report.
func judgeAll(
	ctx context.Context, r *rig.Rig, asked *batches, states map[string]contract.BatchStatus, counts nemesis.Counts, out io.Writer,
) (found *result, err error) {
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	must.Do(r.Archive.AwaitReplicated(ctx))
	records := must.Get(launch.ReadTopic(ctx, r.Broker.Addresses(), rig.Topic))
	accepted, unexpected, tally := asked.book.Read()
	var servers [][]judge.Arrival
	for _, n := range r.Archive.Nodes {
		servers = append(servers, must.Get(judge.ReadArchive(ctx, n.TCP, r.Archive.Table)))
	}
	topic := judge.ParseRecords(records)
	verdicts := judge.All(accepted, topic, servers)
	unexpected = append(unexpected, asked.report(states, accepted, servers[0], topic, counts.Of(daemon, wiped) > 0, out)...)
	found = &result{accepted: len(accepted), stores: verdicts, unexpected: unexpected, counts: counts}
	report(out, tally, found)
	return found, nil
}

func report(out io.Writer, t ledger.Tally, found *result) {
	fmt.Fprintf(out, "load: %d batches, %d items accepted, %d rejected as expected;"+
		" %d attempts without a 207, %d of them cancelled by the client; %d batches sent again after their 207\n",
		t.Batches, found.accepted, t.Rejected, t.Failed, t.GaveUp, t.Replays)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(found.counts)) {
		lines = append(lines, fmt.Sprintf("%s %d", name, found.counts[name]))
	}
	fmt.Fprintln(out, "faults:", strings.Join(lines, ", "))
	for _, v := range found.stores {
		fmt.Fprintln(out, v)
		for _, example := range v.Examples {
			fmt.Fprintln(out, "  ", example)
		}
	}
	const shown = 10
	for i, w := range found.unexpected {
		if i == shown {
			fmt.Fprintf(out, "   … and %d more\n", len(found.unexpected)-shown)
			break
		}
		fmt.Fprintln(out, "   unexpected:", w)
	}
}

// summary returns the last lines of the output: the unexpected responses and exits, the faults, the
// kills of each target and, on the last line, the totals.
func (r *result) summary(seed uint64) string {
	var all judge.Verdict
	for _, v := range r.stores {
		all.Missing += v.Missing
		all.Duplicated += v.Duplicated
		all.Reordered += v.Reordered
		all.Altered += v.Altered
	}
	var kinds []string
	kills := 0
	for _, target := range []string{daemon, archive, zookeeper, broker, balancer, forecast} {
		for _, how := range []string{kill9, sigterm, stopped} {
			if n := r.counts.Of(target, how); n > 0 {
				kinds, kills = append(kinds, fmt.Sprintf("%s %s %d", target, how, n)), kills+n
			}
		}
	}
	volumes := ""
	if n := r.counts.Of(daemon, wiped) + r.counts.Of(archive, wiped) + r.counts.Of(broker, wiped); n > 0 {
		volumes = fmt.Sprintf(" volumes %d", n)
	}
	text := fmt.Sprintf("chaos: faults %d\nchaos: kills: %s\nchaos: missing %d duplicated %d reordered %d altered %d kills %d%s seed %d",
		r.counts.Total(), strings.Join(kinds, ", "), all.Missing, all.Duplicated, all.Reordered, all.Altered, kills, volumes, seed)
	if n := len(r.unexpected); n > 0 {
		text = fmt.Sprintf("chaos: unexpected responses or exits %d\n%s", n, text)
	}
	if r.missed != "" {
		text = fmt.Sprintf("chaos: MISSED: %s\n%s", r.missed, text)
	}
	return text
}
