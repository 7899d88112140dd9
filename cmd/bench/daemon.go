package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trafficd/cmd/internal/launch"
)

// daemon is a trafficd in a temporary directory. By default both sinks are disabled, so that a
// batch ends in the journal.
type daemon struct{ launch.Daemon }

const benchKey = "bench"

// newDaemon writes the files of a daemon whose registry has the given detectors.
func newDaemon(program string, detectors []string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "trafficd-bench-")
	if err != nil {
		return nil, err
	}
	d := &daemon{launch.Daemon{Binary: program, Dir: dir}}
	return d, d.Configure("bench", benchKey, "ingest, forecast, routing", detectors, "log.level=warn",
		"journal.max_bytes=64GiB", "journal.min_free_bytes=0", "clickhouse.enabled=false", "kafka.enabled=false", "ops.pprof=true")
}

// start starts a daemon whose registry has the given detectors and waits until it is ready.
func start(ctx context.Context, program string, detectors []string) (*daemon, error) {
	d, err := newDaemon(program, detectors)
	if err == nil {
		err = d.start(ctx)
	}
	if err != nil && d != nil {
		d.stop()
	}
	return d, err
}

func (d *daemon) start(ctx context.Context) error {
	return errors.Join(d.Start(), d.AwaitReady(ctx, 30*time.Second))
}

// stop stops the daemon and removes its directory.
func (d *daemon) stop() {
	_ = d.Stop(35 * time.Second) // its directory is removed anyway
	os.RemoveAll(d.Dir)
}

// client is a persistent connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (d *daemon) dial() (*client, error) {
	c, err := net.Dial("tcp", d.API)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReader(c)}, nil
}

const ingestPath = "/dataprovider/ingestion/v1/detectors/data/ingest"

// head returns the header of an ingest request with a gzip body of this length.
func head(key string, length int, headers string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: apiKey %s\r\nContent-Type: application/json\r\n"+
		"Content-Encoding: gzip\r\nContent-Length: %d\r\n%s\r\n", ingestPath, key, length, headers)
}

// post sends the body and checks that every item was accepted.
func (c *client) post(b body) error {
	if _, err := (&net.Buffers{[]byte(head(benchKey, len(b.zipped), "")), b.zipped}).WriteTo(c.Conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	return check(resp, http.StatusMultiStatus, b.answer)
}

// check requires a status and a body that contains text.
func check(resp *http.Response, status int, text string) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != status || !bytes.Contains(body, []byte(text))) {
		err = fmt.Errorf("status %d, want %d with %q: %.300s", resp.StatusCode, status, text, body)
	}
	return err
}

// open sends a request on a new connection, which is closed by stop or when ctx ends. The daemon
// may respond before it has read everything.
func (d *daemon) open(ctx context.Context, head string, body []byte) (resp *http.Response, stop func(), err error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", d.API)
	if err != nil {
		return nil, nil, err
	}
	detach := context.AfterFunc(ctx, func() { _ = c.Close() })
	stop = func() {
		detach()
		c.Close()
	}
	go func() { _, _ = (&net.Buffers{[]byte(head), body}).WriteTo(c) }()
	if resp, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		stop()
	}
	return resp, stop, err
}

// perBatch sends n bodies in sequence and returns the daemon's CPU milliseconds and allocations per
// body.
func (d *daemon) perBatch(ctx context.Context, c *client, b body, n int) (ms, allocs float64, err error) {
	var mallocs [3]float64 // the first two differ by the allocations of reading the number
	for i := range 2 {
		if mallocs[i], err = d.mallocs(ctx); err != nil {
			return 0, 0, err
		}
	}
	before := d.cpu()
	for range n {
		if err := c.post(b); err != nil {
			return 0, 0, err
		}
	}
	used := d.cpu() - before
	mallocs[2], err = d.mallocs(ctx)
	reading := mallocs[1] - mallocs[0]
	return float64(used.Microseconds()) / 1000 / float64(n), (mallocs[2] - mallocs[1] - reading) / float64(n), err
}

// mallocs returns the number of allocations since the daemon's start. It does not use the metric,
// which lacks what threads have not reported yet, and whose reading allocates thousands of objects.
func (d *daemon) mallocs(ctx context.Context) (float64, error) {
	_, profile, err := d.Get(ctx, "/debug/pprof/allocs?debug=1")
	if err != nil {
		return 0, fmt.Errorf("cannot read the number of allocations: %w", err)
	}
	_, rest, _ := strings.Cut(string(profile), "\n# Mallocs = ")
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(number, 64)
}

// load sends n bodies over each connection concurrently.
func (d *daemon) load(b body, connections, n int) (time.Duration, error) {
	began := time.Now()
	_, err := d.paced(b, connections, 0, connections*n)
	return time.Since(began), err
}

// paced sends n bodies at the given interval, alternating between the connections. It returns the
// milliseconds from the time at which each body is due to its 207. A body waits for earlier ones
// only if all connections are busy.
func (d *daemon) paced(b body, connections int, interval time.Duration, n int) ([]float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, connections)
	ms := make([]float64, n)
	began := time.Now()
	for k := range connections {
		wg.Go(func() {
			c, err := d.dial()
			if err == nil {
				defer c.Close()
			}
			for i := k; i < n && err == nil; i += connections {
				due := began.Add(time.Duration(i) * interval)
				time.Sleep(time.Until(due))
				err = c.post(b)
				ms[i] = float64(time.Since(due).Microseconds()) / 1000
			}
			errs[k] = err
		})
	}
	wg.Wait()
	return ms, errors.Join(errs...)
}

// metric returns one of the daemon's metrics.
func (d *daemon) metric(ctx context.Context, name string) (float64, error) {
	metrics, err := d.Metrics(ctx)
	v, ok := metrics[name]
	if err == nil && !ok {
		err = fmt.Errorf("the daemon has no metric %s", name)
	}
	return v, err
}

// cpu returns the CPU time of all threads of the daemon.
func (d *daemon) cpu() time.Duration {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.PID()))
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

// peakMB returns the peak resident size in units of 10⁶ bytes.
func (d *daemon) peakMB() (float64, error) { return d.memoryMB("VmHWM") }

// memoryMB returns a field of /proc/PID/status, in units of 10⁶ bytes.
func (d *daemon) memoryMB(name string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("/proc does not report the daemon's resident size")
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // never fails
	return time.Duration(t.Nano())
}
