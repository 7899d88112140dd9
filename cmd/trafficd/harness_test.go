package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/ops"
	"trafficd/pipeline/lib/gunzip/compress"
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
	testKey  = daemontest.Key
	instance = daemontest.Instance
)

// detector returns a detector of the test's registry: D0000 … D0099.
func detector(i int) string { return daemontest.Detector(i) }

// process is a trafficd process for a test.
type process struct {
	t *testing.T
	*daemontest.Trafficd
}

// newProcess configures a daemon with one key and both stores disabled unless settings enable them.
func newProcess(t *testing.T, settings ...string) *process {
	t.Helper()
	return &process{t, daemontest.New(t, settings...)}
}

// start starts the daemon and kills it when the test ends.
func (d *process) start() *process {
	d.t.Helper()
	d.Run()
	return d
}

func (d *process) end() (code int, log string) { return d.End() }
func (d *process) terminate() (log string)     { return d.Terminate() }

func (d *process) signal(s syscall.Signal) *process {
	d.t.Helper()
	require.NoError(d.t, d.Signal(s))
	return d
}

// kill kills the daemon and waits until it has exited.
func (d *process) kill() {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	<-d.Done()
}

func (d *process) ready() (status int, r ops.Readiness)      { return d.Readiness() }
func (d *process) get(path string) (status int, body []byte) { return d.Fetch(path) }
func (d *process) await(status int) ops.Readiness            { return d.Await(status) }
func (d *process) metric(name string) float64                { return d.Metric(name) }

func (d *process) eventually(ok func() bool, what string, args ...any) {
	d.t.Helper()
	d.Eventually(ok, what, args...)
}

// metricOf returns the metric of one sink, or NaN.
func (d *process) metricOf(name, sink string) float64 {
	metrics, _ := d.Metrics(context.Background())
	if v, ok := metrics[fmt.Sprintf("%s{sink=%q}", name, sink)]; ok {
		return v
	}
	return math.NaN()
}

func freeAddress(t *testing.T) string { return daemontest.FreeAddress(t) }

// trafficctl returns the path of the program.
func trafficctl(t *testing.T) string {
	t.Helper()
	path, err := launch.Program(t.Context(), "trafficctl")
	require.NoError(t, err)
	return path
}

// response is the IngestResult of contract 5.2, or an error.
type (
	response = daemontest.Response
	ledger   = daemontest.Ledger
)

func pack(body string) []byte            { return compress.Gzip(body) }
func batchNumber(batch, size int) string { return daemontest.BatchNumber(batch, size) }
func keyOf(batch int) string             { return daemontest.KeyOf(batch) }

func startLoad(t *testing.T, promised *ledger, address string, clients int, expected func(error) bool) *daemontest.Load {
	return daemontest.StartLoad(t, promised, address, clients, expected)
}

// post sends a batch.
func (d *process) post(ctx context.Context, body, idempotencyKey string) (response, error) {
	return d.Post(ctx, body, idempotencyKey)
}
