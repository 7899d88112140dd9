package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"trafficd/cmd/devstores/stores"
)

// Topic is where the daemon forwards to, and partitions how many it has.
const (
	Topic      = "measurements"
	partitions = 4
)

// Broker is a cluster that speaks the Kafka protocol. Its methods are for one
// goroutine at a time.
type Broker interface {
	// End ends all brokers: by kill -9 where they survive that, else cleanly.
	End() error
	// Restart starts what has ended.
	Restart() error
	// Freeze has one broker, chosen by r, stand still until Thaw.
	Freeze(r *rand.Rand) error
	Thaw() error
	// Addresses are the brokers' own, not those of the wires.
	Addresses() []string
	Close() error
}

// Refuser is a broker that can be told to answer the next produce requests with
// errors drawn from r, some of them after the records were taken.
type Refuser interface{ Refuse(r *rand.Rand) }

// Members is a broker of several of which some can be ended. Restart starts
// those that were.
type Members interface {
	EndSome(r *rand.Rand, n int) error
}

// apache is Apache Kafka, each node by itself: one that is killed loses nothing
// of what it has acknowledged, and knows its producers again.
type apache struct {
	nodes  []*stores.Stores
	down   []*stores.Kafka
	frozen *stores.Kafka
}

func startApache(ctx context.Context, dir string, out io.Writer, ports []int, advertised []string) (*apache, error) {
	properties := map[string]string{"auto.create.topics.enable": "false"}
	if len(ports) > 1 {
		properties["min.insync.replicas"] = "2"
	}
	a := &apache{nodes: make([]*stores.Stores, len(ports))}
	controllers, err := freePorts(len(ports))
	if err != nil {
		return a, err
	}
	err = each(a.nodes, func(i int, _ *stores.Stores) (err error) { // none of them is ready before most are there
		a.nodes[i], err = stores.Launch(ctx, stores.Options{
			Dir: dir, Only: "kafka", Stderr: out, Broker: stores.Apache, Brokers: len(ports), Node: i + 1,
			KafkaPorts: ports, Controllers: controllers, Advertised: advertised, Properties: properties,
		})
		return err
	})
	if err != nil {
		return a, err
	}
	return a, eventually(ctx, time.Minute, func() error { return a.nodes[0].Kafka.CreateTopic(ctx, Topic, partitions) })
}

// each does something to all at once.
func each[T any](all []T, do func(i int, of T) error) error {
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i, of := range all {
		done.Go(func() { errs[i] = do(i, of) })
	}
	done.Wait()
	return errors.Join(errs...)
}

func (a *apache) End() error { return a.end(rand.Perm(len(a.nodes))) }

func (a *apache) EndSome(r *rand.Rand, n int) error { return a.end(r.Perm(len(a.nodes))[:n]) }

func (a *apache) end(which []int) error {
	for _, i := range which {
		a.down = append(a.down, a.nodes[i].Kafka)
	}
	return each(a.down, func(_ int, k *stores.Kafka) error { return k.Kill() })
}

func (a *apache) Restart() error {
	down := a.down
	a.down = nil
	return each(down, func(_ int, k *stores.Kafka) error { return k.Restart() })
}

// Freeze stops one node: for longer than its session it loses its partitions to
// the others, and does not know it when it wakes.
func (a *apache) Freeze(r *rand.Rand) error {
	a.frozen = a.nodes[r.IntN(len(a.nodes))].Kafka
	return a.frozen.Pause()
}

func (a *apache) Thaw() error { return a.frozen.Resume() }

func (a *apache) Addresses() (all []string) {
	for _, n := range a.nodes {
		all = append(all, n.Kafka.Brokers...)
	}
	return all
}

// Close kills: the last of several nodes would wait in vain for the others to
// let it go.
func (a *apache) Close() error {
	return each(a.nodes, func(_ int, n *stores.Stores) error {
		if n == nil || n.Kafka == nil {
			return nil // it was never there
		}
		return errors.Join(n.Kafka.Kill(), n.Close())
	})
}

// newBroker starts the cluster behind its wires.
func (r *Rig) newBroker(ctx context.Context, ports []int, advertised []string) (Broker, error) {
	switch r.cfg.Broker {
	case stores.Apache:
		return startApache(ctx, r.cfg.Dir, r.log, ports, advertised)
	case stores.Kfake:
		return startKfake(r.path("kfake"), ports, advertised)
	}
	return nil, fmt.Errorf("cannot run a broker of kind %q: give %s or %s", r.cfg.Broker, stores.Kfake, stores.Apache)
}
