package edges

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/sinks/layers"
	"trafficd/sources/ingest"
)

// TestFullDiskBehindEdge checks that the shipped proxies send batches to the other replica while
// the disk of one is full, and forecast requests to both. All keys have both rights, so the
// readiness of the full replica does not tell proxies that it accepts no batches.
func TestFullDiskBehindEdge(t *testing.T) {
	const clients, batches, rows = 16, 20, 100
	for _, edge := range edges {
		t.Run(edge.name, func(t *testing.T) {
			first, archive, broker := daemontest.OnRealStores(t)
			full := daemontest.New(t, "journal.min_free_bytes=1000000TiB")
			replicas := []*daemontest.Trafficd{first, full}
			var entries []string
			for i := range clients {
				entries = append(entries, daemontest.KeyEntry(fmt.Sprint("client-", i), "ingest, forecast", "UTC"))
			}
			for _, d := range replicas {
				daemontest.ReplaceFile(t, d.SetForecastFile("forecasts.ndjson"), daemontest.StreetLine(4711, 43.2))
				d.Keys(entries...)
				d.Run().Await(http.StatusOK)
				d.AwaitLayer("client-0")
			}
			status, _ := full.Fetch("/readyz?for=ingest")
			require.Equal(t, http.StatusServiceUnavailable, status)
			address, _ := edge.start(t, replicas)

			// send sends a request of every client, and counts the statuses.
			send := func(method, path string, body func(client int) []byte) (statuses map[int]int) {
				var all sync.WaitGroup
				var mu sync.Mutex
				statuses = map[int]int{}
				for i := range clients {
					all.Go(func() {
						status, _ := edgeRequest(t.Context(), method, "http://"+address+path, fmt.Sprint("client-", i), body(i))
						mu.Lock()
						statuses[status]++
						mu.Unlock()
					})
				}
				all.Wait()
				return statuses
			}
			none := func(int) []byte { return nil }
			first.Eventually(func() bool { // the proxy has checked both replicas
				return send(http.MethodGet, layers.Path, none)[http.StatusOK] == clients && first.Metric("trafficd_layers_responses_total") > 1 &&
					full.Metric("trafficd_layers_responses_total") > 1
			}, "both replicas serve the layer")
			served := full.Metric("trafficd_layers_responses_total")
			got, sent := map[int]int{}, 0
			for n := range batches {
				for status, times := range send(http.MethodPost, ingest.Path, func(client int) []byte {
					return compress.Gzip(daemontest.BatchNumber(n*clients+client, rows))
				}) {
					got[status] += times
					sent += times * rows
				}
				require.Equal(t, map[int]int{http.StatusOK: clients}, send(http.MethodGet, layers.Path, none))
			}
			first.AwaitDelivered()
			accepted := first.Metric("trafficd_ingest_items_accepted_total")
			archived := archive.Query(t, "SELECT count() FROM trafficd.measurements")
			t.Logf("%s: batches %v, items: sent %d, accepted %v, rows %s, records %d; GETs of the full replica: %v", edge.name, got, sent,
				accepted, archived, broker.Count(t, "measurements"), full.Metric("trafficd_layers_responses_total")-served)
			require.Equal(t, map[int]int{http.StatusMultiStatus: clients * batches}, got)
			require.EqualValues(t, sent, accepted)
			require.Equal(t, fmt.Sprint(sent), archived)
			require.Equal(t, sent, broker.Count(t, "measurements"))
			require.Greater(t, full.Metric("trafficd_layers_responses_total"), served)
		})
	}
}
