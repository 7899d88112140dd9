package main

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
)

// TestAdoptJournal tests a daemon that dies with blocks in flight and others undelivered.
// trafficctl journal adopt delivers its journal while another daemon is running, and is killed and
// stopped in between. Each measurement is in both stores once. Then the daemon may return.
func TestAdoptJournal(t *testing.T) {
	ctl := trafficctl(t)
	lost, c, k := onRealStores(t)
	lost.Set("clickhouse.delivery.max_rows=700", "kafka.delivery.max_rows=700") // parts of batches
	other := newProcess(t, settingsOf(lost, "clickhouse", "kafka")...)
	var promised ledger
	batch := 0
	send := func(d *process, n int) {
		for range n {
			d.sendUntilAccepted(&promised, batch, 500)
			batch++
		}
	}
	adopt := func(flags ...string) *process {
		args := append([]string{"journal", "adopt", filepath.Join(lost.Dir, "journal")}, append(lost.Args, flags...)...)
		return &process{t, &daemontest.Trafficd{T: t, Daemon: launch.Daemon{Binary: ctl, Dir: lost.Dir, Args: args}}}
	}
	failsWith := func(want string, flags ...string) bool {
		out, err := exec.Command(ctl, adopt(flags...).Args...).CombinedOutput()
		return err != nil && strings.Contains(string(out), want)
	}
	until := func(ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, time.Minute, 20*time.Millisecond)
	}

	lost.start().Await(http.StatusOK)
	send(lost, 5)
	lost.awaitDelivered()
	require.NoError(t, c.Pause())
	require.NoError(t, k.Pause())
	send(lost, 20)
	lost.awaitLag("clickhouse")
	lost.awaitLag("kafka")
	require.True(t, failsWith("the directory is locked"))
	lost.kill()
	require.True(t, failsWith("its measurements must also be delivered to kafka, which is disabled", "--set", "kafka.enabled=false"))

	a := adopt("--set", "kafka.request_timeout=1s").start() // with both stores down
	until(func() bool { return strings.Contains(a.Log(), "retrying") })
	require.True(t, failsWith("the directory is locked"))
	a.kill()
	require.NoError(t, k.Resume())
	a = adopt().start() // killed after it has delivered to Kafka
	until(func() bool { return k.Count(t, "measurements") == promised.Items() })
	a.kill()
	require.NoError(t, c.Resume())
	other.start().Await(http.StatusOK)
	send(other, 5)
	before := c.Query(t, "SELECT count() FROM trafficd.measurements")
	a = adopt().start() // stopped after it has delivered some rows to ClickHouse
	until(func() bool { return a.Exited() || c.Query(t, "SELECT count() FROM trafficd.measurements") != before })
	_ = a.Signal(syscall.SIGTERM) // fails if it has exited
	a.End()
	for _, want := range []string{"everything in ", "delivered to clickhouse: 0 rows"} { // a second run has nothing left to do
		a = adopt().start()
		code, log := a.End()
		require.Zero(t, code, log)
		require.Contains(t, log, want)
	}
	lost.start().Await(http.StatusOK)
	send(lost, 5)
	lost.awaitDelivered()
	other.awaitDelivered()
	promised.Check(t, c, k)
}

// settingsOf returns the settings of some sections of a daemon.
func settingsOf(d *process, sections ...string) (settings []string) {
	for _, arg := range d.Args {
		if section, _, _ := strings.Cut(arg, "."); slices.Contains(sections, section) {
			settings = append(settings, arg)
		}
	}
	return settings
}
