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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/sources/ingest"
)

// daemon is a trafficd in a temporary directory. By default both sinks are disabled, so batches
// stay in the journal.
type daemon struct{ launch.Daemon }

const benchKey = "bench"

// newDaemon returns a daemon with the given detectors in its registry and writes its files, but
// does not start it.
func newDaemon(program string, detectors []string, settings ...string) *daemon {
	d := &daemon{launch.Daemon{Binary: program, Dir: tempDir()}}
	must.Do(d.Configure("bench", benchKey, "ingest, forecast, routing", detectors, "log.level=warn", "journal.max_bytes=64GiB",
		"journal.min_free_bytes=0", "clickhouse.enabled=false", "kafka.enabled=false", "ops.pprof=true"))
	d.Set(settings...)
	return d
}

func tempDir() string { return must.Get(os.MkdirTemp("", "trafficd-bench-")) }

// start starts a new daemon with the given detectors in its registry and waits until it is ready.
func start(ctx context.Context, program string, detectors []string, settings ...string) *daemon {
	d := newDaemon(program, detectors, settings...)
	d.start(ctx)
	return d
}

func (d *daemon) start(ctx context.Context) {
	must.Do(d.Start())
	if err := d.AwaitReady(ctx, 30*time.Second); err != nil {
		d.stop()
		must.Do(err)
	}
}

func (d *daemon) stop() {
	_ = d.Stop(35 * time.Second) // the data is temporary, so an error does not matter
	os.RemoveAll(d.Dir)
}

// client is a persistent connection to the daemon.
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

// head returns the header of an ingest request with a gzip body of the given length.
func head(key string, length int, headers string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: apiKey %s\r\nContent-Type: application/json\r\n"+
		"Content-Encoding: gzip\r\nContent-Length: %d\r\n%s\r\n", ingest.Path, key, length, headers)
}

// post sends the body and returns an error unless the response is the expected 207.
func (c *client) post(b body) error {
	if _, err := (&net.Buffers{[]byte(head(benchKey, len(b.zipped), "")), b.zipped}).WriteTo(c.Conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	return check(resp, http.StatusMultiStatus, b.wantResponse)
}

// check returns an error unless the response has the given status and its body contains text.
func check(resp *http.Response, status int, text string) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != status || !bytes.Contains(body, []byte(text))) {
		err = fmt.Errorf("status %d, want %d with %q: %.300s", resp.StatusCode, status, text, body)
	}
	return err
}

// request sends a request and returns the header and the body of the response. It returns an error
// if the status is not the given one. headers alternates names and values.
func request(
	ctx context.Context, client *http.Client, method, url string, body []byte, status int, headers ...string,
) (http.Header, []byte, error) {
	r, err := launch.Request(ctx, client, method, url, body, headers...)
	if err == nil && r.Status != status {
		err = fmt.Errorf("%s %s: status %d, want %d: %.300s", method, url, r.Status, status, r.Body)
	}
	return r.Header, r.Body, err
}

// open sends a request on a new connection and returns the response, which may arrive before the
// daemon has read the whole request. The connection is closed by stop or when ctx is done.
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

// perBatch sends b n times in sequence and returns the daemon's CPU time in milliseconds and the
// number of its allocations, both per request.
func (d *daemon) perBatch(ctx context.Context, c *client, b body, n int) (ms, allocs float64) {
	first := d.mallocs(ctx)
	begin := d.mallocs(ctx)
	before := d.cpu()
	for range n {
		must.Do(c.post(b))
	}
	used := d.cpu() - before
	reading := begin - first // mallocs itself allocates
	return milliseconds(used) / float64(n), (d.mallocs(ctx) - begin - reading) / float64(n)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// mallocs returns the number of the daemon's allocations since its start. It does not use the
// metric go_memstats_mallocs_total, which omits allocations that are still counted per thread, and
// which takes thousands of allocations to read.
func (d *daemon) mallocs(ctx context.Context) float64 {
	_, profile, err := d.Get(ctx, "/debug/pprof/allocs?debug=1")
	must.Do(err)
	_, rest, _ := strings.Cut(string(profile), "\n# Mallocs = ")
	number, _, _ := strings.Cut(rest, "\n")
	return must.Get(strconv.ParseFloat(number, 64))
}

// load sends b n times over each of the connections, concurrently, and returns how long that took.
func (d *daemon) load(b body, connections, n int) time.Duration {
	began := time.Now()
	d.sendPaced(b, connections, 0, connections*n)
	return time.Since(began)
}

// sendPaced sends b n times at the given interval, using the connections in turn. It returns the
// latency of each request in milliseconds, from its scheduled time to its 207. A request is delayed
// only if its connection is still busy.
func (d *daemon) sendPaced(b body, connections int, interval time.Duration, n int) []float64 {
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
				ms[i] = milliseconds(time.Since(due))
			}
			errs[k] = err
		})
	}
	wg.Wait()
	must.Do(errors.Join(errs...))
	return ms
}

// latencies sends b n times in sequence, at least the given interval apart, and returns the latency
// of each request in milliseconds.
func (d *daemon) latencies(b body, n int, interval time.Duration) (ms []float64) {
	c := must.Get(d.dial())
	defer c.Close()
	for range n {
		began := time.Now()
		must.Do(c.post(b))
		ms = append(ms, milliseconds(time.Since(began)))
		time.Sleep(time.Until(began.Add(interval)))
	}
	return ms
}

// p99 returns the 99th percentile of a list, or 0 if it is empty. It sorts the list.
func p99(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)*99/100]
}

func (d *daemon) metric(ctx context.Context, name string) (float64, error) {
	metrics, err := d.Metrics(ctx)
	v, ok := metrics[name]
	if err == nil && !ok {
		err = fmt.Errorf("the daemon has no metric %s", name)
	}
	return v, err
}

// cpu returns the CPU time of the daemon's live threads.
func (d *daemon) cpu() (sum time.Duration) {
	threads, _ := procfs.AllThreads(d.PID()) // none if it has exited
	for _, t := range threads {
		spent, _ := t.Schedstat() // 0 if it has exited
		sum += time.Duration(spent.RunningNanoseconds)
	}
	return sum
}

// rssMB returns the resident size in units of 10⁶ bytes.
func (d *daemon) rssMB() float64 { return float64(d.status().VmRSS) / 1e6 }

// peakMB returns the peak resident size in units of 10⁶ bytes.
func (d *daemon) peakMB() float64 { return float64(d.status().VmHWM) / 1e6 }

func (d *daemon) status() procfs.ProcStatus {
	return must.Get(must.Get(procfs.NewProc(d.PID())).NewStatus())
}

func ownCPU() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // never fails
	return time.Duration(t.Nano())
}
