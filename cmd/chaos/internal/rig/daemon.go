package rig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"trafficd/cmd/chaos/internal/judge"
)

// APIKey is the clients' key.
const APIKey = "tk_chaos"

// stopLimit is the daemon's own shutdown_timeout.
const stopLimit = 6 * time.Second

// Daemon is trafficd. Its methods are for one goroutine at a time.
type Daemon struct {
	binary string
	args   []string
	env    []string
	log    string
	spoken int64 // length of the log when proc was started
	ops    string
	proc   *child
	wrong  func(format string, args ...any) // told of ends that must not be
}

// newDaemon prepares the daemon's files.
func (r *Rig) newDaemon(binary, api string, brokers []string) (*Daemon, error) {
	ops, err := freePort()
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(APIKey))
	keys := "keys:\n- {name: chaos, sha256: " + hex.EncodeToString(digest[:]) + ", product_instance: " + judge.Instance + ", rights: [ingest]}\n"
	if err := os.WriteFile(r.path("keys.yaml"), []byte(keys), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the keys: %w", err)
	}
	d := &Daemon{binary: binary, env: []string{r.World.Env()}, log: r.path("trafficd.log"), ops: loopback(ops), wrong: r.cfg.Wrong}
	d.set("api.listen="+api, "ops.listen="+d.ops, "api.keys_file="+r.path("keys.yaml"), "log.format=json",
		"registry.feeds=[{product_instance: "+judge.Instance+", file: {path: "+r.cfg.Registry+", column: code}}]", "registry.settle=10ms",
		"shutdown_timeout="+stopLimit.String(), "api.drain_grace=100ms",
		"clickhouse.addresses="+r.ArchiveWire.Address, "kafka.brokers="+strings.Join(brokers, ","))
	d.set(impatience...)
	d.set(r.journalSettings()...)
	return d, nil
}

// impatience makes the daemon try again soon and often, with small blocks: the
// more attempts, the more of them are hit.
var impatience = []string{
	"clickhouse.dial_timeout=500ms", "clickhouse.write_timeout=2s",
	"clickhouse.delivery.linger=100ms", "clickhouse.delivery.retry_min=20ms", "clickhouse.delivery.retry_max=300ms",
	"clickhouse.block_rows=2000",
	"kafka.dial_timeout=500ms", "kafka.request_timeout=1500ms", "kafka.resolve_after=1s", "kafka.metadata_max_age=500ms",
	"kafka.delivery.retry_min=20ms", "kafka.delivery.retry_max=300ms", "kafka.block_rows=2000",
}

// journalSettings keep the journal so small that it is full when a store is
// away for some seconds.
func (r *Rig) journalSettings() []string {
	dir := r.path("journal")
	if r.Disk != nil {
		dir = filepath.Join(r.Disk.Dir, "journal")
	}
	free := 0
	if r.cfg.LowDisk {
		free = 4 << 20
	}
	return []string{
		"journal.dir=" + dir, fmt.Sprint("journal.min_free_bytes=", free), fmt.Sprint("pipeline.idempotency.journal.min_free_bytes=", free),
		"pipeline.idempotency.journal.segment_bytes=1048576", "journal.max_frame_bytes=524288",
		"journal.segment_bytes=1048576", fmt.Sprint("journal.max_bytes=", journalBytes),
	}
}

func (d *Daemon) set(settings ...string) {
	for _, s := range settings {
		d.args = append(d.args, "--set", s)
	}
}

// Start runs the daemon, if it does not run.
func (d *Daemon) Start() (err error) {
	if d.Running() {
		return nil
	}
	if log, err := os.Stat(d.log); err == nil {
		d.spoken = log.Size()
	}
	d.proc, err = start(d.log, d.env, d.binary, d.args...)
	return err
}

// Running notes an end that nobody asked for. A daemon may give up before it
// listens, when the disk fails: a service manager would start it again.
func (d *Daemon) Running() bool {
	if d.proc == nil || !d.proc.ended() {
		return d.proc != nil
	}
	if d.said(listens) || !d.diskFailed() {
		d.wrong("the daemon ended by itself with %v: %s", d.proc.cmd.ProcessState, d.lastWords())
	}
	d.proc = nil
	return false
}

// What the daemon says when it is asked for signals, and when it takes clients.
const (
	handles = `"trafficd starts"`
	listens = `"listening for clients"`
)

func (d *Daemon) said(what string) bool { return strings.Contains(d.words(), what) }

// diskFailed tells whether the daemon ended with an error of its disk.
func (d *Daemon) diskFailed() bool {
	last := d.lastWords()
	return strings.Contains(last, "no space left") || strings.Contains(last, "input/output error")
}

// Kill is kill -9.
func (d *Daemon) Kill() {
	if d.Running() {
		d.proc.kill()
		d.proc = nil
	}
}

// Terminate sends SIGTERM; the exit code has to be 0, within the deadline.
func (d *Daemon) Terminate() {
	if !d.Running() {
		return
	}
	begin := time.Now()
	inTime := d.proc.end(stopLimit + 3*time.Second) // of a busy machine
	switch how := d.proc.cmd.ProcessState; {
	case !inTime:
		d.wrong("the daemon did not end within %v of SIGTERM", time.Since(begin))
	case !how.Success() && !d.unborn() && !d.diskFailed():
		d.wrong("the daemon ended with %v %v after SIGTERM: %s", how, time.Since(begin), d.lastWords())
	}
	d.proc = nil
}

// unborn tells whether SIGTERM ended the daemon before it had asked for
// signals, in the first milliseconds of a process.
func (d *Daemon) unborn() bool {
	how, ok := d.proc.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && how.Signaled() && how.Signal() == syscall.SIGTERM && !d.said(handles)
}

// Pause and Resume are SIGSTOP and SIGCONT.
func (d *Daemon) Pause() { d.send(syscall.SIGSTOP) }

// Resume ends Pause.
func (d *Daemon) Resume() { d.send(syscall.SIGCONT) }

func (d *Daemon) send(s syscall.Signal) {
	if d.Running() {
		d.proc.signal(s)
	}
}

// lastWords is the end of what this process has said.
func (d *Daemon) lastWords() string {
	text := d.words()
	return strings.TrimSpace(text[max(0, len(text)-1200):])
}

// words is what this process has said.
func (d *Daemon) words() string {
	f, err := os.Open(d.log)
	if err != nil {
		return "" // nothing was said
	}
	defer f.Close()
	_, _ = f.Seek(d.spoken, io.SeekStart)
	text, _ := io.ReadAll(f)
	return string(text)
}

// Drained is nil when the daemon says that both stores have everything.
func (d *Daemon) Drained(ctx context.Context) error {
	text, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"trafficd_pipeline_lag_frames", "trafficd_pipeline_lag_seconds"} {
		if n := sum(text, name); n != 0 {
			return fmt.Errorf("%s is %v", name, n)
		}
	}
	return nil
}

func (d *Daemon) metrics(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.ops+"/metrics", nil)
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

// sum adds up a metric over its labels; NaN where there is none.
func sum(text, name string) float64 {
	total := math.NaN()
	for line := range strings.Lines(text) {
		full, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(full, "{"); base != name {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			return math.NaN()
		}
		if math.IsNaN(total) {
			total = 0
		}
		total += v
	}
	return total
}
