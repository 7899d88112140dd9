// Package rig is everything that a run needs, on loopback: the daemon as it is
// shipped, with a clock and a disk that can be spoilt, a real ClickHouse, a
// broker, and a toxiproxy on each way between them and to the clients. Each part
// can be killed, stopped and started by itself.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/chaos/internal/spoilt"
	"trafficd/cmd/devstores/stores"
)

// The disk holds the journal at its largest, the remembered answers and the
// cursors, and little more.
const (
	journalBytes = 12 << 20
	diskBytes    = 64 << 20
)

// Config is what to build.
type Config struct {
	Dir      string // of everything; made by the caller
	Registry string // file of detectors
	Broker   string // stores.Kfake or stores.Apache
	Brokers  int
	LowDisk  bool                             // the journal stops a little before its disk is full; else it meets the end
	Wrong    func(format string, args ...any) // told of ends that must not be
}

// Rig is a running whole.
type Rig struct {
	cfg Config

	Daemon  *Daemon
	Archive *Archive
	Broker  Broker
	Disk    *Disk        // nil where mounts are not permitted
	World   *spoilt.Page // the daemon's clock and what becomes of its writes and reads

	ClientWire   *Wire
	ArchiveWire  *Wire
	ForwardWires []*Wire // one for each broker

	proxy  string // the program that wires are made of
	wires  []*Wire
	stores *stores.Stores
	log    *os.File // of the stores' own words
}

// Start builds the programs, starts everything and makes the tables and the
// topic. The daemon is ready when it returns. Close has to be called also
// after an error.
func Start(ctx context.Context, cfg Config) (*Rig, error) {
	r := &Rig{cfg: cfg}
	var err error
	if r.log, err = os.Create(r.path("stores.log")); err != nil {
		return r, fmt.Errorf("cannot open the stores' log: %w", err)
	}
	steps := []func(context.Context) error{r.buildWires, r.startArchive, r.startBroker, r.startDaemon}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Close ends everything.
func (r *Rig) Close() error {
	var errs []error
	if r.Daemon != nil {
		r.Daemon.Kill()
	}
	if r.Broker != nil {
		errs = append(errs, r.Broker.Close())
	}
	if r.stores != nil {
		errs = append(errs, r.stores.Close())
	}
	for _, w := range r.wires {
		w.close()
	}
	if r.Disk != nil {
		r.Disk.close()
	}
	if r.World != nil {
		errs = append(errs, r.World.Close())
	}
	errs = append(errs, r.log.Close())
	return errors.Join(errs...)
}

func (r *Rig) path(name string) string { return filepath.Join(r.cfg.Dir, name) }

// Endpoint is where clients send to: by the wire.
func (r *Rig) Endpoint() string {
	return "http://" + r.ClientWire.Address + "/dataprovider/ingestion/v1/detectors/data/ingest"
}

func (r *Rig) buildWires(ctx context.Context) error {
	root, err := Root()
	if err == nil {
		r.proxy, err = buildToxiproxy(ctx, root)
	}
	return err
}

func (r *Rig) startArchive(ctx context.Context) error {
	var err error
	if r.stores, err = stores.Launch(ctx, stores.Options{Dir: r.cfg.Dir, Only: "clickhouse", Stderr: r.log}); err != nil {
		return err
	}
	r.Archive = &Archive{r.stores.ClickHouse}
	r.ArchiveWire, err = r.lay(ctx, "archive", r.Archive.TCP)
	return err
}

// startBroker lays the wires first: a broker has to know the address that it
// tells its clients.
func (r *Rig) startBroker(ctx context.Context) error {
	ports, err := freePorts(r.cfg.Brokers)
	if err != nil {
		return err
	}
	var advertised []string
	for i, port := range ports {
		wire, err := r.lay(ctx, fmt.Sprint("broker-", i), loopback(port))
		if err != nil {
			return err
		}
		r.ForwardWires, advertised = append(r.ForwardWires, wire), append(advertised, wire.Address)
	}
	r.Broker, err = r.newBroker(ctx, ports, advertised)
	return err
}

func (r *Rig) lay(ctx context.Context, name, server string) (*Wire, error) {
	w, err := lay(ctx, r.proxy, r.path("toxiproxy-"+name+".log"), server)
	if w != nil {
		r.wires = append(r.wires, w)
	}
	return w, err
}

func (r *Rig) startDaemon(ctx context.Context) error {
	if err := r.makeDisk(); err != nil {
		return err
	}
	root, err := Root()
	if err != nil {
		return err
	}
	binary, err := buildDaemon(ctx, root, r.cfg.Dir)
	if err != nil {
		return err
	}
	if r.World, err = spoilt.NewPage(r.path("world")); err != nil {
		return err
	}
	api, err := freePort()
	if err != nil {
		return err
	}
	if r.ClientWire, err = r.lay(ctx, "clients", loopback(api)); err != nil {
		return err
	}
	var brokers []string
	for _, wire := range r.ForwardWires {
		brokers = append(brokers, wire.Address)
	}
	if r.Daemon, err = r.newDaemon(binary, loopback(api), brokers); err != nil {
		return err
	}
	if err := r.Archive.prepare(ctx, r.Daemon); err != nil {
		return err
	}
	return r.Daemon.Start()
}

// makeDisk does without where mounts are not permitted: then the journal's own
// bound has to do for a full disk.
func (r *Rig) makeDisk() (err error) {
	if r.Disk, err = newDisk(diskBytes); errors.Is(err, os.ErrPermission) {
		r.Disk = nil
		return nil
	}
	return err
}

// Drain heals nothing: it starts what has ended and waits until the daemon has
// delivered everything, then ends it by SIGTERM.
func (r *Rig) Drain(ctx context.Context, limit time.Duration) error {
	err := eventually(ctx, limit, func() error {
		if err := errors.Join(r.Archive.Revive(ctx), r.Daemon.Start()); err != nil {
			return err
		}
		return r.Daemon.Drained(ctx)
	})
	if err != nil {
		return fmt.Errorf("the daemon has not delivered everything %w", err)
	}
	r.Daemon.Terminate()
	return nil
}
