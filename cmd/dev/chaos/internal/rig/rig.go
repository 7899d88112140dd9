// Package rig runs the system under test: the daemon, with fault injection for its clock and disk;
// a real ClickHouse; a broker; and a toxiproxy in front of each of them. Each part can be killed,
// stopped and started separately.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/chaos/internal/faultinject"
	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
)

// The disk has room for a full journal, the idempotency store and the cursors, but little more.
const (
	journalBytes = 12 << 20
	diskBytes    = 64 << 20
)

// Config describes what to run.
type Config struct {
	Dir        string // for all files; created by the caller
	Detectors  []string
	Broker     string // launch.Kfake or launch.Apache
	Brokers    int
	Nodes      int                              // number of ClickHouse servers; 2 or more form a cluster with one shard
	Replicas   int                              // number of daemons; 2 or more share a journal in Kafka, and nothing else
	Clients    int                              // number of clients; each has a key and a product instance
	Links      bool                             // whether brokers and cluster nodes are in network namespaces, which needs root
	LowDisk    bool                             // whether the journal rejects frames before its disk is full, instead of failing to write
	Unexpected func(format string, args ...any) // called for each unexpected exit
}

// Rig is a running system.
type Rig struct {
	cfg Config

	Replicas []*Daemon
	Archive  *Archive
	Broker   Broker
	Disk     *Disk // of the only replica's journal; nil with several replicas, or if mounts are not permitted

	ClientWires  []*Wire // one per replica
	ArchiveWires []*Wire // one per node
	BrokerWires  []*Wire // one per broker

	Forecaster       *Daemon        // nil with several replicas or nodes
	ForecastSettings judge.Settings // of Forecaster

	Network *Network // nil unless Config.Links is set
	Edge    *Edge    // the load balancer; nil with one replica

	proxy             string // the toxiproxy program
	forecasterProgram string
	log               *os.File       // output of the stores
	admin             *kadm.Client   // for the log that replicas share; nil with one replica
	closers           []func() error // called by Close, in reverse order
}

// Start builds the programs, starts everything and creates the tables and the topic. Close must be
// called even after an error. The functions that start the parts report errors through package
// must.
func Start(ctx context.Context, cfg Config) (r *Rig, err error) {
	defer must.Return(&err, "cannot start the system")
	r = &Rig{cfg: cfg}
	r.log = must.Get(os.Create(r.path("stores.log")))
	r.onClose(r.log.Close)
	r.buildProxy(ctx)
	r.startNetwork(ctx)
	r.startArchive(ctx)
	r.startBroker(ctx)
	r.newForecaster(ctx)
	r.startDaemons(ctx)
	return r, nil
}

func (r *Rig) onClose(do func() error) { r.closers = append(r.closers, do) }

// Close stops everything.
func (r *Rig) Close() (err error) {
	for _, do := range slices.Backward(r.closers) {
		err = errors.Join(err, do())
	}
	return err
}

func (r *Rig) path(name string) string { return filepath.Join(r.cfg.Dir, name) }

// Endpoints returns the base URLs of the replicas, through their wires, and that of the load
// balancer, or an empty string if there is none.
func (r *Rig) Endpoints() (replicas []string, balancer string) {
	for _, w := range r.ClientWires {
		replicas = append(replicas, "http://"+w.Address)
	}
	if r.Edge != nil {
		balancer = "http://" + r.Edge.Address
	}
	return replicas, balancer
}

// buildProxy builds toxiproxy. A separate module file pins its version, to keep it out of the
// product's go.mod.
func (r *Rig) buildProxy(ctx context.Context) {
	r.proxy = filepath.Join(must.Get(launch.ModuleRoot()), ".cache", "bin", "toxiproxy")
	must.Do(launch.Build(ctx, "-modfile=.ci/toxiproxy.mod", "-o", r.proxy, "github.com/Shopify/toxiproxy/v2/cmd/server"))
}

// startNetwork creates the hosts of the brokers, of the ClickHouse nodes and of ZooKeeper, in this
// order, if Config.Links is set. It downloads the stores first, because the hosts have no Internet
// access.
func (r *Rig) startNetwork(ctx context.Context) {
	if !r.cfg.Links {
		return
	}
	fetch := exec.CommandContext(ctx, must.Get(launch.Program(ctx, "devstores")), "fetch")
	fetch.Stdout, fetch.Stderr = r.log, r.log
	if err := fetch.Run(); err != nil {
		must.Do(fmt.Errorf("cannot download the stores: %w; see %s", err, r.log.Name()))
	}
	network, err := newNetwork(r.cfg.Brokers + r.cfg.Nodes + 1)
	r.onClose(func() error { network.close(); return nil })
	must.Do(err)
	r.Network = network
}

// hosts returns n of the network's hosts, starting at index from, or nil if there is no network.
func (r *Rig) hosts(from, n int) launch.Hosts {
	if r.Network == nil {
		return nil
	}
	return r.Network.Hosts[from : from+n]
}

// startBroker starts the brokers' wires, whose addresses the brokers advertise, and the brokers.
func (r *Rig) startBroker(ctx context.Context) {
	opts := launch.Options{
		Dir: r.cfg.Dir, Stderr: r.log, Only: "kafka", Broker: r.cfg.Broker, Brokers: r.cfg.Brokers, Hosts: r.hosts(0, r.cfg.Brokers),
	}
	must.Do(opts.Complete())
	for i, port := range opts.KafkaPorts {
		r.BrokerWires = append(r.BrokerWires, r.startWire(fmt.Sprint("broker-", i), opts.Hosts.At(i).Endpoint(port).String()))
	}
	var err error
	if advertised := addresses(r.BrokerWires); r.cfg.Broker == launch.Apache {
		opts.Advertised = advertised
		r.Broker, err = startApache(ctx, opts)
	} else {
		r.Broker = &Kfake{dir: r.path("kfake"), ports: opts.KafkaPorts, advertised: advertised}
		err = r.Broker.Restart()
	}
	r.onClose(r.Broker.Close)
	must.Do(err)
}

// startDaemons builds the daemon with fault injection, but without other changes, and starts the
// replicas and the forecaster.
func (r *Rig) startDaemons(ctx context.Context) {
	if r.cfg.Replicas == 1 {
		disk, err := newDisk(diskBytes)
		if !errors.Is(err, os.ErrPermission) {
			must.Do(err)
			r.Disk = disk
			r.onClose(disk.close)
		}
	}
	binary := r.path("trafficd")
	must.Do(launch.Build(ctx, must.Get(faultinject.Overlay(ctx, r.path("overlay"))), "-o", binary, "./cmd/trafficd"))
	for n := range r.cfg.Replicas {
		d := r.newDaemon(binary, n)
		r.Replicas = append(r.Replicas, d)
		r.ClientWires = append(r.ClientWires, r.startWire(fmt.Sprint("clients-", n), d.API))
	}
	if r.cfg.Replicas > 1 {
		r.startEdge()
		client := must.Get(kgo.NewClient(kgo.SeedBrokers(r.Broker.Addresses()...), kgo.DisableClientMetrics()))
		r.onClose(func() error { client.Close(); return nil })
		r.admin = kadm.NewClient(client)
	}
	must.Do(r.Archive.prepare(ctx, r.Replicas[0]))
	must.Do(r.Revive())
}

func (r *Rig) daemons() []*Daemon {
	if r.Forecaster == nil {
		return r.Replicas
	}
	return append(slices.Clip(r.Replicas), r.Forecaster)
}

// Revive starts the replicas and the forecaster unless they are running, and restarts the archive's
// nodes that do not respond.
func (r *Rig) Revive() (err error) {
	for _, d := range r.daemons() {
		err = errors.Join(err, d.Start())
	}
	return errors.Join(err, launch.Each(r.Archive.Nodes, func(_ int, n *Node) error { return n.Revive() }))
}

// Drain waits until the daemons have delivered everything, reviving them and the archive meanwhile.
func (r *Rig) Drain(ctx context.Context, limit time.Duration) error {
	err := launch.Eventually(ctx, limit, func() error {
		if err := r.Revive(); err != nil {
			return err
		}
		if r.cfg.Replicas > 1 {
			return r.AwaitDelivered(ctx, 20*time.Second)
		}
		return r.Replicas[0].Delivered(ctx)
	})
	if err != nil {
		return fmt.Errorf("the daemon has not delivered everything: %w", err)
	}
	return nil
}

// Terminate sends the daemons SIGTERM.
func (r *Rig) Terminate() (err error) {
	for _, d := range r.daemons() {
		err = errors.Join(err, d.Terminate())
	}
	return err
}
