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

// APIKey is the clients' key.
const APIKey = "tk_chaos"

// stopLimit is the daemon's shutdown_timeout.
const stopLimit = 6 * time.Second

// Daemon is trafficd. Its methods are for one goroutine at a time.
type Daemon struct {
	launch.Daemon
	wrong   func(format string, args ...any) // receives exits that must not happen
	watched bool                             // an exit of the last process is unexpected
}

// newDaemon writes the daemon's files and settings. It retries soon and often, with small blocks: the more attempts, the
// more of them are hit. The journal is so small that it fills up when a store is down for a few seconds.
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

// Running reports whether the daemon runs, and records an unexpected exit. A daemon may give up before it listens if the
// disk fails: a service manager would start it again.
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

// What the daemon logs when it handles signals and when it accepts clients.
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

// Terminate sends SIGTERM. The exit code must be 0, within the deadline; anything else is recorded.
func (d *Daemon) Terminate() error {
	if !d.Running() {
		return nil
	}
	d.watched = false
	begin := time.Now()
	if err := d.Stop(stopLimit + 3*time.Second); err != nil { // on a busy machine
		d.wrong("the daemon did not exit within %v of SIGTERM", time.Since(begin))
		return nil
	}
	// In the first milliseconds of a process SIGTERM ends it: it does not handle signals yet.
	status, ok := d.State().Sys().(syscall.WaitStatus)
	early := ok && status.Signaled() && status.Signal() == syscall.SIGTERM && !strings.Contains(d.Log(), handlesSignals)
	if !d.State().Success() && !early && !d.diskFailed() {
		d.wrong("the daemon exited with %v %v after SIGTERM: %s", d.State(), time.Since(begin), d.LogTail())
	}
	return nil
}

// Drained returns nil if the daemon reports that both stores have everything.
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
