package rig

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

const (
	// Topic is the topic to which measurements are forwarded.
	Topic      = "measurements"
	partitions = 4
)

// Broker is a Kafka-protocol cluster. It is not safe for concurrent use. The parameter r is the
// source of all random choices.
type Broker interface {
	// Stop stops brokers. Apache kills n random ones; Kfake ignores n and stops all cleanly.
	Stop(r *rand.Rand, n int) error
	// Restart starts the stopped brokers.
	Restart() error
	// Freeze pauses a random broker (Kfake: the whole cluster) until Thaw.
	Freeze(r *rand.Rand) error
	Thaw() error
	// Addresses returns the addresses of the brokers themselves, not of the wires.
	Addresses() []string
	Close() error
}

// Apache is Apache Kafka with each node in its own process. A killed node loses no records that it
// acknowledged, and recovers its producer state.
type Apache struct {
	nodes  []*launch.Kafka
	down   []*launch.Kafka // killed, not yet restarted
	frozen *launch.Kafka
}

// startApache starts the brokers that opts describes and creates Topic. opts must be completed.
func startApache(ctx context.Context, opts launch.Options) (a *Apache, err error) {
	defer must.Return(&err)
	opts.Properties = map[string]string{"auto.create.topics.enable": "false", "group.min.session.timeout.ms": "1000"}
	if opts.Brokers > 1 {
		opts.Properties["min.insync.replicas"] = "2"
	}
	a = &Apache{nodes: make([]*launch.Kafka, opts.Brokers)}
	must.Do(launch.Each(a.nodes, func(i int, _ *launch.Kafka) error { // no node is ready until a majority is running
		node := opts
		node.Node, node.Host = i+1, opts.Hosts.At(i)
		stores, err := launch.StartStores(ctx, node)
		if err == nil {
			a.nodes[i] = stores.Kafka
		}
		return err
	}))
	return a, launch.Eventually(ctx, time.Minute, func() error { return launch.CreateTopic(ctx, a.nodes[0].Brokers, Topic, partitions, nil) })
}

// Stop implements Broker.
func (a *Apache) Stop(r *rand.Rand, n int) error {
	for _, i := range r.Perm(len(a.nodes))[:n] {
		a.down = append(a.down, a.nodes[i])
	}
	return launch.Each(a.down, func(_ int, k *launch.Kafka) error { return k.Kill() })
}

// Restart implements Broker.
func (a *Apache) Restart() error {
	down := a.down
	a.down = nil
	return launch.Each(down, func(_ int, k *launch.Kafka) error { return k.Restart() })
}

// Freeze pauses one node. After its session timeout, the others take over its partitions. When it
// resumes, it still considers itself their leader.
func (a *Apache) Freeze(r *rand.Rand) error {
	a.frozen = a.nodes[r.IntN(len(a.nodes))]
	return a.frozen.Pause()
}

// Wipe kills a random broker and deletes its disk. If that could lose records that no other broker
// has, it keeps the disk and returns nemesis.ErrNotInjected. Restart starts the broker again.
//
// Wipe waits until all replicas are in sync and, after the kill, until the other brokers have
// removed those of the killed broker from the in-sync replicas. Acknowledged records are on every
// in-sync replica, so the other brokers then have them all.
func (a *Apache) Wipe(ctx context.Context, r *rand.Rand) error {
	i := r.IntN(len(a.nodes))
	err := launch.Eventually(ctx, wipeLimit, func() error { return a.covered(ctx, -1) })
	if err == nil {
		a.down = append(a.down, a.nodes[i])
		if err := a.nodes[i].Kill(); err != nil {
			return err
		}
		err = launch.Eventually(ctx, wipeLimit, func() error { return a.covered(ctx, i) })
	}
	if err != nil {
		return fmt.Errorf("%w: %w", nemesis.ErrNotInjected, err)
	}
	return os.RemoveAll(filepath.Join(a.nodes[i].Dir(), "kafka", "apache", fmt.Sprint("node-", i+1), "data"))
}

// wipeLimit exceeds both a broker's session timeout and the time to replicate a small log.
const wipeLimit = 15 * time.Second

// covered returns an error unless every live broker reports that each partition has a leader and
// that exactly its replicas on live brokers are in sync. dead is an index, or -1 if all are live.
func (a *Apache) covered(ctx context.Context, dead int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return launch.Each(a.nodes, func(i int, k *launch.Kafka) (err error) {
		defer must.Return(&err)
		if i == dead {
			return nil
		}
		client := must.Get(kgo.NewClient(kgo.SeedBrokers(k.Brokers...), kgo.DisableClientMetrics()))
		defer client.Close()
		known := must.Get(kmsg.NewPtrMetadataRequest().RequestWith(ctx, client.SeedBrokers()[0])) // this broker, not one that the client chooses
		for _, t := range known.Topics {
			for _, p := range t.Partitions {
				want := slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return id == int32(dead+1) })
				if len(p.ISR) != len(want) || slices.Contains(p.ISR, int32(dead+1)) || p.Leader < 0 {
					return fmt.Errorf("broker %d: partition %d of %s has leader %d and in-sync replicas %v", i+1, p.Partition, *t.Topic, p.Leader, p.ISR)
				}
			}
		}
		return nil
	})
}

// MoveLeaders assigns each partition a random preferred leader and elects it. If the cluster does
// not respond or rejects this, MoveLeaders returns nemesis.ErrNotInjected.
func (a *Apache) MoveLeaders(ctx context.Context, r *rand.Rand) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", nemesis.ErrNotInjected, err)
		}
	}()
	defer must.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(a.Addresses()...), kgo.DisableClientMetrics()))
	defer client.Close()
	admin := kadm.NewClient(client)
	topics := must.Get(admin.ListTopicsWithInternal(ctx))
	must.Do(topics.Error())
	moves := kadm.AlterPartitionAssignmentsReq{}
	topics.EachPartition(func(p kadm.PartitionDetail) {
		r.Shuffle(len(p.Replicas), func(i, j int) { p.Replicas[i], p.Replicas[j] = p.Replicas[j], p.Replicas[i] })
		moves.Assign(p.Topic, p.Partition, p.Replicas)
	})
	must.Get(admin.AlterPartitionAssignments(ctx, moves))
	must.Get(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, topics.TopicsSet()))
	return nil
}

// Thaw implements Broker.
func (a *Apache) Thaw() error { return a.frozen.Resume() }

// Addresses implements Broker.
func (a *Apache) Addresses() (all []string) {
	for _, k := range a.nodes {
		all = append(all, k.Brokers...)
	}
	return all
}

// Close kills the nodes. In a clean shutdown, the last node would wait for the others, which have
// already exited.
func (a *Apache) Close() error {
	return launch.Each(a.nodes, func(_ int, k *launch.Kafka) error {
		if k == nil {
			return nil // it failed to start
		}
		return k.Kill()
	})
}

// Kfake is kfake in this process, which allows injecting errors. It is never killed, because it
// saves producer state only on a clean shutdown, and a broker that forgets a producer during a
// request may duplicate its records.
type Kfake struct {
	dir        string
	ports      []int
	advertised []string
	cluster    *kfake.Cluster
	thaw       chan struct{}
}

// Restart implements Broker.
func (f *Kfake) Restart() (err error) {
	f.cluster, err = kfake.NewCluster(kfake.NumBrokers(len(f.ports)), kfake.Ports(f.ports...), kfake.ListenFn(f.listen),
		kfake.DataDir(f.dir), kfake.SyncWrites(), kfake.SeedTopics(partitions, Topic), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return fmt.Errorf("cannot start kfake in %s: %w", f.dir, err)
	}
	return nil
}

// listen returns a listener whose Addr is that of the broker's wire, so that kfake advertises the
// wire to clients.
func (f *Kfake) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	for i, own := range f.Addresses() {
		if address == own {
			wire, err := net.ResolveTCPAddr("tcp", f.advertised[i])
			return &advertisedListener{l, wire}, err
		}
	}
	return l, nil
}

// advertisedListener is a listener whose Addr returns the address of a wire.
type advertisedListener struct {
	net.Listener
	wire net.Addr
}

func (a *advertisedListener) Addr() net.Addr { return a.wire }

// Stop implements Broker.
func (f *Kfake) Stop(*rand.Rand, int) error { return f.Close() }

// Freeze blocks the cluster's only goroutine at the next request. The cluster then neither responds
// nor closes connections.
func (f *Kfake) Freeze(*rand.Rand) error {
	thaw := make(chan struct{})
	f.thaw = thaw
	f.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.DropControl()
		<-thaw
		return nil, nil, false
	})
	return nil
}

// Thaw implements Broker.
func (f *Kfake) Thaw() error {
	close(f.thaw)
	return nil
}

// produceErrors lists three kinds of errors: those that may be returned although the records were
// stored, those of a broker that has forgotten the producer, and those of a broker that stored
// nothing. If the second kind follows the first, sequence numbers alone do not prevent duplicates.
var produceErrors = [][]*kerr.Error{
	{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend},
	{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID},
	{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.CorruptMessage},
}

// FailProduce makes the next produce requests return random errors, some after storing the records.
func (f *Kfake) FailProduce(r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		errs := produceErrors[r.IntN(len(produceErrors))]
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: Topic, Err: errs[r.IntN(len(errs))], Count: 1 + r.IntN(4)})
	}
	return nil
}

// Addresses implements Broker.
func (f *Kfake) Addresses() (all []string) {
	for _, port := range f.ports {
		all = append(all, launch.Address(port))
	}
	return all
}

// Close implements Broker.
func (f *Kfake) Close() error {
	if f.cluster != nil {
		f.cluster.Close()
	}
	return nil
}
