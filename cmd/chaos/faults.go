package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/chaos/internal/nemesis"
	"trafficd/cmd/chaos/internal/rig"
	"trafficd/cmd/internal/launch"
)

// The targets' names, also in --kills.
const (
	daemon  = "trafficd"
	archive = "clickhouse"
	broker  = "kafka"
	network = "network"
	disk    = "disk"
	clock   = "clock"
)

// The names of faults that count as kills begin with one of these.
const (
	kill9   = "kill -9"
	sigterm = "SIGTERM"
	stopped = "stop"
)

// targets returns everything that is hit. A weight of 1 is a fault every four seconds.
func targets(r *rig.Rig, cfg config) []nemesis.Target {
	gap := func(name string) time.Duration {
		if cfg.Weights[name] <= 0 {
			return 0
		}
		return time.Duration(float64(4*time.Second) / cfg.Weights[name])
	}
	list := []nemesis.Target{
		{Name: daemon, Gap: gap(daemon), Faults: daemonFaults(r)},
		{Name: archive, Gap: gap(archive), Faults: archiveFaults(r)},
		{Name: broker, Gap: gap(broker), Faults: brokerFaults(r, cfg.Broker, cfg.Brokers)},
		{Name: network + " of clients", Gap: gap(network), Faults: wireFaults([]*rig.Wire{r.ClientWire})},
		{Name: network + " of clickhouse", Gap: gap(network), Faults: wireFaults([]*rig.Wire{r.ArchiveWire})},
		{Name: network + " of kafka", Gap: gap(network), Faults: wireFaults(r.ForwardWires)},
		{Name: disk, Gap: gap(disk), Faults: diskFaults(r)},
		{Name: clock, Gap: gap(clock), Faults: []nemesis.Fault{{Name: "jump", Weight: 1, Hit: jump(r)}}},
	}
	return list
}

func daemonFaults(r *rig.Rig) []nemesis.Fault {
	d := r.Daemon
	down := func(end func()) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, rng *rand.Rand) error {
			away := nemesis.Between(rng, 0, 100*time.Millisecond)
			end()
			nemesis.Sleep(ctx, away)
			return d.Start()
		}
	}
	return []nemesis.Fault{
		{Name: kill9, Weight: 12, Hit: down(d.Kill)},
		{Name: sigterm, Weight: 4, Hit: down(d.Terminate)},
		{Name: "pause", Weight: 1, Hit: func(ctx context.Context, rng *rand.Rand) error {
			d.Pause()
			nemesis.Sleep(ctx, nemesis.Between(rng, 500*time.Millisecond, 4*time.Second))
			d.Resume()
			return nil
		}},
	}
}

func archiveFaults(r *rig.Rig) []nemesis.Fault {
	a := r.Archive
	refuse := func(how string) func(context.Context, *rand.Rand) error {
		return temporary(a, 500*time.Millisecond, 2*time.Second,
			func(ctx context.Context) error { return a.Refuse(ctx, how) }, func() error { return a.Allow(how) })
	}
	faults := []nemesis.Fault{
		{Name: kill9, Weight: 8, Hit: func(ctx context.Context, rng *rand.Rand) error {
			away := nemesis.Between(rng, 0, 500*time.Millisecond)
			if err := a.Kill(); err != nil {
				return err
			}
			nemesis.Sleep(ctx, away)
			return a.Restart()
		}},
		{Name: "pause", Weight: 2, Hit: temporary(a, time.Second, 5*time.Second, func(context.Context) error { return a.Pause() }, a.Resume)},
		{Name: "table away", Weight: 1, Hit: temporary(a, 200*time.Millisecond, time.Second, a.Hide, a.Show)},
	}
	for _, how := range rig.Refusals() {
		faults = append(faults, nemesis.Fault{Name: how, Weight: 1, Hit: refuse(how)})
	}
	return faults
}

// temporary is a fault that begins, lasts and ends. A server that has exited is restarted before it begins, and again if
// that prevents the end.
func temporary(a *rig.Archive, shortest, longest time.Duration, begin func(context.Context) error, end func() error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		lasts := nemesis.Between(rng, shortest, longest)
		if err := a.Revive(ctx); err != nil {
			return err
		}
		if begin(ctx) != nil && ctx.Err() == nil {
			return nil // it has just exited: the next fault restarts it
		}
		nemesis.Sleep(ctx, lasts)
		err := end()
		for try := 0; err != nil && try < 3; try++ {
			if err = a.Revive(context.WithoutCancel(ctx)); err == nil {
				err = end()
			}
		}
		return err
	}
}

func brokerFaults(r *rig.Rig, kind string, brokers int) []nemesis.Fault {
	b := r.Broker
	end := kill9
	if kind == launch.Kfake {
		end = stopped
	}
	down := func(end func(*rand.Rand) error, longest time.Duration) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, rng *rand.Rand) error {
			away := nemesis.Between(rng, 0, longest)
			if err := end(rng); err != nil {
				return err
			}
			nemesis.Sleep(ctx, away)
			return b.Restart()
		}
	}
	faults := []nemesis.Fault{
		{Name: end, Weight: 8, Hit: down(func(*rand.Rand) error { return b.End() }, 500*time.Millisecond)},
		{Name: "pause", Weight: 2, Hit: func(ctx context.Context, rng *rand.Rand) error {
			lasts := nemesis.Between(rng, time.Second, 5*time.Second)
			if err := b.Freeze(rng); err != nil {
				return err
			}
			nemesis.Sleep(ctx, lasts)
			return b.Thaw()
		}},
	}
	if m, ok := b.(rig.Members); ok && brokers > 1 {
		faults = append(faults, someDown(m, brokers, down)...)
	}
	if b, ok := b.(rig.Failer); ok {
		faults = append(faults, nemesis.Fault{Name: "errors", Weight: 10, Hit: func(_ context.Context, rng *rand.Rand) error {
			b.FailProduce(rng)
			return nil
		}})
	}
	return faults
}

// someDown ends one of several brokers for longer than its session, so that others lead its partitions, and all but one, so
// that there are too few replicas.
func someDown(m rig.Members, brokers int, down func(func(*rand.Rand) error, time.Duration) func(context.Context, *rand.Rand) error) []nemesis.Fault {
	some := func(n int) func(*rand.Rand) error {
		return func(rng *rand.Rand) error { return m.EndSome(rng, n) }
	}
	return []nemesis.Fault{
		{Name: kill9 + " of one", Weight: 12, Hit: down(some(1), 8*time.Second)},
		{Name: kill9 + " of all but one", Weight: 4, Hit: down(some(brokers-1), 4*time.Second)},
	}
}

// diskFaults hit the journal. Some calls fail, or all: then the journal can neither write nor roll back.
func diskFaults(r *rig.Rig) []nemesis.Fault {
	fail := func(set func(oneIn int) error) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, rng *rand.Rand) error {
			lasts, oneIn := nemesis.Between(rng, 10*time.Millisecond, 2*time.Second), 1+rng.IntN(8)
			if err := set(oneIn); err != nil {
				return err
			}
			nemesis.Sleep(ctx, lasts)
			return set(0)
		}
	}
	faults := []nemesis.Fault{
		{Name: "writes fail", Weight: 2, Hit: fail(r.Faults.FailWrites)},
		{Name: "reads fail", Weight: 1, Hit: fail(r.Faults.FailReads)},
	}
	if r.Disk != nil {
		faults = append(faults, nemesis.Fault{Name: "full", Weight: 3, Hit: fullDisk(r)})
	}
	return faults
}

// jump changes the daemon's clock temporarily. Two readings never differ by more than the hour for which results are stored.
func jump(r *rig.Rig) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		lasts, by := nemesis.Between(rng, 10*time.Millisecond, 4*time.Second), nemesis.Between(rng, -20*time.Minute, 20*time.Minute)
		if err := r.Faults.Skew(by); err != nil {
			return err
		}
		nemesis.Sleep(ctx, lasts)
		return r.Faults.Skew(0)
	}
}

func fullDisk(r *rig.Rig) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		lasts := nemesis.Between(rng, 100*time.Millisecond, 2*time.Second)
		if err := r.Disk.Fill(); err != nil {
			return err
		}
		nemesis.Sleep(ctx, lasts)
		return r.Disk.Free()
	}
}

// wireFaults disturb one of the wires.
func wireFaults(wires []*rig.Wire) []nemesis.Fault {
	// disturb draws a wire, a time and the toxic's attributes.
	disturb := func(kind, direction string, longest time.Duration, attributes func(rng *rand.Rand) map[string]any) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, rng *rand.Rand) error {
			w, lasts, with := wires[rng.IntN(len(wires))], nemesis.Between(rng, 100*time.Millisecond, longest), attributes(rng)
			undo := context.WithoutCancel(ctx)
			if err := w.Disturb(undo, kind, direction, with); err != nil {
				return err
			}
			nemesis.Sleep(ctx, lasts)
			return w.Heal(undo)
		}
	}
	cut := func(most float64) func(*rand.Rand) map[string]any {
		return func(rng *rand.Rand) map[string]any {
			return map[string]any{"bytes": int64(math.Exp(rng.Float64() * math.Log(most)))}
		}
	}
	never := func(*rand.Rand) map[string]any { return map[string]any{"timeout": 0} }
	return []nemesis.Fault{
		{Name: "cut", Weight: 2, Hit: func(ctx context.Context, rng *rand.Rand) error {
			w, lasts := wires[rng.IntN(len(wires))], nemesis.Between(rng, 0, 300*time.Millisecond)
			undo := context.WithoutCancel(ctx)
			w.Cut()
			nemesis.Sleep(ctx, lasts)
			return w.Join(undo)
		}},
		{Name: "requests cut after some bytes", Weight: 3, Hit: disturb("limit_data", rig.Requests, time.Second, cut(200_000))},
		{Name: "responses cut after some bytes", Weight: 3, Hit: disturb("limit_data", rig.Responses, time.Second, cut(5_000))},
		{Name: "requests into a black hole", Weight: 1, Hit: disturb("timeout", rig.Requests, 3*time.Second, never)},
		{Name: "responses into a black hole", Weight: 2, Hit: disturb("timeout", rig.Responses, 3*time.Second, never)},
		{Name: "reset", Weight: 1, Hit: disturb("reset_peer", rig.Responses, time.Second, func(rng *rand.Rand) map[string]any {
			return map[string]any{"timeout": rng.IntN(100)}
		})},
		{Name: "delay", Weight: 1, Hit: disturb("latency", rig.Responses, 2*time.Second, func(rng *rand.Rand) map[string]any {
			return map[string]any{"latency": 20 + rng.IntN(1000), "jitter": rng.IntN(200)}
		})},
		{Name: "slow", Weight: 1, Hit: disturb("bandwidth", rig.Requests, 2*time.Second, func(rng *rand.Rand) map[string]any {
			return map[string]any{"rate": 10 + rng.IntN(200)} // kB/s
		})},
	}
}

// parseWeights returns the defaults overridden by the given weights.
func parseWeights(given map[string]string) (map[string]float64, error) {
	weights := map[string]float64{daemon: 6, archive: 1.5, broker: 1.5, network: 1.5, disk: 1.5, clock: 1}
	for name, text := range given {
		var w float64
		if _, known := weights[name]; !known {
			return nil, fmt.Errorf("--kills: unknown target %q: must be one of %s", name, strings.Join(slices.Sorted(maps.Keys(weights)), ", "))
		}
		if _, err := fmt.Sscan(text, &w); err != nil || w < 0 || w > 100 {
			return nil, fmt.Errorf("--kills: weight of %s is %q: must be from 0 to 100", name, text)
		}
		weights[name] = w
	}
	return weights, nil
}
