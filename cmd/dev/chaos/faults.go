package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
)

// The names of the targets, also in --kills.
const (
	daemon    = "trafficd"
	archive   = "clickhouse"
	zookeeper = "zookeeper"
	broker    = "kafka"
	balancer  = "haproxy"
	network   = "network"
	disk      = "disk"
	clock     = "clock"
	rolling   = "rollout"
	forecast  = "forecaster"
)

// Prefixes of the names of faults that count as kills.
const (
	kill9   = "kill -9"
	sigterm = "SIGTERM"
	stopped = "stop"
	wiped   = kill9 + " with its volume"
)

const ms = time.Millisecond

// targets returns all targets. A weight of 1 means a fault every four seconds on average, spread
// over the replicas or nodes that share the name.
func targets(r *rig.Rig, cfg config) []nemesis.Target {
	several := len(r.Replicas) > 1
	target := func(name, suffix string, faults ...nemesis.Fault) nemesis.Target {
		t := nemesis.Target{Name: name + suffix, Faults: faults}
		if w := cfg.Weights[name]; w > 0 {
			t.Gap = time.Duration(float64(4*time.Second) / w)
		}
		return t
	}
	all := []nemesis.Target{
		target(broker, "", brokerFaults(r.Broker, cfg.Brokers)...),
		target(network, " of clients", wireFaults(r.ClientWires...)...),
		target(network, " of clickhouse", wireFaults(r.ArchiveWires...)...),
		target(network, " of kafka", wireFaults(r.BrokerWires...)...),
	}
	for i, n := range r.Archive.Nodes {
		node := target(archive, "", nodeFaults(n, cfg.Nodes > 1)...)
		node.Number, node.Gap = i, node.Gap*time.Duration(cfg.Nodes)
		all = append(all, node)
	}
	if z := r.Archive.ZooKeeper; z != nil {
		all = append(all, target(zookeeper, "", processFaults(z.Kill, z.Restart, z.Pause, z.Resume)...))
	}
	if e := r.Edge; e != nil {
		all = append(all, target(balancer, "", processFaults(e.Kill, e.Start, e.Pause, e.Resume)...),
			target(rolling, "", rollout(r.Replicas)))
	}
	if r.Network != nil {
		all = append(all, target(network, " of brokers", linkFaults(r.Network, 0, cfg.Brokers)...),
			target(network, " of clickhouse nodes", linkFaults(r.Network, cfg.Brokers, cfg.Nodes+1)...))
	}
	if f := r.Forecaster; f != nil {
		all = append(all, target(forecast, "", daemonFaults(f, false)...))
	}
	for n, d := range r.Replicas {
		own := []nemesis.Target{
			target(daemon, "", daemonFaults(d, several)...),
			// Jumps of up to 20 minutes keep any two clock readings within the hour that results are stored.
			target(clock, "", nemesis.Fault{Name: "jump", Weight: 1, Hit: nemesis.During(10*ms, 4*time.Second, func(rng *rand.Rand) error {
				return d.JumpClock(time.Duration(rng.IntN(2400)-1200) * time.Second)
			}, func() error { return d.Faults.Skew(0) })}),
		}
		if !several {
			own = append(own, target(disk, "", diskFaults(r, d)...))
		}
		for i := range own {
			own[i].Number, own[i].Gap = n, own[i].Gap*time.Duration(cfg.Replicas)
		}
		all = append(all, own...)
	}
	return all
}

// always adapts a function without parameters to nemesis.During.
func always(begin func() error) func(*rand.Rand) error {
	return func(*rand.Rand) error { return begin() }
}

// processFaults returns faults that kill and pause a process.
func processFaults(kill, start, pause, resume func() error) []nemesis.Fault {
	return []nemesis.Fault{
		{Name: kill9, Weight: 2, Hit: nemesis.During(0, 4*time.Second, always(kill), start)},
		{Name: "pause", Weight: 1, Hit: nemesis.During(500*ms, 6*time.Second, always(pause), resume)},
	}
}

// rollout restarts all replicas in turn, waiting up to 10 s for each to become ready.
func rollout(replicas []*rig.Daemon) nemesis.Fault {
	restart := func(d *rig.Daemon) error {
		d.Busy.Lock()
		defer d.Busy.Unlock()
		return errors.Join(d.Terminate(), d.Start())
	}
	return nemesis.Fault{Name: "of all replicas", Weight: 1, Hit: func(ctx context.Context, _ *rand.Rand) error {
		for _, d := range replicas {
			if err := restart(d); err != nil {
				return err
			}
			ready := func() error {
				if status, body := d.Readyz(ctx); status != http.StatusOK {
					return fmt.Errorf("status %d: %s", status, body)
				}
				return nil
			}
			_ = launch.Eventually(ctx, 10*time.Second, ready) // it may have been killed again
		}
		return nil
	}}
}

// linkFaults returns faults that cut the link between two of the given hosts, in one direction or
// both, or the links between one of them and all others.
func linkFaults(n *rig.Network, first, hosts int) []nemesis.Fault {
	type link struct{ from, to int }
	cut := func(name string, weight int, links func(a, b int) []link) nemesis.Fault {
		var down []link
		return nemesis.Fault{Name: name, Weight: weight, Hit: nemesis.During(500*ms, 8*time.Second, func(r *rand.Rand) (err error) {
			pair := r.Perm(hosts)
			down = links(first+pair[0], first+pair[1])
			for _, l := range down {
				err = errors.Join(err, n.Cut(l.from, l.to))
			}
			return err
		}, func() (err error) {
			for _, l := range down {
				err = errors.Join(err, n.Join(l.from, l.to))
			}
			return err
		})}
	}
	return []nemesis.Fault{
		cut("link cut one way", 2, func(a, b int) []link { return []link{{a, b}} }),
		cut("link cut both ways", 2, func(a, b int) []link { return []link{{a, b}, {b, a}} }),
		cut("host cut off", 2, func(a, _ int) (all []link) {
			for b := first; b < first+hosts; b++ {
				if b != a {
					all = append(all, link{a, b}, link{b, a})
				}
			}
			return all
		}),
	}
}

func daemonFaults(d *rig.Daemon, several bool) []nemesis.Fault {
	faults := []nemesis.Fault{
		{Name: kill9, Weight: 12, Hit: nemesis.During(0, 100*ms, always(d.Kill), d.Start)},
		{Name: sigterm, Weight: 4, Hit: nemesis.During(0, 100*ms, always(d.Terminate), d.Start)},
		{Name: "pause", Weight: 1, Hit: nemesis.During(500*ms, 4*time.Second, always(d.Pause), d.Resume)},
	}
	if several {
		wipe := func() error { return errors.Join(d.Kill(), d.Wipe()) }
		faults = append(faults, nemesis.Fault{Name: wiped, Weight: 8, Hit: nemesis.During(0, 2*rig.SessionTimeout, always(wipe), d.Start)},
			nemesis.Fault{
				Name: "pause over its session", Weight: 6,
				Hit: nemesis.During(rig.SessionTimeout, 4*rig.SessionTimeout, always(d.Pause), d.Resume),
			})
	}
	for i, f := range faults {
		faults[i].Hit = func(ctx context.Context, r *rand.Rand) error {
			d.Busy.Lock()
			defer d.Busy.Unlock()
			return f.Hit(ctx, r)
		}
	}
	return faults
}

func nodeFaults(n *rig.Node, several bool) []nemesis.Fault {
	// A server that has exited is restarted before the fault begins. If the fault cannot be undone,
	// the server is restarted again, and undoing is retried.
	during := func(shortest, longest time.Duration, begin, end func() error) nemesis.Hit {
		begun := false
		return nemesis.During(shortest, longest, func(*rand.Rand) error {
			err := n.Revive()
			begun = err == nil && begin() == nil // if begin fails, the server has just exited: the next fault restarts it
			return err
		}, func() (err error) {
			for try := 0; begun && try < 4; try++ {
				if err = end(); err == nil {
					return nil
				}
				if reviveErr := n.Revive(); reviveErr != nil {
					err = reviveErr
				}
			}
			return err
		})
	}
	faults := []nemesis.Fault{
		{Name: kill9, Weight: 8, Hit: nemesis.During(0, 500*ms, always(n.Kill), n.Restart)},
		{Name: "pause", Weight: 2, Hit: during(time.Second, 5*time.Second, n.Pause, n.Resume)},
	}
	for _, how := range n.Refusals() {
		refuse, allow := func() error { return n.Refuse(how) }, func() error { return n.Allow(how) }
		faults = append(faults, nemesis.Fault{Name: how, Weight: 1, Hit: during(500*ms, 2*time.Second, refuse, allow)})
	}
	if several {
		faults = append(faults, nemesis.Fault{Name: wiped, Weight: 5, Hit: func(ctx context.Context, r *rand.Rand) error {
			wipe := func() error { return n.Wipe(ctx) }
			replace := func() error { return n.Replace(context.WithoutCancel(ctx)) }
			return nemesis.During(0, 6*time.Second, always(wipe), replace)(ctx, r)
		}})
	}
	return faults
}

func brokerFaults(b rig.Broker, brokers int) []nemesis.Fault {
	down := func(name string, weight, n int, longest time.Duration) nemesis.Fault {
		end := func(rng *rand.Rand) error { return b.Stop(rng, n) }
		return nemesis.Fault{Name: name, Weight: weight, Hit: nemesis.During(0, longest, end, b.Restart)}
	}
	faults := []nemesis.Fault{{Name: "pause", Weight: 2, Hit: nemesis.During(time.Second, 5*time.Second, b.Freeze, b.Thaw)}}
	switch kind := b.(type) {
	case *rig.Kfake:
		faults = append(faults, down(stopped, 8, brokers, 500*ms),
			nemesis.Fault{Name: "errors", Weight: 10, Hit: nemesis.During(0, 0, kind.FailProduce, func() error { return nil })})
	case *rig.Apache:
		faults = append(faults, down(kill9, 8, brokers, 500*ms))
		if brokers == 1 {
			break
		}
		// Either one broker is down for longer than its session, so that the others take over its
		// partitions, or all but one are down, so that there are too few in-sync replicas.
		faults = append(faults, down(kill9+" of one", 12, 1, 8*time.Second), down(kill9+" of all but one", 4, brokers-1, 4*time.Second),
			nemesis.Fault{Name: "leaders moved", Weight: 8, Hit: kind.MoveLeaders},
			nemesis.Fault{Name: wiped, Weight: 8, Hit: func(ctx context.Context, r *rand.Rand) error {
				wipe := func(r *rand.Rand) error { return kind.Wipe(ctx, r) }
				return nemesis.During(0, 6*time.Second, wipe, b.Restart)(ctx, r)
			}})
	}
	return faults
}

// diskFaults returns faults of the journal's disk. With oneIn = 1, every call fails, so that the
// journal can neither write nor roll back.
func diskFaults(r *rig.Rig, d *rig.Daemon) []nemesis.Fault {
	fail := func(set func(oneIn int) error) nemesis.Hit {
		return nemesis.During(10*ms, 2*time.Second, func(rng *rand.Rand) error { return set(1 + rng.IntN(8)) }, func() error { return set(0) })
	}
	faults := []nemesis.Fault{
		{Name: "writes fail", Weight: 2, Hit: fail(d.Faults.FailWrites)},
		{Name: "reads fail", Weight: 1, Hit: fail(d.Faults.FailReads)},
	}
	if r.Disk != nil {
		full := nemesis.During(100*ms, 2*time.Second, always(r.Disk.Fill), r.Disk.Free)
		faults = append(faults, nemesis.Fault{Name: "full", Weight: 3, Hit: full})
	}
	return faults
}

// wireFaults returns faults that each disturb a random one of the wires.
func wireFaults(wires ...*rig.Wire) []nemesis.Fault {
	var hit *rig.Wire // the wire of the current fault; a target is hit by one fault at a time
	pick := func(rng *rand.Rand) *rig.Wire {
		hit = wires[rng.IntN(len(wires))]
		return hit
	}
	disturb := func(kind, direction string, longest time.Duration, attributes func(rng *rand.Rand) map[string]any) nemesis.Hit {
		return nemesis.During(100*ms, longest, func(rng *rand.Rand) error {
			return pick(rng).Disturb(kind, direction, attributes(rng))
		}, func() error { return hit.Heal() })
	}
	cut := func(most float64) func(*rand.Rand) map[string]any {
		return func(rng *rand.Rand) map[string]any {
			return map[string]any{"bytes": int64(math.Exp(rng.Float64() * math.Log(most)))}
		}
	}
	never := func(*rand.Rand) map[string]any { return map[string]any{"timeout": 0} }
	down := func(rng *rand.Rand) error { return pick(rng).Cut() }
	return []nemesis.Fault{
		{Name: "cut", Weight: 2, Hit: nemesis.During(0, 300*ms, down, func() error { return hit.Join() })},
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
	weights := map[string]float64{
		daemon: 6, archive: 1.5, zookeeper: 0.5, broker: 1.5, balancer: 1, network: 1.5, disk: 1.5, clock: 1, rolling: 0.25,
		forecast: 0.5,
	}
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
