package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"
)

// TestDrainUnderLoad checks promise 8: after SIGTERM under load, the daemon exits with 0. Requests
// in progress and requests within the drain grace get a 207. Later ones get a 503, or are refused
// or reset when they connect. Batches that got a 207 are in both stores after the next start.
func TestDrainUnderLoad(t *testing.T) {
	d, c, k := onRealStores(t)
	d.Set("api.drain_grace=500ms", "shutdown_timeout=20s")
	d.start().Await(http.StatusOK)
	var promised ledger
	load := daemontest.StartLoad(t, &promised, d.API, 8, daemontest.MayBeRefused)
	const rounds, size = 3, 100
	for range rounds {
		load.AwaitProgress(d.Trafficd)
		started := map[int]*begun{}
		for range 4 {
			batch := load.Take()
			started[batch] = d.begin(d.raw(daemontest.BatchNumber(batch, size), daemontest.KeyOf(batch)))
		}
		d.signal(syscall.SIGTERM)
		d.awaitDraining()
		for batch, b := range started {
			a, err := b.finish()
			require.NoError(t, err, "a request that was in progress at SIGTERM")
			require.Equal(t, http.StatusMultiStatus, a.Status, "%+v", a)
			require.Equal(t, size, a.Accepted)
			promised.Add(t, batch, a)
		}
		code, log := d.End()
		require.Zero(t, code, log)
		require.NotContains(t, log, "aborted")
		d.start().Await(http.StatusOK)
	}
	load.Stop()
	d.awaitDelivered()
	promised.Check(t, c, k)
}

func (d *process) awaitDraining() {
	d.t.Helper()
	d.Eventually(func() bool {
		_, r := d.Readiness()
		return strings.Contains(strings.Join(r.Components["daemon"].Reasons, " "), "draining")
	}, "draining")
}
