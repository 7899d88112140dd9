package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/chaos/internal/judge"
	"trafficd/cmd/dev/chaos/internal/nemesis"
	"trafficd/cmd/dev/chaos/internal/rig"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// TestChaos is a short `make chaos`: one seed, kfake and ClickHouse.
func TestChaos(t *testing.T) {
	weights, err := parseWeights(map[string]string{archive: "3", broker: "4"})
	require.NoError(t, err)
	one := rig.Config{Broker: launch.Kfake, Brokers: 1, Nodes: 1, Replicas: 1, Clients: 4}
	runUntil(t, config{Config: one, Duration: 15 * time.Second, Weights: weights}, map[string][]string{daemon: {kill9, sigterm}, archive: {kill9}, broker: {stopped}})
}

// TestChaosCluster is a short `make chaos-cluster`: three replicas, whose journal is in Apache
// Kafka, lose their volumes and are paused for longer than their session, and their clocks differ.
func TestChaosCluster(t *testing.T) {
	weights := map[string]float64{daemon: 12, clock: 3}
	three := rig.Config{Broker: launch.Apache, Brokers: 1, Nodes: 1, Replicas: 3, Clients: 4}
	runUntil(t, config{Config: three, Duration: 9 * time.Second, Weights: weights}, map[string][]string{daemon: {wiped}})
}

// runUntil repeats the run, with twice the duration each time, until every kind of fault has
// occurred, because the number of faults depends on the machine.
func runUntil(t *testing.T, cfg config, kinds map[string][]string) {
	t.Helper()
	needs.Everything(t, "real stores")
	for missing := true; missing; cfg.Duration *= 2 {
		require.Less(t, cfg.Duration, 4*time.Minute, "not every kind of fault has occurred")
		cfg.Dir, cfg.Seed, cfg.Verbose = t.TempDir(), 1, true
		var out bytes.Buffer
		found, err := run(t.Context(), cfg, &out)
		t.Log(out.String())
		require.NoError(t, err)
		require.Zero(t, found.violations())
		require.Positive(t, found.accepted)
		missing = false
		for target, all := range kinds {
			for _, kind := range all {
				missing = missing || found.counts.Of(target, kind) == 0
			}
		}
	}
}

// TestInvalidFlags checks flags with which a run would find nothing, or mix data of several runs.
func TestInvalidFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		c := command()
		c.SetArgs(args)
		require.ErrorContains(t, c.Execute(), want)
	}
	f("must be at least 1", "--clients", "0")
	f("must be at least 1", "--runs", "0")
	f("--nodes must be 1 or 2", "--nodes", "3")
	f(`--broker "rabbit" must be kfake, apache or both`, "--broker", "rabbit")
	f("--duration 0s must be positive", "--duration", "0")
	f("--links requires", "--links", "--broker", "both", "--brokers", "3", "--nodes", "2")
	f("--links requires", "--links", "--broker", "apache", "--nodes", "2")
	f("--links requires", "--links", "--broker", "apache", "--brokers", "3")
	f("--dir is for a single run", "--dir", t.TempDir(), "--runs", "2")
	f("--dir is for a single run", "--dir", t.TempDir(), "--broker", "both")
}

func TestPlan(t *testing.T) {
	f := func(broker string, runs int, want ...string) {
		t.Helper()
		var got []string
		for _, cfg := range (config{Config: rig.Config{Broker: broker}, Seed: 7}).plan(runs) {
			got = append(got, fmt.Sprint(cfg.Broker, " ", cfg.Seed))
		}
		require.Equal(t, want, got)
	}
	f("kfake", 1, "kfake 7")
	f("both", 2, "kfake 7", "kfake 8", "apache 7", "apache 8")
}

func TestParseWeights(t *testing.T) {
	w, err := parseWeights(map[string]string{daemon: "10", network: "0"})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{
		daemon: 10, archive: 1.5, zookeeper: 0.5, broker: 1.5, balancer: 1, network: 0, disk: 1.5, clock: 1, rolling: 0.25, forecast: 0.5,
	}, w)
	f := func(want, name, weight string) {
		t.Helper()
		_, err := parseWeights(map[string]string{name: weight})
		require.ErrorContains(t, err, want)
	}
	f(`unknown target "moon"`, "moon", "1")
	f("from 0 to 100", daemon, "often")
	f("from 0 to 100", daemon, "-1")
	f("from 0 to 100", daemon, "101")
}

func TestSummary(t *testing.T) {
	all := result{counts: nemesis.Counts{}}
	all.add(&result{stores: []*judge.Verdict{{}, {}}, counts: nemesis.Counts{"trafficd kill -9": 2, "trafficd pause": 9, "clickhouse kill -9": 1}})
	require.True(t, all.clean())
	all.add(&result{unexpected: []string{"exit status 1"}, counts: nemesis.Counts{"trafficd SIGTERM": 3, "kafka kill -9 of one": 4, "kafka kill -9": 1}})
	require.False(t, all.clean(), "an unexpected exit is a failure")
	require.Equal(t, `chaos: unexpected responses or exits 1
chaos: faults 20
chaos: kills: trafficd kill -9 2, trafficd SIGTERM 3, clickhouse kill -9 1, kafka kill -9 5
chaos: missing 0 duplicated 0 reordered 0 altered 0 kills 11 seed 7`, all.summary(7))
	all.add(&result{stores: []*judge.Verdict{{Altered: 2}}})
	require.Contains(t, all.summary(7), "altered 2 ")

	missed := result{counts: nemesis.Counts{}, missed: "faults: 1, goal 2"}
	require.False(t, missed.clean(), "a goal was missed")
	require.True(t, strings.HasPrefix(missed.summary(1), "chaos: MISSED: faults: 1, goal 2\nchaos: faults 0\n"), missed.summary(1))
}
