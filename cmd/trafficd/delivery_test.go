package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// day is the date of the test's measurements.
var day = daemontest.Day

func item(n, batch int) string       { return daemontest.Item(n, batch) }
func batchOf(items ...string) string { return daemontest.BatchOf(items...) }

// onRealStores starts both stores and a daemon that delivers to them.
func onRealStores(t *testing.T) (*process, *stores.ClickHouse, *stores.Kafka) {
	t.Helper()
	d, c, k := daemontest.OnRealStores(t)
	return &process{t, d}, c, k
}

func (d *process) awaitDelivered() { d.AwaitDelivered() }

// TestFirstStartWithLog checks that a daemon with the journal in Kafka, whose partitions are
// delivered separately, creates everything in empty stores once and logs no warning about them.
func TestFirstStartWithLog(t *testing.T) {
	broker := stores.StartKfake(t).ListenAddrs()[0]
	d := newProcess(t, "journal.kind=kafka", "journal.log.brokers="+broker, "kafka.enabled=true", "kafka.brokers="+broker,
		"kafka.create_topic.partitions=3", "clickhouse.enabled=true", "clickhouse.addresses="+stores.StartClickHouse(t).TCP).start()
	const migrated, created = `"migration":"views"`, `"message":"topic created"`
	d.Eventually(func() bool { return strings.Contains(d.Log(), migrated) && strings.Contains(d.Log(), created) }, "tables and topic")
	log := d.Terminate()
	require.NotContains(t, log, `"level":"warn"`)
	require.Equal(t, 1, strings.Count(log, migrated))
	require.Equal(t, 1, strings.Count(log, created))
}

func TestValidAndInvalidItemsEndToEnd(t *testing.T) {
	d, c, k := onRealStores(t)
	d.Set("clickhouse.migrate=false", "clickhouse.derive_interval=1s")
	for range 2 { // migrating again changes nothing
		out, err := exec.Command(binary, append([]string{"migrate"}, d.Args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "the tables are up to date")
	}
	d.start().Await(http.StatusOK)

	bad := func(from, to string) string { return strings.Replace(item(7, 0), from, to, 1) }
	mixed := batchOf(
		item(0, 0),
		bad(`"D0007"`, `"nobody"`),
		bad(`"value":7.5`, `"value":"7.5"`),
		item(1, 0),
		bad(`2026-03-01T00:00:00Z`, `2026-02-30T00:00:00Z`),
		bad(`"quality"`, `"linkId":"x","quality"`),
		`17`,
		strings.Replace(item(2, 0), `,"quality":0.75`, ``, 1),
	)
	a, err := d.Post(t.Context(), mixed, "the-key")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, a.Status)
	require.Equal(t, 3, a.Accepted)
	require.Equal(t, 5, a.Rejected)
	var got []string
	for _, r := range a.Rejections {
		got = append(got, fmt.Sprint(r.Index, " ", r.Error.ErrorCode, " ", r.Error.Parameter))
	}
	require.Equal(t, []string{
		"1 UNKNOWN_DETECTOR measurements[1].detectorCode",
		"2 INVALID_TYPE measurements[2].value",
		"4 INVALID_TIMESTAMP measurements[4].timestampFrom",
		"5 RESERVED_FIELD measurements[5].linkId",
		"6 INVALID_TYPE measurements[6]",
	}, got)
	batchID := a.Header.Get("Batch-Id")
	require.Len(t, batchID, 36)

	d.awaitDelivered()
	require.Equal(t, strings.Join([]string{
		"city\tD0000\tflow0\t2026-03-01 00:00:00\t2026-03-01 00:05:00\t0.5\t0.75\t" + batchID + "\t0",
		"city\tD0001\tflow0\t2026-03-01 00:00:00\t2026-03-01 00:05:00\t1.5\t0.75\t" + batchID + "\t3",
		"city\tD0002\tflow0\t2026-03-01 00:00:00\t2026-03-01 00:05:00\t2.5\t\\N\t" + batchID + "\t7",
	}, "\n"), c.Query(t, `SELECT product_instance, detector_code, measure_type_code, toDateTime(timestamp_from, 'UTC'), toDateTime(timestamp_to, 'UTC'),
		value, quality, batch_id, batch_index FROM trafficd.measurements ORDER BY batch_index`))

	records := map[string]*trafficdv1.Measurement{}
	for _, r := range k.Records(t, "measurements") {
		var m trafficdv1.Measurement
		require.NoError(t, proto.Unmarshal(r.Value, &m))
		require.Equal(t, m.GetDetectorCode(), string(r.Key))
		require.Equal(t, batchID, r.Header("batch-id"))
		require.Equal(t, instance, r.Header("product-instance"))
		records[r.Header("index")] = &m
	}
	require.Len(t, records, 3)
	require.Equal(t, 1.5, records["3"].GetValue())
	require.Equal(t, day, records["3"].GetTimestampFrom().AsTime())
	require.Nil(t, records["7"].Quality)
	d.Eventually(func() bool { return c.Query(t, "SELECT count() FROM trafficd.measurements_detectors") == "100" }, "the registry is archived")

	// Repeating the request, also after a restart, gets the same response and stores nothing twice.
	log := d.Terminate()
	require.NotContains(t, log, "the store cannot take rows", "the probes of both stores must succeed")
	d.start().Await(http.StatusOK)
	again, err := d.Post(t.Context(), mixed, "the-key")
	require.NoError(t, err)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replay"))
	require.Equal(t, batchID, again.Header.Get("Batch-Id"))
	require.Equal(t, a.Rejections, again.Rejections)
	d.awaitDelivered()
	require.Equal(t, "3", c.Query(t, "SELECT count() FROM trafficd.measurements"))
	require.Equal(t, 3, k.Count(t, "measurements"))
}

// TestStopWhileTheStoresHang checks that a store that hangs while it receives a block does not
// delay the shutdown: the block is delivered once, after the next start.
func TestStopWhileTheStoresHang(t *testing.T) {
	d, c, k := onRealStores(t)
	d.Set("shutdown_timeout=12s") // 3 s of which are for what follows the grace period, on a busy machine
	d.start().Await(http.StatusOK)
	post := func(batch int) {
		t.Helper()
		a, err := d.Post(t.Context(), batchOf(item(1, batch), item(2, batch)), "")
		require.NoError(t, err)
		require.Equal(t, 2, a.Accepted)
	}
	post(0)
	d.awaitDelivered()
	require.NoError(t, c.Pause())
	require.NoError(t, k.Pause())
	post(1)
	d.Eventually(func() bool { return d.Metric("trafficd_pipeline_lag_frames") == 2 }, "both deliveries have a block in progress")
	d.Terminate()

	require.NoError(t, c.Resume())
	require.NoError(t, k.Resume())
	d.start().Await(http.StatusOK)
	d.awaitDelivered()
	require.Equal(t, "4", c.Query(t, "SELECT count() FROM trafficd.measurements"))
	require.Equal(t, 4, k.Count(t, "measurements"))
}

// TestKilledAndStoppedUnderLoad tests promises 1, 2 and 8 when the daemon is stopped under load,
// by SIGKILL and SIGTERM in turn: every batch that was acknowledged with 207 is in both stores
// once. A client without a response retries with the same Idempotency-Key.
func TestKilledAndStoppedUnderLoad(t *testing.T) {
	d, c, k := onRealStores(t)
	d.start().Await(http.StatusOK)

	var promised ledger
	load := daemontest.StartLoad(t, &promised, d.API, 4, daemontest.MayBeCut)
	for n := range 6 {
		d.Await(http.StatusOK)
		load.AwaitProgress(d.Trafficd)
		if n%2 == 0 {
			d.kill()
		} else {
			d.Terminate()
		}
		d.start()
	}
	load.Stop()
	d.Await(http.StatusOK)
	d.awaitDelivered()
	promised.Check(t, c, k)
}
