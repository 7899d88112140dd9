package main

import (
	"testing"
	"time"

	"trafficd/cmd/internal/launch"
)

// TestChaosCluster is a short `make chaos-cluster`: three replicas with their journal in Apache
// Kafka, which lose their volumes, are paused for longer than their session and have clocks that
// differ.
func TestChaosCluster(t *testing.T) {
	weights := map[string]float64{daemon: 12, clock: 3}
	cfg := config{
		Broker: launch.Apache, Brokers: 1, Nodes: 1, Replicas: 3, Duration: 9 * time.Second, Seed: 1, Weights: weights, Clients: 4,
		Verbose: true,
	}
	runUntil(t, cfg, map[string][]string{daemon: {wiped}})
}
