package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/trafficd/status"
	"trafficd/pipeline"
	"trafficd/sources/registry"
)

// keys replaces the keys of the daemon, which has not started yet.
func (d *process) keys(entries ...string) { d.Keys(entries...) }

// TestReadinessPerProductInstance checks that one product instance without detectors does not make
// the others unready.
func TestReadinessPerProductInstance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list := filepath.Join(dir, "city.csv")
	d := newProcess(t, "registry.feeds=[{product_instance: "+instance+", file: {path: "+list+"}}, {product_instance: lake, file: {path: "+dir+"/lake.csv}}]")
	d.start()
	r := d.Await(http.StatusServiceUnavailable)
	d.Eventually(func() bool { _, r = d.Readiness(); return len(r.Components["registry"].Reasons) == 2 }, "both feeds checked")
	require.Equal(t, ops.NotReady, r.Components["registry"].State)
	require.Contains(t, r.Components["keys"].Reasons, "no key can be served, for the reasons of the other components; see the runbook, TrafficdNotReady")

	replaceFile(t, list, "detectorCode\n"+daemontest.Detector(1)+"\n")
	r = d.Await(http.StatusOK)
	require.Equal(t, ops.Degraded, r.State)
	instances := r.Components["registry"].Detail["product_instances"].(map[string]any)
	require.Equal(t, "ok", instances[instance].(map[string]any)["state"])
	require.Equal(t, "not_ready", instances["lake"].(map[string]any)["state"])
	require.Contains(t, instances["lake"].(map[string]any)["reasons"].([]any)[0], "no detectors yet")
}

// TestReadinessPerPartition checks that a daemon with the journal in Kafka is not ready while the
// brokers reject the frames of its only product instance, although other partitions can be written.
func TestReadinessPerPartition(t *testing.T) {
	t.Parallel()
	cluster := stores.StartKfake(t)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "trafficd.log", Err: kerr.NotEnoughReplicas, Count: -1})
	d := newProcess(t, "journal.kind=kafka", "journal.log.brokers="+strings.Join(cluster.ListenAddrs(), ",")).start()
	d.Await(http.StatusOK)
	answers := make(chan response, 1)
	go func() {
		a, _ := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "")
		answers <- a
	}()
	r := d.Await(http.StatusServiceUnavailable)
	require.Equal(t, ops.NotReady, r.Components["journal"].State)
	require.Contains(t, r.Components["journal"].Reasons[0], "product instance \""+instance+"\": cannot write to the log in Kafka")
	fault.Remove()
	require.Equal(t, http.StatusMultiStatus, (<-answers).Status)
	require.Equal(t, ops.OK, d.Await(http.StatusOK).Components["journal"].State)
}

// TestReadinessOfSharedList checks that the reason for a product instance of a shared list names
// the status that its batches get: 503 until the list has been read, then 403 if it is not in the
// list.
func TestReadinessOfSharedList(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "all.csv")
	d := newProcess(t, "registry.feeds=[{instance_column: town, file: {path: "+list+"}}]")
	d.start()
	reason := func(status int, want string) {
		t.Helper()
		d.Eventually(func() bool {
			_, r := d.Readiness()
			return strings.Contains(strings.Join(r.Components["registry"].Reasons, "\n"), want)
		}, "%s", want)
		response, err := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "")
		require.NoError(t, err)
		require.Equal(t, status, response.Status)
	}
	reason(http.StatusServiceUnavailable, `product instance "`+instance+`": key "city" has the ingest right, but the shared detector list has not been read yet`)
	replaceFile(t, list, "town,detectorCode\nlake,L1\n")
	reason(http.StatusForbidden, `but no feed in registry.feeds has its product instance: its batches are rejected with 403`)
}

// TestForecastOnlyReadiness checks that a daemon whose keys only read forecasts needs no registry,
// and is ready when its forecasts are.
func TestForecastOnlyReadiness(t *testing.T) {
	t.Parallel()
	d := newProcess(t, "registry.feeds=[]")
	feed := d.setForecastFile("forecasts.ndjson")
	d.keys(keyEntry("viewer", "forecast", "UTC"))
	d.start()
	var r ops.Readiness
	d.Eventually(func() bool { _, r = d.Readiness(); return len(r.Components["forecasts"].Reasons) > 0 }, "the feed is checked")
	require.Equal(t, ops.NotReady, r.State)
	replaceFile(t, feed, streetLine(1, 50))
	d.Eventually(func() bool { _, r = d.Readiness(); return r.State == ops.OK }, "ready")
	require.NotContains(t, r.Components, "registry")
}

// TestReadinessByPurpose checks that a daemon that accepts no batches is ready for forecasts and
// not for ingest, and the reverse, and that the summary says so first.
func TestReadinessByPurpose(t *testing.T) {
	t.Parallel()
	d := newProcess(t, "journal.min_free_bytes=1000TiB")
	feed := d.setForecastFile("forecasts.ndjson")
	d.keys(keyEntry(testKey, "ingest", "UTC"), keyEntry("viewer", "forecast", "UTC"))
	replaceFile(t, feed, streetLine(1, 50))
	f := func(purpose string, status int) {
		t.Helper()
		d.Eventually(func() bool { got, _ := d.Fetch("/readyz?for=" + purpose); return got == status }, "readiness %d for %s", status, purpose)
	}
	d.start()
	require.Equal(t, ops.Degraded, d.Await(http.StatusOK).State)
	f("ingest", http.StatusServiceUnavailable)
	f("forecast", http.StatusOK)
	f("routing", http.StatusOK)
	var s status.Status
	_, text := d.Fetch("/status")
	require.NoError(t, json.Unmarshal(text, &s))
	require.Equal(t, "Every request for ingest is rejected.", s.Summary[0])
	d.Terminate()

	d.Set("journal.min_free_bytes=0", "forecasts.file.path="+feed+".missing")
	d.start().Await(http.StatusOK)
	f("ingest", http.StatusOK)
	f("forecast", http.StatusServiceUnavailable)
}

// TestNotReadyBeforeRegistriesAreRead checks that the daemon is not ready before each registry
// has been read once, although it could serve the routing key: a load balancer would send it
// batches that get 503.
func TestNotReadyBeforeRegistriesAreRead(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	feed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(feed.Close)
	d := newProcess(t, "registry.feeds=[{product_instance: "+instance+", http: {url: "+feed.URL+"}}]")
	d.keys(keyEntry("router", "routing", "UTC"))
	d.start()
	<-asked
	var r ops.Readiness
	d.Eventually(func() bool { _, r = d.Readiness(); return len(r.Components["daemon"].Reasons) > 0 }, "the daemon responds")
	require.Equal(t, ops.NotReady, r.State)
	d.Eventually(func() bool {
		_, r = d.Readiness()
		return strings.Contains(strings.Join(r.Components["daemon"].Reasons, " "), "registries are being read")
	}, "the reason is named")
	require.Equal(t, ops.NotReady, r.State)
	close(release) // the feed fails; the daemon can serve the other key
	d.Await(http.StatusOK)
}

// TestReadyOnceRegistryIsLoaded checks that a daemon that is ready can validate batches,
// even if the list was just written and is only read once it has settled.
func TestReadyOnceRegistryIsLoaded(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "city.csv")
	d := newProcess(t, "registry.feeds=[{product_instance: "+instance+", file: {path: "+list+"}}]")
	d.keys(keyEntry("both", "ingest, routing", "UTC"))
	replaceFile(t, list, "detectorCode\n"+daemontest.Detector(1)+"\n")
	d.start()
	require.Equal(t, ops.OK, d.Await(http.StatusOK).Components["registry"].State)
}

// TestRegistryVersion checks that /readyz and the 207 name the same list, also after a restart
// without the feed.
func TestRegistryVersion(t *testing.T) {
	t.Parallel()
	list := filepath.Join(t.TempDir(), "city.csv")
	d := newProcess(t, "registry.feeds=[{product_instance: "+instance+", file: {path: "+list+"}}]")
	replaceFile(t, list, "detectorCode\n"+daemontest.Detector(1)+"\n")
	d.start().Await(http.StatusOK)
	version := func() string {
		_, r := d.Readiness()
		feeds, err := json.Marshal(r.Components["registry"].Detail["feeds"])
		require.NoError(t, err)
		var list []registry.Status
		require.NoError(t, json.Unmarshal(feeds, &list))
		return list[0].Version
	}
	loaded := version()
	require.Regexp(t, "^[0-9a-f]{16}$", loaded)
	first, err := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "once")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, first.Status)
	require.Equal(t, loaded, first.Header.Get("Registry-Version"))
	replay, err := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "once")
	require.NoError(t, err)
	require.Empty(t, replay.Header.Values("Registry-Version"), "a replay was validated before")

	d.Terminate()
	require.NoError(t, os.Remove(list))
	d.start().Await(http.StatusOK)
	require.Equal(t, loaded, version())
	second, err := d.Post(t.Context(), daemontest.BatchNumber(2, 1), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, second.Status)
	require.Equal(t, loaded, second.Header.Get("Registry-Version"))
}

// TestDeadLettersInSummary checks that operators see the dead letters of earlier runs until the
// file is moved away.
func TestDeadLettersInSummary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dead.ndjson")
	d := newProcess(t, "clickhouse.enabled=true", "clickhouse.addresses=127.0.0.1:1", "dead_letters="+path)
	require.NoError(t, os.WriteFile(path, []byte("{\"sink\":\"clickhouse\"}\n{\"sink\":\"clickhouse\"}\n"), 0o600))
	d.start()
	r := d.Await(http.StatusOK)
	require.Equal(t, ops.Degraded, r.Components["dead_letters"].State)
	const want = "2 measurements are in the dead-letter file, rejected by clickhouse; see the runbook, TrafficdDeadLetters"
	require.Equal(t, []string{want}, r.Components["dead_letters"].Reasons)
	var s status.Status
	_, text := d.Fetch("/status")
	require.NoError(t, json.Unmarshal(text, &s))
	require.Contains(t, strings.Join(s.Summary, "\n"), "dead_letters: "+want)
	require.Equal(t, 2.0, s.Stores[0].DeadLetters)
	require.Equal(t, 2.0, d.Metric("trafficd_pipeline_dead_letter_rows"))
	require.NoError(t, os.Rename(path, path+".resent"))
	require.Equal(t, ops.OK, d.Await(http.StatusOK).Components["dead_letters"].State)
}

// TestFullIdempotencyStoreInSummary checks that operators see that keyed batches are rejected.
func TestFullIdempotencyStoreInSummary(t *testing.T) {
	t.Parallel()
	d := newProcess(t, "pipeline.idempotency.max_bytes_per_client=1KiB").start()
	require.Equal(t, ops.OK, d.Await(http.StatusOK).Components["idempotency"].State)
	accepted := 0
	for status := 0; status != http.StatusServiceUnavailable; accepted++ {
		r, err := d.Post(t.Context(), daemontest.BatchNumber(accepted, 1), fmt.Sprint("key-", accepted))
		require.NoError(t, err)
		status = r.Status
	}
	require.Greater(t, accepted, 1)
	r := d.Await(http.StatusOK)
	require.Equal(t, ops.Degraded, r.Components["idempotency"].State)
	const want = `batches with a new Idempotency-Key are rejected with 503: "city"; raise pipeline.idempotency.max_bytes_per_client`
	require.Contains(t, r.Components["idempotency"].Reasons[0], want)
	var s status.Status
	_, text := d.Fetch("/status")
	require.NoError(t, json.Unmarshal(text, &s))
	require.Contains(t, strings.Join(s.Summary, "\n"), want)
}

// TestStoreState checks that a store that hangs is reported long before its first attempt fails.
func TestStoreState(t *testing.T) {
	f := func(want ops.State, reason string, s pipeline.Status) {
		t.Helper()
		c := storeState(s)
		require.Equal(t, want, c.State)
		require.Contains(t, strings.Join(c.Reasons, ""), reason)
	}
	f(ops.OK, "", pipeline.Status{Lag: 50 * time.Second, Stalled: 14 * time.Second})
	f(ops.Degraded, "the store hangs", pipeline.Status{Lag: 16 * time.Second, Stalled: 16 * time.Second})
	f(ops.Degraded, "refused", pipeline.Status{Stalled: 16 * time.Second, Trouble: errors.New("refused")})
	f(ops.Degraded, "1m5s behind", pipeline.Status{Lag: 65 * time.Second, Stalled: time.Second})
}
