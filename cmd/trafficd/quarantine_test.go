package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
)

// TestForeignRecordsInTheLog puts records that are not intact batches between batches in the log in
// Kafka. All items that were accepted must reach the stores, and each of those records the
// dead-letter file, once for each store, also after a restart.
func TestForeignRecordsInTheLog(t *testing.T) {
	t.Parallel()
	f := func(t *testing.T, broker string, settings ...string) *process {
		k := stores.StartKafka(t, stores.Broker(broker), stores.Topic("measurements", 2))
		address := strings.Join(k.Brokers, ",")
		path := filepath.Join(t.TempDir(), "dead.ndjson")
		d := newProcess(t, append(settings, "journal.kind=kafka", "journal.log.brokers="+address, "journal.log.partitions=1",
			"kafka.enabled=true", "kafka.brokers="+address, "dead_letters="+path)...)
		d.start().Await(http.StatusOK)
		client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...), kgo.DefaultProduceTopic("trafficd.log"))
		require.NoError(t, err)
		defer client.Close()
		accepted, records := 0, 0
		post := func(batch int) {
			t.Helper()
			a, err := d.Post(t.Context(), daemontest.BatchNumber(batch, 10), daemontest.KeyOf(batch))
			require.NoError(t, err)
			require.Equal(t, http.StatusMultiStatus, a.Status)
			accepted += a.Accepted
		}
		produce := func(r *kgo.Record) {
			t.Helper()
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
			records++
		}
		post(0)
		log := k.Records(t, "trafficd.log")
		require.Len(t, log, 1)
		frame := log[0]
		produce(kgo.StringRecord("foreign"))
		post(1)
		produce(&kgo.Record{Value: frame.Value[:len(frame.Value)/2], Headers: frame.Headers})
		for i, at := range []int{0, 5, 12, len(frame.Value) - 1} {
			changed := []byte(string(frame.Value))
			changed[at] ^= 0x40
			produce(&kgo.Record{Value: changed, Headers: frame.Headers})
			post(2 + i)
		}
		sinks := 1
		if len(settings) > 0 {
			sinks = 2
		}
		check := func() {
			t.Helper()
			d.Eventually(func() bool { return k.Count(t, "measurements") == accepted }, "%d records", accepted)
			letters := func() int { text, _ := os.ReadFile(path); return strings.Count(string(text), "\n") }
			d.Eventually(func() bool { return letters() >= sinks*records }, "%d dead letters", sinks*records)
			d.AwaitDelivered()
			require.Equal(t, accepted, k.Count(t, "measurements"))
			require.Equal(t, sinks*records, letters())
		}
		check()
		require.EqualValues(t, records, d.metricOf("trafficd_pipeline_quarantined_records_total", "kafka"))
		_, r := d.Readiness()
		require.Contains(t, fmt.Sprint(r.Components["dead_letters"].Reasons),
			fmt.Sprintf("records of the log that are not intact batches, skipped by the delivery to kafka: %d in the dead-letter file", records))

		d.Terminate()
		d.start().Await(http.StatusOK)
		post(6)
		check()
		require.Zero(t, d.metricOf("trafficd_pipeline_quarantined_records_total", "kafka"), "a restart skips them without a second dead letter")
		return d
	}
	t.Run("kfake", func(t *testing.T) { f(t, stores.Kfake) })
	t.Run("apache", func(t *testing.T) {
		c := stores.StartClickHouse(t)
		d := f(t, stores.Apache, "clickhouse.enabled=true", "clickhouse.addresses="+c.TCP)
		d.Eventually(func() bool { return c.Query(t, "SELECT count() FROM trafficd.measurements FINAL") == "70" }, "all rows")
		require.Equal(t, "70", c.Query(t, "SELECT count() FROM trafficd.measurements"))
		require.EqualValues(t, 0, d.metricOf("trafficd_pipeline_quarantined_records_total", "clickhouse"))
	})
}
