// Package rig runs everything that an attack needs, on loopback: the daemon as it is shipped, with an injectable clock and
// disk, a real ClickHouse, a broker, and a toxiproxy on each connection between them and to the clients. Each part can be
// killed, stopped and started separately.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/chaos/internal/faultinject"
	"trafficd/cmd/internal/launch"
)

// The disk has room for the largest journal, the idempotency store and the cursors, and little more.
const (
	journalBytes = 12 << 20
	diskBytes    = 64 << 20
)

// Config describes what to run.
type Config struct {
	Dir       string // for everything; created by the caller
	Detectors []string
	Broker    string // launch.Kfake or launch.Apache
	Brokers   int
	LowDisk   bool                             // the journal stops before its disk is full; otherwise writes fail
	Wrong     func(format string, args ...any) // called for each unexpected exit
}

// Rig is a running system.
type Rig struct {
	cfg Config

	Daemon  *Daemon
	Archive *Archive
	Broker  Broker
	Disk    *Disk               // nil if mounts are not permitted; the journal can then only reach its own limit
	Faults  *faultinject.Faults // the daemon's clock, writes and reads

	ClientWire   *Wire
	ArchiveWire  *Wire
	ForwardWires []*Wire // one per broker

	proxy  string // the toxiproxy program
	wires  []*Wire
	stores *launch.Stores
	log    *os.File // of the stores
}

// Start builds the programs, starts everything and creates the tables and the topic. Close must be called even after an
// error.
func Start(ctx context.Context, cfg Config) (*Rig, error) {
	r := &Rig{cfg: cfg}
	var err error
	if r.log, err = os.Create(r.path("stores.log")); err != nil {
		return r, fmt.Errorf("cannot open the stores' log: %w", err)
	}
	for _, step := range []func(context.Context) error{r.buildWires, r.startArchive, r.startBroker, r.startDaemon} {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Close stops everything.
func (r *Rig) Close() error {
	var errs []error
	if r.Daemon != nil {
		errs = append(errs, r.Daemon.Kill())
	}
	if r.Broker != nil {
		errs = append(errs, r.Broker.Close())
	}
	if r.stores != nil {
		errs = append(errs, r.stores.Close())
	}
	for _, w := range r.wires {
		errs = append(errs, w.Cut())
	}
	if r.Disk != nil {
		r.Disk.close()
	}
	if r.Faults != nil {
		errs = append(errs, r.Faults.Close())
	}
	errs = append(errs, r.log.Close())
	return errors.Join(errs...)
}

func (r *Rig) path(name string) string { return filepath.Join(r.cfg.Dir, name) }

// Endpoint returns the URL for clients, through the wire.
func (r *Rig) Endpoint() string {
	return "http://" + r.ClientWire.Address + "/dataprovider/ingestion/v1/detectors/data/ingest"
}

// buildWires builds toxiproxy, which is pinned by its own module file to keep it out of the product's go.mod.
func (r *Rig) buildWires(ctx context.Context) error {
	root, err := launch.ModuleRoot()
	if err != nil {
		return err
	}
	r.proxy = filepath.Join(root, ".cache", "bin", "toxiproxy")
	return launch.Build(ctx, "-modfile=.ci/toxiproxy.mod", "-o", r.proxy, "github.com/Shopify/toxiproxy/v2/cmd/server")
}

func (r *Rig) startArchive(ctx context.Context) error {
	var err error
	if r.stores, err = launch.StartStores(ctx, launch.Options{Dir: r.cfg.Dir, Only: "clickhouse", Stderr: r.log}); err != nil {
		return err
	}
	r.Archive = &Archive{r.stores.ClickHouse}
	r.ArchiveWire, err = r.startWire("archive", r.Archive.TCP)
	return err
}

// startBroker starts the wires first: a broker must know the address that it advertises.
func (r *Rig) startBroker(ctx context.Context) error {
	ports, err := launch.PickPorts("Kafka broker", r.cfg.Brokers)
	if err != nil {
		return err
	}
	var advertised []string
	for i, port := range ports {
		wire, err := r.startWire(fmt.Sprint("broker-", i), launch.Address(port))
		if err != nil {
			return err
		}
		r.ForwardWires, advertised = append(r.ForwardWires, wire), append(advertised, wire.Address)
	}
	switch r.cfg.Broker {
	case launch.Apache:
		r.Broker, err = startApache(ctx, r.cfg.Dir, r.log, ports, advertised)
	case launch.Kfake:
		r.Broker = &fake{dir: r.path("kfake"), ports: ports, advertised: advertised}
		err = r.Broker.Restart()
	default:
		err = fmt.Errorf("unknown broker kind %q: must be %s or %s", r.cfg.Broker, launch.Kfake, launch.Apache)
	}
	return err
}

// startDaemon builds the daemon as it is shipped, except for the injected faults.
func (r *Rig) startDaemon(ctx context.Context) (err error) {
	if r.Disk, err = newDisk(diskBytes); err != nil {
		r.Disk = nil
		if !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	overlay, err := faultinject.Overlay(ctx, r.path("overlay"))
	if err != nil {
		return err
	}
	binary := r.path("trafficd")
	if err := launch.Build(ctx, overlay, "-o", binary, "./cmd/trafficd"); err != nil {
		return err
	}
	if r.Faults, err = faultinject.New(r.path("faults")); err != nil {
		return err
	}
	if r.Daemon, err = r.newDaemon(binary); err != nil {
		return err
	}
	if r.ClientWire, err = r.startWire("clients", r.Daemon.API); err != nil {
		return err
	}
	if err := r.Archive.prepare(ctx, r.Daemon); err != nil {
		return err
	}
	return r.Daemon.Start()
}

// Drain restarts any process that has exited, waits until the daemon has delivered everything, and sends it SIGTERM.
func (r *Rig) Drain(ctx context.Context, limit time.Duration) error {
	err := launch.Eventually(ctx, limit, func() error {
		if err := errors.Join(r.Archive.Revive(), r.Daemon.Start()); err != nil {
			return err
		}
		return r.Daemon.Drained(ctx)
	})
	if err != nil {
		return fmt.Errorf("the daemon has not delivered everything: %w", err)
	}
	return r.Daemon.Terminate()
}
