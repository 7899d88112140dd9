package rig

import (
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fake is kfake in this process, where its faults can be reached. What it knows
// of producers is saved when it is closed and only then, so it is never killed:
// a broker that forgets its producers in the midst of a request may double.
type fake struct {
	dir        string
	ports      []int
	advertised []string
	cluster    *kfake.Cluster
	thaw       chan struct{}
}

func startKfake(dir string, ports []int, advertised []string) (*fake, error) {
	f := &fake{dir: dir, ports: ports, advertised: advertised}
	return f, f.Restart()
}

func (f *fake) Restart() (err error) {
	f.cluster, err = kfake.NewCluster(kfake.NumBrokers(len(f.ports)), kfake.Ports(f.ports...), kfake.ListenFn(f.listen),
		kfake.DataDir(f.dir), kfake.SyncWrites(), kfake.SeedTopics(partitions, Topic))
	if err != nil {
		return fmt.Errorf("cannot start kfake in %s: %w", f.dir, err)
	}
	return nil
}

// listen has the listener give the wire's address, which kfake tells clients.
func (f *fake) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	for i, port := range f.ports {
		if address == loopback(port) {
			told, err := net.ResolveTCPAddr("tcp", f.advertised[i])
			return &advertising{l, told}, err
		}
	}
	return l, nil
}

type advertising struct {
	net.Listener
	told net.Addr
}

func (a *advertising) Addr() net.Addr { return a.told }

func (f *fake) End() error {
	if f.cluster != nil { // it has started
		f.cluster.Close()
	}
	return nil
}

// Freeze holds the cluster's only goroutine with the next request: nothing is
// answered, no connection is closed.
func (f *fake) Freeze(*rand.Rand) error {
	thaw := make(chan struct{})
	f.thaw = thaw
	f.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.DropControl()
		<-thaw
		return nil, nil, false
	})
	return nil
}

func (f *fake) Thaw() error {
	close(f.thaw)
	return nil
}

// answers are those to a produce request: such as come although the records
// were taken, such as say that the broker does not know the producer any more,
// and such as say that nothing was taken. One of the first kind followed by one
// of the second is what sequences alone do not cover.
var answers = [][]*kerr.Error{
	{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend},
	{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID},
	{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.CorruptMessage},
}

// Refuse makes a Refuser of it.
func (f *fake) Refuse(r *rand.Rand) {
	for range 1 + r.IntN(4) {
		errs := answers[r.IntN(len(answers))]
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: Topic, Err: errs[r.IntN(len(errs))], Count: 1 + r.IntN(4)})
	}
}

func (f *fake) Addresses() []string {
	var all []string
	for _, port := range f.ports {
		all = append(all, loopback(port))
	}
	return all
}

func (f *fake) Close() error { return f.End() }
