package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/internal/launch"
)

// TestChaosCluster is a short `make chaos-cluster`: three replicas with their journal in Apache
// Kafka, which lose their volumes, are paused for longer than their session and have clocks that
// differ. The number of faults depends on the machine.
func TestChaosCluster(t *testing.T) {
	weights := map[string]float64{daemon: 12, clock: 3}
	cfg := config{
		Broker: launch.Apache, Brokers: 1, Nodes: 1, Replicas: 3, Duration: 9 * time.Second, Seed: 1, Weights: weights, Clients: 4,
		Dir: t.TempDir(), Verbose: true,
	}
	var out bytes.Buffer
	found, err := run(t.Context(), cfg, &out)
	t.Log(out.String())
	require.NoError(t, err)
	require.Zero(t, found.faults())
	require.Positive(t, found.accepted)
	require.Positive(t, found.counts.Of(daemon, wiped))
}
