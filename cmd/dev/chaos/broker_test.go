package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/needs"
)

// withKafka is a daemon with ClickHouse and Apache Kafka, and what it accepted.
type withKafka struct {
	*daemontest.Trafficd
	archive  *stores.ClickHouse
	broker   *stores.Kafka
	admin    *kadm.Client
	rejected int // items in batches that got 503
	promised daemontest.Ledger
}

// startApache starts ClickHouse and Apache Kafka, and configures a daemon with them.
func startApache(t *testing.T, properties ...string) *withKafka {
	t.Helper()
	options := []stores.Option{stores.Broker(stores.Apache), stores.Topic("measurements", 4)}
	for _, p := range properties {
		key, value, _ := strings.Cut(p, "=")
		options = append(options, stores.Set(key, value))
	}
	r := &withKafka{archive: stores.StartClickHouse(t), broker: stores.StartKafka(t, options...)}
	brokers := strings.Join(r.broker.Brokers, ",")
	r.Trafficd = daemontest.New(t, "clickhouse.enabled=true", "clickhouse.addresses="+r.archive.TCP, "kafka.enabled=true",
		"kafka.brokers="+brokers, "journal.log.brokers="+brokers)
	client, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Brokers...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	r.admin = kadm.NewClient(client)
	return r
}

// send sends a batch, which must get the status.
func (r *withKafka) send(number, items, status int) {
	r.T.Helper()
	got, err := r.Post(r.T.Context(), daemontest.BatchNumber(number, items), "")
	require.NoError(r.T, err)
	require.Equal(r.T, status, got.Status, "%+v", got)
	if status == http.StatusMultiStatus {
		r.promised.Add(r.T, number, got)
	} else {
		r.rejected += items
	}
}

// counts returns the numbers of items, rows and records as a line.
func (r *withKafka) counts() string {
	return fmt.Sprintf("sent %d, accepted %d, rejected %d; rows %s, records %d", r.promised.Items()+r.rejected, r.promised.Items(), r.rejected,
		r.archive.Query(r.T, "SELECT count() FROM trafficd.measurements"), r.broker.Count(r.T, "measurements"))
}

// awaitReason waits until the readiness has a reason that contains a text.
func (r *withKafka) awaitReason(status int, want string) {
	r.T.Helper()
	r.Eventually(func() bool {
		got, body := r.Fetch("/readyz")
		return got == status && strings.Contains(string(body), want)
	}, "readiness %d with %q", status, want)
}

// setTopic changes a setting of the topic of measurements.
func (r *withKafka) setTopic(key, value string) {
	r.T.Helper()
	responses, err := r.admin.AlterTopicConfigs(r.T.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, "measurements")
	require.NoError(r.T, err)
	_, err = responses.On("measurements", nil)
	require.NoError(r.T, err)
}

// TestLogPermissions starts a daemon whose user may do everything with the topic of the log but
// read its settings. No batch is accepted until the permission is granted; the daemon then needs no
// restart, and both stores get each measurement once.
func TestLogPermissions(t *testing.T) {
	needs.Everything(t, "Apache Kafka")
	r := startApache(t, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found=true")
	r.Set("journal.kind=kafka")
	const user, topic = "User:ANONYMOUS", "trafficd.log"
	acl := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral)
	}
	deny := acl().Deny(user).DenyHosts("*").Operations(kadm.OpDescribeConfigs)
	for _, b := range []*kadm.ACLBuilder{acl().Allow(user).AllowHosts("*").Operations(kadm.OpAll), deny} {
		created, err := r.admin.CreateACLs(t.Context(), b)
		require.NoError(t, err)
		for _, c := range created {
			require.NoError(t, c.Err)
		}
	}
	r.Run()
	const reason = "grant DescribeConfigs on it"
	r.awaitReason(http.StatusServiceUnavailable, reason)
	r.send(1, 1000, http.StatusServiceUnavailable)
	check := exec.CommandContext(t.Context(), r.Binary, append([]string{"--check-config=deep"}, r.Args...)...)
	out, err := check.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), reason)
	t.Logf("before the grant: rejected %d of %d items, records in the log: %d\n%s", r.rejected, r.rejected, r.broker.Count(t, topic), out)

	deleted, err := r.admin.DeleteACLs(t.Context(), deny)
	require.NoError(t, err)
	for _, d := range deleted {
		require.NoError(t, d.Err)
		require.Len(t, d.Deleted, 1)
	}
	r.Await(http.StatusOK)
	for n := range 60 {
		r.send(2+n, 1000, http.StatusMultiStatus)
	}
	r.AwaitDelivered()
	t.Log("after the grant:", r.counts())
	r.promised.Check(t, r.archive, r.broker)
}

// TestLateDelivery stops Kafka for so long that the topic would delete what is delivered then,
// because its records have the time at which the daemon received them. The measurements wait until
// the topic keeps records for longer.
func TestLateDelivery(t *testing.T) {
	needs.Everything(t, "Apache Kafka")
	r := startApache(t, "log.retention.check.interval.ms=1000", "log.initial.task.delay.ms=500")
	r.setTopic("retention.ms", "20000")
	r.Run().Await(http.StatusOK)
	require.NoError(t, r.broker.Stop())
	for n := range 30 {
		r.send(n, 12_500, http.StatusMultiStatus)
	}
	r.Eventually(func() bool { return r.Metric("trafficd_pipeline_lag_seconds") > 20 }, "measurements older than the retention")
	require.NoError(t, r.broker.Restart())
	r.awaitReason(http.StatusOK, "would soon delete or reject measurements")
	t.Log("retention.ms 20000:", r.counts())
	require.Zero(t, r.broker.Count(t, "measurements"))
	r.setTopic("retention.ms", "3600000")
	r.AwaitDelivered()
	t.Log("retention.ms 3600000:", r.counts())
	require.Never(t, func() bool { return r.broker.Count(t, "measurements") < r.promised.Items() }, 3*time.Second, 500*time.Millisecond,
		"the broker deletes expired records every second")
	r.promised.Check(t, r.archive, r.broker)
}
