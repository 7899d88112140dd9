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

// process is a trafficd process for a test.
type process struct {
	t *testing.T
	*daemontest.Trafficd
}

// The types and constants of package daemontest.
type (
	response = daemontest.Response
	ledger   = daemontest.Ledger
)

const (
	testKey  = daemontest.Key
	instance = daemontest.Instance
)

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

// metricOf returns the metric of one sink, or NaN.
func (d *process) metricOf(name, sink string) float64 {
	metrics, _ := d.Metrics(context.Background())
	if v, ok := metrics[fmt.Sprintf("%s{sink=%q}", name, sink)]; ok {
		return v
	}
	return math.NaN()
}

// trafficctl returns the path of the program.
func trafficctl(t *testing.T) string {
	t.Helper()
	path, err := launch.Program(t.Context(), "trafficctl")
	require.NoError(t, err)
	return path
}
