package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
	"trafficd/cmd/internal/ops"
	"trafficd/schemas/gunzip/compress"
	"trafficd/sources/ingest"
)

// binary is the path of the daemon.
var binary string

func TestMain(m *testing.M) {
	var err error
	if binary, err = launch.Program(context.Background(), "trafficd"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	testKey  = "tk_test"
	instance = "city"
)

// detector returns a detector of the test's registry: D0000 … D0099.
func detector(i int) string { return fmt.Sprintf("D%04d", i%100) }

// process is a trafficd process for a test.
type process struct {
	t *testing.T
	launch.Daemon
}

// newProcess configures a daemon with one key and both stores disabled unless settings enable them.
func newProcess(t *testing.T, settings ...string) *process {
	t.Helper()
	d := &process{t, launch.Daemon{Binary: binary, Dir: t.TempDir()}}
	var detectors []string
	for i := range 100 {
		detectors = append(detectors, detector(i))
	}
	require.NoError(t, d.Configure(instance, testKey, "ingest", detectors,
		"journal.min_free_bytes=0", "clickhouse.enabled=false", "kafka.enabled=false"))
	d.Set(settings...)
	return d
}

// start starts the daemon and kills it when the test ends.
func (d *process) start() *process {
	d.t.Helper()
	require.NoError(d.t, d.Start())
	started := d.Process
	d.t.Cleanup(func() {
		_ = started.Kill() // fails only if it has exited
		if d.t.Failed() {
			d.t.Logf("log of the daemon:\n%s", lastBytes([]byte(d.Log()), 6000))
		}
	})
	return d
}

// end waits until the daemon exits and returns its exit code and log.
func (d *process) end() (code int, log string) {
	d.t.Helper()
	select {
	case <-d.Done():
	case <-time.After(2 * time.Minute):
		d.t.Fatal("the daemon does not exit")
	}
	return d.State().ExitCode(), d.Log()
}

func (d *process) signal(s syscall.Signal) *process {
	d.t.Helper()
	require.NoError(d.t, d.Signal(s))
	return d
}

// terminate stops the daemon with SIGTERM, requires the exit code 0, and returns the log.
func (d *process) terminate() (log string) {
	d.t.Helper()
	code, log := d.signal(syscall.SIGTERM).end()
	require.Zero(d.t, code, log)
	return log
}

// kill kills the daemon and waits until it has exited.
func (d *process) kill() {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	<-d.Done()
}

// ready returns the response of /readyz; status 0 means that there was none.
func (d *process) ready() (status int, r ops.Readiness) {
	status, body := d.get("/readyz")
	_ = json.Unmarshal(body, &r)
	return status, r
}

func (d *process) get(path string) (status int, body []byte) {
	status, body, _ = d.Get(context.Background(), path)
	return status, body
}

// await waits until /readyz returns the status.
func (d *process) await(status int) ops.Readiness {
	d.t.Helper()
	var r ops.Readiness
	d.eventually(func() bool {
		var got int
		got, r = d.ready()
		return got == status
	}, "readiness %d", status)
	return r
}

// eventually waits until ok returns true. It fails when the daemon exits.
func (d *process) eventually(ok func() bool, what string, args ...any) {
	d.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		select {
		case <-d.Done():
			d.t.Fatalf("the daemon exited while the test waited for: "+what, args...)
		default:
		}
	}
	_, r := d.ready()
	d.t.Fatalf("timed out after a minute waiting for: "+what+"; readiness: %+v", append(args, r)...)
}

// metric returns the sum of all series of a metric, or NaN if there is none.
func (d *process) metric(name string) float64 {
	metrics, _ := d.Metrics(context.Background()) // without a response there is no series
	return metrics.Sum(name)
}

// metricOf returns the metric of one sink, or NaN.
func (d *process) metricOf(name, sink string) float64 {
	metrics, _ := d.Metrics(context.Background())
	if v, ok := metrics[fmt.Sprintf("%s{sink=%q}", name, sink)]; ok {
		return v
	}
	return math.NaN()
}

// response is the IngestResult of contract 5.2, or an error.
type response struct {
	status     int
	header     http.Header
	Accepted   int `json:"accepted"`
	Rejected   int `json:"rejected"`
	Rejections []struct {
		Index int `json:"index"`
		Error struct {
			ErrorCode string `json:"errorCode"`
			Parameter string `json:"parameter"`
		} `json:"error"`
	} `json:"rejections"`
	ErrorCode   string `json:"errorCode"`
	Description string `json:"description"`
}

// post sends a batch.
func (d *process) post(ctx context.Context, body, idempotencyKey string) (response, error) {
	return d.postPacked(ctx, http.DefaultClient, pack(body), idempotencyKey)
}

func pack(body string) []byte { return compress.Gzip(body) }

func (d *process) postPacked(ctx context.Context, client *http.Client, packed []byte, idempotencyKey string) (response, error) {
	req, err := d.request(ctx, packed, idempotencyKey)
	if err != nil {
		return response{}, err
	}
	r, err := client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer r.Body.Close()
	a := response{status: r.StatusCode, header: r.Header}
	return a, json.NewDecoder(r.Body).Decode(&a)
}

func (d *process) request(ctx context.Context, packed []byte, idempotencyKey string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.API+ingest.Path, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+testKey)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	return req, nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := launch.FreeAddress()
	require.NoError(t, err)
	return address
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
