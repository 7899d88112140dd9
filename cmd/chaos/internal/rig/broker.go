package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"golang.org/x/sys/unix"

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
	// Restart starts all of them again.
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

// apache is Apache Kafka: a broker that is killed loses nothing of what it has
// acknowledged, and knows its producers again.
type apache struct {
	*stores.Kafka
	all    *stores.Stores
	frozen int
}

func startApache(ctx context.Context, dir string, out io.Writer, ports []int, advertised []string) (*apache, error) {
	properties := map[string]string{"auto.create.topics.enable": "false"}
	if len(ports) > 1 {
		properties["min.insync.replicas"] = "2"
	}
	s, err := stores.Launch(ctx, stores.Options{
		Dir: dir, Only: "kafka", Stderr: out, Broker: stores.Apache, Brokers: len(ports), KafkaPorts: ports, Advertised: advertised, Properties: properties,
	})
	if err != nil {
		return nil, err
	}
	return &apache{Kafka: s.Kafka, all: s}, s.Kafka.CreateTopic(ctx, Topic, partitions)
}

func (a *apache) End() error { return a.Kill() }

// Freeze stops one process: for longer than its session it loses its
// partitions to the others, and does not know it when it wakes.
func (a *apache) Freeze(r *rand.Rand) error {
	pids := a.PIDs()
	a.frozen = pids[r.IntN(len(pids))]
	return unix.Kill(a.frozen, unix.SIGSTOP)
}

func (a *apache) Thaw() error { return unix.Kill(a.frozen, unix.SIGCONT) }

func (a *apache) Addresses() []string { return a.Brokers }

func (a *apache) Close() error { return errors.Join(a.Resume(), a.all.Close()) }

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
