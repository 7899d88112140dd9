package rig

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"trafficd/cmd/chaos/internal/judge"
	"trafficd/cmd/internal/launch"
)

// APIKey is the API key of the clients.
const APIKey = "tk_chaos"

// stopLimit is the daemon's shutdown_timeout.
const stopLimit = 6 * time.Second

// Daemon is trafficd. Its methods must not be called concurrently.
type Daemon struct {
	launch.Daemon
	wrong   func(format string, args ...any) // reports unexpected exits
	watched bool                             // an exit of the last process is unexpected
}

// newDaemon writes the daemon's configuration: short retry delays and small blocks, so that more deliveries are hit by a
// fault, and a journal that fills up when a store is down for a few seconds.
func (r *Rig) newDaemon(binary string) (*Daemon, error) {
	d := &Daemon{wrong: r.cfg.Wrong, Daemon: launch.Daemon{Binary: binary, Dir: r.cfg.Dir, Env: []string{r.Faults.Env()}}}
	var brokers []string
	for _, wire := range r.ForwardWires {
		brokers = append(brokers, wire.Address)
	}
	journal, free := r.path("journal"), 0
	if r.Disk != nil {
		journal = filepath.Join(r.Disk.Dir, "journal")
	}
	if r.cfg.LowDisk {
		free = 4 << 20
	}
	return d, d.Configure(judge.Instance, APIKey, "ingest", r.cfg.Detectors,
		"shutdown_timeout="+stopLimit.String(),
		"clickhouse.addresses="+r.ArchiveWire.Address, "kafka.brokers="+strings.Join(brokers, ","),
		"clickhouse.dial_timeout=500ms", "clickhouse.write_timeout=2s",
		"clickhouse.delivery.linger=100ms", "clickhouse.delivery.retry_min=20ms", "clickhouse.delivery.retry_max=300ms",
		"clickhouse.block_rows=2000",
		"kafka.dial_timeout=500ms", "kafka.request_timeout=1500ms", "kafka.resolve_after=1s", "kafka.metadata_max_age=500ms",
		"kafka.delivery.retry_min=20ms", "kafka.delivery.retry_max=300ms", "kafka.block_rows=2000",
		"journal.dir="+journal, "journal.max_frame_bytes=524288", "journal.segment_bytes=1048576",
		fmt.Sprint("journal.max_bytes=", journalBytes), fmt.Sprint("journal.min_free_bytes=", free),
		"pipeline.idempotency.journal.segment_bytes=1048576", fmt.Sprint("pipeline.idempotency.journal.min_free_bytes=", free))
}

// Start starts the daemon unless it is running.
func (d *Daemon) Start() error {
	if d.Running() {
		return nil
	}
	err := d.Daemon.Start()
	d.watched = err == nil
	return err
}

// Running reports whether the daemon is running, and records an unexpected exit. An exit before the daemon listens is
// expected if the disk fails: a service manager would restart it.
func (d *Daemon) Running() bool {
	if !d.Exited() {
		return true
	}
	if d.watched && (strings.Contains(d.Log(), listening) || !d.diskFailed()) {
		d.wrong("the daemon exited unexpectedly with %v: %s", d.State(), d.LogTail())
	}
	d.watched = false
	return false
}

// Log messages that show that the daemon handles signals, and that it accepts clients.
const (
	handlesSignals = `"trafficd starts"`
	listening      = `"listening for clients"`
)

// diskFailed reports whether the daemon exited with a disk error.
func (d *Daemon) diskFailed() bool {
	last := d.LogTail()
	return strings.Contains(last, "no space left") || strings.Contains(last, "input/output error")
}

// Kill sends SIGKILL.
func (d *Daemon) Kill() error {
	if d.Running() {
		d.watched = false
		_ = d.Daemon.Kill() // it may have exited just now
	}
	return nil
}

// Terminate sends SIGTERM. It records an exit code other than 0, and an exit after the deadline.
func (d *Daemon) Terminate() error {
	if !d.Running() {
		return nil
	}
	d.watched = false
	begin := time.Now()
	if err := d.Stop(stopLimit + 3*time.Second); err != nil { // 3 s more, as the machine may be busy
		d.wrong("the daemon did not exit within %v of SIGTERM", time.Since(begin))
		return nil
	}
	// SIGTERM kills a process that has just started and does not handle signals yet.
	status, ok := d.State().Sys().(syscall.WaitStatus)
	early := ok && status.Signaled() && status.Signal() == syscall.SIGTERM && !strings.Contains(d.Log(), handlesSignals)
	if !d.State().Success() && !early && !d.diskFailed() {
		d.wrong("the daemon exited with %v, %v after SIGTERM: %s", d.State(), time.Since(begin), d.LogTail())
	}
	return nil
}

// Drained returns nil if the daemon reports that it has delivered everything to both stores.
func (d *Daemon) Drained(ctx context.Context) error {
	metrics, err := d.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"trafficd_pipeline_lag_frames", "trafficd_pipeline_lag_seconds"} {
		if n := metrics.Sum(name); n != 0 {
			return fmt.Errorf("%s is %v", name, n)
		}
	}
	return nil
}
