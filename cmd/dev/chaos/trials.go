package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"trafficd/cmd/dev/chaos/internal/ledger"
	"trafficd/cmd/dev/chaos/internal/load"
	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/must"
)

// trials runs the trials one at a time, under load. Each injects only the faults that it needs.
type trials struct {
	config
	rig     *rig.Rig
	clients load.Clients
	book    *ledger.Ledger
	counts  nemesis.Counts // of all faults so far, including those of the trials
	log     func(format string, args ...any)
	goals   []goal
}

type goal struct {
	met  bool
	text string // the line that reports it
}

func (t *trials) goal(met bool, format string, args ...any) {
	t.goals = append(t.goals, goal{met, fmt.Sprintf(format, args...)})
}

const trialLimit = 6 * time.Minute

func (t *trials) run(ctx context.Context) error {
	for _, trial := range []struct {
		wanted bool
		do     func(ctx context.Context) error
	}{{t.Repeated > 0, t.repeatedKeys}, {t.Rollouts+t.Kills > 0, t.asShipped}, {t.Rollouts > 0, t.rollouts}, {t.Kills > 0, t.takeovers}} {
		if !trial.wanted {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, trialLimit)
		err := trial.do(limited)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// underLoad calls do while the clients send batches, and returns what they counted meanwhile.
func (t *trials) underLoad(ctx context.Context, mode load.Mode, do func(ctx context.Context) error) (ledger.Tally, error) {
	before := t.book.Tally()
	soft, stop := context.WithCancel(ctx)
	sent := send(soft, ctx, t.clients, mode, t.book)
	err := do(soft)
	stop()
	supervise(t.rig, sent)
	after := t.book.Tally()
	return ledger.Tally{
		Batches: after.Batches - before.Batches, Failed: after.Failed - before.Failed,
		Requests: after.Requests - before.Requests, Responses: after.Responses - before.Responses,
	}, err
}

// repeatedKeys sends each batch to all replicas several times at once while replicas are killed. If
// the responses to a batch differ, they are recorded as unexpected. The judge finds measurements
// that were stored twice.
func (t *trials) repeatedKeys(ctx context.Context) error {
	begin, kills := t.book.Tally().Requests, 0
	tally, err := t.underLoad(ctx, load.Repeated, func(ctx context.Context) error {
		killing, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			for t.book.Tally().Requests < begin+t.Repeated && launch.Sleep(killing, 50*ms) {
			}
			stop()
		}()
		var targets []nemesis.Target
		for n, d := range t.rig.Replicas {
			kill := nemesis.Fault{Name: kill9, Weight: 1, Hit: nemesis.During(0, 500*ms, always(d.Kill), d.Start)}
			targets = append(targets, nemesis.Target{Name: daemon, Number: n, Gap: 6 * time.Second, Faults: []nemesis.Fault{kill}})
		}
		counts, err := nemesis.Run(killing, t.Seed, targets, t.log)
		kills = counts.Of(daemon, kill9)
		t.counts.Add(counts)
		return err
	})
	t.goal(tally.Requests >= t.Repeated, "repeated keys: %d requests with %d keys to all replicas at once, goal %d; %d with a 207, %d kills;"+
		" responses that differ count as unexpected, and measurements that are stored twice as duplicated",
		tally.Requests, tally.Batches, t.Repeated, tally.Responses, kills)
	return err
}

// asShipped restarts the replicas with the shipped session timeout and linger, and with a drain
// grace of 2 s instead of the shipped 5 s. In runs with faults, the rig uses shorter times, so that
// more faults fit into a run.
func (t *trials) asShipped(ctx context.Context) error {
	for _, d := range t.rig.Replicas {
		d.Set("api.drain_grace=2s", "journal.log.session_timeout=6s", "clickhouse.delivery.linger=1s")
	}
	return t.restartAll(ctx)
}

// restartAll restarts the replicas in turn. It waits until each is ready again and HAProxy has
// noticed.
func (t *trials) restartAll(ctx context.Context) (err error) {
	defer must.Return(&err)
	const noticed = 2 * time.Second // rise 2 × inter 500 ms
	for _, d := range t.rig.Replicas {
		must.Do(errors.Join(d.Terminate(), d.Start()))
		must.Do(d.AwaitReady(ctx, time.Minute))
		launch.Sleep(ctx, noticed)
	}
	return nil
}

// rollouts counts the requests through HAProxy that fail during rolling restarts.
func (t *trials) rollouts(ctx context.Context) error {
	tally, err := t.underLoad(ctx, load.Balanced, func(ctx context.Context) (err error) {
		for n := 0; n < t.Rollouts && err == nil; n++ {
			err = t.restartAll(ctx)
		}
		return err
	})
	t.goal(tally.Failed == 0, "rolling restart: %d restarts, %d requests through HAProxy, %d failed, goal 0",
		t.Rollouts*len(t.rig.Replicas), tally.Requests, tally.Failed)
	return err
}

// takeovers kills replicas one at a time. For each partition that the killed replica delivered to a
// store, it measures the time from the kill until the store has all items that were accepted before
// the kill and one batch that was accepted after it.
func (t *trials) takeovers(ctx context.Context) error {
	var times []time.Duration
	busyBefore, idleBefore := cpuTime()
	_, err := t.underLoad(ctx, load.Balanced, func(ctx context.Context) (err error) {
		defer must.Return(&err)
		r := rand.New(rand.NewPCG(t.Seed, 0))
		for range t.Kills {
			must.Do(t.rig.AwaitDelivered(ctx, time.Minute))
			var owned []rig.Source
			var d *rig.Daemon
			for len(owned) == 0 { // clients may use fewer partitions than there are replicas
				d = t.rig.Replicas[r.IntN(len(t.rig.Replicas))]
				owned = must.Get(t.rig.Owned(ctx, d))
			}
			t.counts.Add(nemesis.Counts{daemon + " " + kill9: 1})
			killed := time.Now()
			must.Do(errors.Join(d.Kill(), t.rig.AwaitAdvance(ctx, time.Minute, owned, func(partition rig.Source) {
				times = append(times, time.Since(killed))
				t.log("takeover of %v: %.1f s", partition, time.Since(killed).Seconds())
			}), d.Start()))
			must.Do(d.AwaitReady(ctx, time.Minute))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot measure takeovers: %w", err)
	}
	busy, idle := cpuTime()
	busy, idle = busy-busyBefore, idle-idleBefore
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(math.Ceil(q*float64(len(times))))-1].Seconds() }
	t.goal(at(0.99) <= 10, "takeovers: %d partitions after %d kills, p50 %.1f s, p99 %.1f s (goal 10 s), max %.1f s; CPU load %.0f%%",
		len(times), t.Kills, at(0.5), at(0.99), at(1), 100*busy/max(1, busy+idle))
	return nil
}

// bench runs .ci/bench journal, which measures what a journal in Kafka costs.
func bench(ctx context.Context) (goals []goal, err error) {
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(must.Get(launch.ModuleRoot()), ".ci", "bench"), "journal")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.Do(err, "cannot run bench journal")
	figure := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "bench:" {
			figure[strings.TrimPrefix(words[1], "journal_")] = must.Get(strconv.ParseFloat(words[2], 64))
		}
	}
	at := func(name string) float64 {
		if v, ok := figure[name]; ok {
			return v
		}
		return math.NaN() // is within no limit
	}
	within := func(what string, value, limit float64) {
		goals = append(goals, goal{value <= limit, fmt.Sprintf("%s: %.2f, goal %v", what, value, limit)})
	}
	within("CPU per batch with a journal in Kafka, relative to a local journal", at("kafka_cpu_over_local"), 1.3)
	within("latency of a 207 with a journal in Kafka minus that with a local journal, p50 in ms", at("kafka_p50_ms")-at("local_p50_ms"), 10)
	within("latency of a 207 with a journal in Kafka minus that with a local journal, p99 in ms", at("kafka_p99_ms")-at("local_p99_ms"), 40)
	if before := at("before_cpu_over_local"); !math.IsNaN(before) {
		within("CPU per batch with a local journal, relative to the commit in BEFORE", 1/before, 1.05)
	}
	return goals, nil
}

// cpuTime returns the busy and idle time of all CPUs since boot, in seconds. On systems other than
// Linux, it returns zeros.
func cpuTime() (busy, idle float64) {
	proc, _ := procfs.NewDefaultFS()
	stat, _ := proc.Stat()
	t := stat.CPUTotal
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal, t.Idle + t.Iowait
}
