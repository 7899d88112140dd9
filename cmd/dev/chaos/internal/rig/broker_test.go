package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
)

// TestApacheNodes checks that the cluster works without one of three brokers, that Restart
// restarts it, and that a broker that lost its disk gets everything back.
func TestApacheNodes(t *testing.T) {
	needs.Everything(t, "a real Apache Kafka")
	opts := launch.Options{Dir: t.TempDir(), Stderr: t.Output(), Only: "kafka", Broker: launch.Apache, Brokers: 3}
	require.NoError(t, opts.Complete())
	var own []string
	for _, port := range opts.KafkaPorts {
		own = append(own, launch.Address(port))
	}
	a, err := startApache(t.Context(), opts)
	defer func() { require.NoError(t, a.Close()) }()
	require.NoError(t, err)
	require.Equal(t, own, a.Addresses())
	client, err := kgo.NewClient(kgo.SeedBrokers(own...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer client.Close()
	for range 20 {
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: Topic, Value: []byte("kept")}).FirstErr())
	}
	r := rand.New(rand.NewPCG(1, 2))
	require.NoError(t, a.Stop(r, 1))
	require.Len(t, a.down, 1)
	require.Error(t, a.covered(t.Context(), -1))
	read := func() {
		t.Helper()
		require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error {
			records, err := launch.ReadTopic(t.Context(), a.Addresses(), Topic)
			if err == nil && len(records) != 20 {
				err = fmt.Errorf("%d records", len(records))
			}
			return err
		}))
	}
	read()
	require.NoError(t, a.Restart())
	require.Empty(t, a.down)
	require.NoError(t, launch.Eventually(t.Context(), 2*time.Minute, func() error {
		return errors.Join(a.Wipe(t.Context(), r), a.Restart())
	}))
	require.NoError(t, launch.Eventually(t.Context(), time.Minute, func() error { return a.covered(t.Context(), -1) }))
	read()
}

// TestKfakeSessions checks that replicas of the daemon can share a log in kfake, although their
// sessions are short.
func TestKfakeSessions(t *testing.T) {
	port, err := launch.PickPort("kfake", 0)
	require.NoError(t, err)
	f := &Kfake{dir: t.TempDir(), ports: []int{port}, advertised: []string{launch.Address(port)}}
	require.NoError(t, f.Restart())
	defer func() { require.NoError(t, f.Close()) }()
	client, err := kgo.NewClient(kgo.SeedBrokers(f.Addresses()...), kgo.DisableClientMetrics(), kgo.ConsumeTopics(Topic), kgo.ConsumerGroup("replicas"),
		kgo.SessionTimeout(SessionTimeout), kgo.HeartbeatInterval(SessionTimeout/4), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: Topic, Value: []byte("delivered")}).FirstErr())
	fetched := client.PollFetches(t.Context())
	require.NoError(t, fetched.Err())
	require.Equal(t, 1, fetched.NumRecords())
}
