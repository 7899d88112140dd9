package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is a trafficd in a folder of its own, with both sinks off: its journal is where the way ends.
type daemon struct {
	cmd  *exec.Cmd
	dir  string
	api  string
	ops  string
	more string // of the configuration
	logs bytes.Buffer

	changes int // how often its forecasts were changed
}

const benchKey = "bench"

// start starts a daemon with a registry of these detectors.
func start(ctx context.Context, program string, detectors []string) (*daemon, error) {
	d, err := newDaemon()
	if err != nil {
		return nil, err
	}
	return d, d.start(ctx, program, detectors)
}

func newDaemon() (*daemon, error) {
	dir, err := os.MkdirTemp("", "trafficd-bench-")
	return &daemon{dir: dir, api: freeAddress(), ops: freeAddress()}, err
}

// start returns when the daemon is ready; env is added to its environment.
func (d *daemon) start(ctx context.Context, program string, detectors []string, env ...string) error {
	if err := d.files(detectors); err != nil {
		return err
	}
	d.cmd = exec.CommandContext(ctx, program, "--config", filepath.Join(d.dir, "trafficd.yaml"))
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = &d.logs, &d.logs
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s (make build makes it): %w", program, err)
	}
	return d.ready(ctx)
}

func (d *daemon) files(detectors []string) error {
	list, err := json.Marshal(detectors)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`log: {level: warn}
api:
  listen: %s
  keys: [{name: bench, sha256: "%x", product_instance: bench, rights: [ingest, forecast, routing]}]
ops: {listen: %q}
registry:
  feeds: [{product_instance: bench, file: {path: %q, format: json}}]
journal: {dir: %q, max_bytes: 64GiB, min_free_bytes: 0}
clickhouse: {enabled: false}
kafka: {enabled: false}
%s`, d.api, sha256.Sum256([]byte(benchKey)), d.ops, filepath.Join(d.dir, "detectors.json"), filepath.Join(d.dir, "journal"), d.more)
	if err := os.WriteFile(filepath.Join(d.dir, "detectors.json"), list, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "trafficd.yaml"), []byte(config), 0o600)
}

// stop ends the daemon and removes its folder.
func (d *daemon) stop() {
	d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait() // a daemon that was told to stop may say what it likes
	os.RemoveAll(d.dir)
}

func (d *daemon) ready(ctx context.Context) error {
	for range 300 {
		if resp, err := http.Get("http://" + d.ops + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	d.stop()
	return fmt.Errorf("trafficd did not get ready; its log says:\n%s", d.logs.String())
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}

// client is one kept connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (d *daemon) dial() (*client, error) {
	c, err := net.Dial("tcp", d.api)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReader(c)}, nil
}

// post sends the body and checks that every item was accepted.
func (c *client) post(b Body) error {
	head := fmt.Sprintf("POST /dataprovider/ingestion/v1/detectors/data/ingest HTTP/1.1\r\nHost: bench\r\nAuthorization: apiKey %s\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", benchKey, len(b.Gzip))
	if _, err := (&net.Buffers{[]byte(head), b.Gzip}).WriteTo(c.Conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf(`"accepted":%d,`, b.Items); resp.StatusCode != http.StatusMultiStatus || !bytes.Contains(text, []byte(want)) {
		return fmt.Errorf("status %d, wanted 207 with %s but got %.300s", resp.StatusCode, want, text)
	}
	return nil
}

// perBatch sends n bodies, one after the other, and gives the daemon's CPU milliseconds and allocations for each.
func (d *daemon) perBatch(c *client, b Body, n int) (ms, allocs float64, err error) {
	mallocs, err := d.mallocs()
	if err != nil {
		return 0, 0, err
	}
	before := d.cpu()
	for range n {
		if err := c.post(b); err != nil {
			return 0, 0, err
		}
	}
	used := d.cpu() - before
	after, err := d.mallocs()
	return float64(used.Microseconds()) / 1000 / float64(n), (after - mallocs) / float64(n), err
}

// load sends n bodies over each of some connections at the same time.
func (d *daemon) load(b Body, connections, n int) (time.Duration, error) {
	var wg sync.WaitGroup
	failed := make(chan error, connections)
	began := time.Now()
	for range connections {
		wg.Go(func() {
			c, err := d.dial()
			if err == nil {
				defer c.Close()
			}
			for i := 0; i < n && err == nil; i++ {
				err = c.post(b)
			}
			if err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return time.Since(began), nil
	}
}

// mallocs is the number of objects that the daemon has allocated.
func (d *daemon) mallocs() (float64, error) { return d.metric("go_memstats_mallocs_total") }

// metric reads one of the daemon's metrics.
func (d *daemon) metric(name string) (float64, error) {
	resp, err := http.Get("http://" + d.ops + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("the daemon's metrics do not have %s", name)
}

// cpu is the user and system time of all threads of the daemon, to the nanosecond where the kernel counts so.
func (d *daemon) cpu() time.Duration {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	sum := time.Duration(0)
	for _, t := range threads {
		text, _ := os.ReadFile(t)
		if ran, _, ok := strings.Cut(string(text), " "); ok {
			ns, _ := strconv.ParseInt(ran, 10, 64)
			sum += time.Duration(ns)
		}
	}
	return sum
}

// peakMB is the largest resident size so far in units of 10⁶ bytes.
func (d *daemon) peakMB() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("/proc does not tell the daemon's resident size")
}

// ownCPU is the user and system time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
