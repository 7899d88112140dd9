package status

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/internal/ops"
	"trafficd/pipeline"
	"trafficd/schemas/openapi"
	"trafficd/sources/registry"
)

// fakeDaemon provides the metrics and the readiness of a daemon that delivers to one store.
type fakeDaemon struct {
	recorder              *Recorder
	batches, codes, items *prometheus.CounterVec
	lag, rows             *prometheus.GaugeVec
	bytes, free           prometheus.Gauge // of the journal
	latency               *prometheus.HistogramVec
	ready                 ops.Readiness
}

func start(t *testing.T, inKafka bool) *fakeDaemon {
	registry := prometheus.NewRegistry()
	with := promauto.With(registry)
	d := &fakeDaemon{
		batches: with.NewCounterVec(prometheus.CounterOpts{Name: "trafficd_ingest_batches_total"}, []string{"code"}),
		codes:   with.NewCounterVec(prometheus.CounterOpts{Name: "trafficd_ingest_items_rejected_total"}, []string{"code"}),
		items:   with.NewCounterVec(prometheus.CounterOpts{Name: "trafficd_ingest_items_accepted_total"}, nil),
		lag:     with.NewGaugeVec(prometheus.GaugeOpts{Name: "trafficd_pipeline_lag_frames"}, []string{"sink"}),
		rows:    with.NewGaugeVec(prometheus.GaugeOpts{Name: "trafficd_pipeline_lag_rows"}, []string{"sink"}),
		latency: with.NewHistogramVec(prometheus.HistogramOpts{Name: "trafficd_api_request_seconds", Buckets: []float64{.01, .1, 1}}, []string{"route"}),
	}
	for name, value := range map[string]float64{
		"bytes": 100, "bytes_limit": 3700, "disk_free_bytes": 1e9, "disk_free_bytes_min": 1000,
	} {
		gauge := with.NewGaugeVec(prometheus.GaugeOpts{Name: "trafficd_journal_" + name}, []string{"journal"})
		gauge.WithLabelValues("responses").Set(1e9)
		if inKafka {
			continue
		}
		gauge.WithLabelValues("measurements").Set(value)
		switch name {
		case "bytes":
			d.bytes = gauge.WithLabelValues("measurements")
		case "disk_free_bytes":
			d.free = gauge.WithLabelValues("measurements")
		}
	}
	d.set("clickhouse", ops.OK, "")
	d.recorder = Start(registry, "/ingest", "v1", func() ops.Readiness { return d.ready })
	t.Cleanup(d.recorder.Stop)
	return d
}

func (d *fakeDaemon) set(name string, state ops.State, reason string) {
	var c ops.Component
	c.Add(state, ops.StoreUnreachable, reason)
	if strings.Contains(reason, "refused") {
		c.Detail = map[string]any{"error": reason}
	}
	d.ready = ops.NewReadiness(map[string]ops.Component{name: c})
}

// pass moves all recorded samples into the past, as if the given time had elapsed.
func (d *fakeDaemon) pass(by time.Duration) {
	d.recorder.mu.Lock()
	defer d.recorder.mu.Unlock()
	for i := range d.recorder.recent {
		d.recorder.recent[i].at = d.recorder.recent[i].at.Add(-by)
	}
	for name := range d.recorder.trouble {
		d.recorder.trouble[name] = d.recorder.trouble[name].Add(-by)
	}
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, false)
		d.pass(10 * time.Second)
		d.batches.WithLabelValues("OK").Add(2)
		d.items.WithLabelValues().Add(1000)
		d.codes.WithLabelValues("INVALID_VALUE").Add(50)
		for range 99 {
			d.latency.WithLabelValues("/ingest").Observe(.005)
		}
		d.latency.WithLabelValues("/other").Observe(100)
		d.lag.WithLabelValues("clickhouse").Set(3)
		d.rows.WithLabelValues("clickhouse").Set(1234)
		s := d.recorder.Now()
		require.Equal(t, Rates{.2, 100, 5}, s.Rates)
		require.InDelta(t, .005, s.Latency.P50, 1e-9, "in the middle of the bucket")
		require.Equal(t, "INVALID_VALUE", s.Codes[0].Code)
		require.Equal(t, 50.0, s.Codes[0].Total)
		require.Equal(t, []Store{{Name: "clickhouse", Batches: 3, Rows: 1234}}, s.Stores)
		require.Equal(t, Journal{Bytes: 100, Limit: 3700, DiskFree: 1e9}, s.Journal, "without the idempotency store")
		require.Empty(t, s.Summary)
		require.Equal(t, ops.OK, s.State)
	})
}

// TestCodesAreOrdered checks that codes with equal numbers are in the same order in each response,
// so that the rows of the page do not jump.
func TestCodesAreOrdered(t *testing.T) {
	d := start(t, false)
	want := []string{"UNKNOWN_DETECTOR", "INVALID_INTERVAL", "INVALID_QUALITY", "INVALID_TIMESTAMP", "INVALID_TYPE", "INVALID_VALUE"}
	for i, code := range want {
		d.codes.WithLabelValues(code).Add(float64(max(2-i, 1)))
	}
	for range 20 {
		var got []string
		for _, c := range d.recorder.Now().Codes {
			got = append(got, c.Code)
		}
		require.Equal(t, want, got)
	}
}

// TestRatesBetweenBatches checks that the rates of a client that sends every few seconds do not
// depend on how long ago its last batch was.
func TestRatesBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, false)
		for n := range 2 * window {
			d.items.WithLabelValues().Add(1000 * float64(n%2)) // every 10 seconds
			d.pass(step)
			d.recorder.record(time.Now())
			if n < window { // not yet a minute
				continue
			}
			d.pass(step - time.Second)                                                        // until just before the next sample
			require.InDelta(t, 100, d.recorder.Now().Rates.Accepted, 20, "after %d steps", n) // a minute has 5 or 6 batches
			d.pass(time.Second - step)
		}
	})
}

// TestRegistryWarnings checks that the status names the doubtful entries of a detector list.
func TestRegistryWarnings(t *testing.T) {
	d := start(t, false)
	d.recorder.gatherer.(*prometheus.Registry).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trafficd_registry_detectors", ConstLabels: prometheus.Labels{"product_instance": "city"},
	}, func() float64 { return 2 }))
	d.recorder.gatherer.(*prometheus.Registry).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trafficd_sites_sick_detectors", ConstLabels: prometheus.Labels{"product_instance": "city"},
	}, func() float64 { return 1 }))
	d.ready = ops.NewReadiness(map[string]ops.Component{"registry": {State: ops.OK, Detail: map[string]any{
		"feeds": []registry.Status{{ProductInstance: "city", Doubtful: 1, Warnings: []string{"line 7: …"}}},
	}}})
	require.Equal(t, []Registry{{ProductInstance: "city", Detectors: 2, Doubtful: 1, Warnings: []string{"line 7: …"}, Sick: 1}}, d.recorder.Now().Registries)
}

// TestConsequenceFirst checks that the summary begins with what clients see.
func TestConsequenceFirst(t *testing.T) {
	d := start(t, false)
	f := func(daemon ops.State, full ops.State, serves map[string]bool, want ...string) {
		t.Helper()
		components := map[string]ops.Component{"daemon": {State: daemon}, "journal": {State: full, Reasons: []string{"the disk is full"}}}
		if daemon != ops.OK {
			components["daemon"] = ops.Component{State: daemon, Reasons: []string{"draining"}}
		}
		d.ready = ops.NewReadiness(components)
		d.ready.Serves = serves
		require.Equal(t, want, d.recorder.Now().Summary)
	}
	const full = "journal: the disk is full."
	f(ops.OK, ops.Degraded, map[string]bool{"ingest": false, "forecast": true, "routing": true}, "Every request for ingest is rejected.", full)
	f(ops.OK, ops.Degraded, map[string]bool{"ingest": true, "forecast": true, "routing": true}, full)
	f(ops.OK, ops.NotReady, map[string]bool{"ingest": false, "forecast": false, "routing": false}, "Every request is rejected.", full)
	f(ops.NotReady, ops.NotReady, map[string]bool{"ingest": false}, "daemon: draining.", full)
}

var update = flag.Bool("update", false, "write status.example.json, from which the page takes its types")

// examplePath is the path of an example that has every member of a status.
const examplePath = "../../../sources/page/app/src/status.example.json"

// TestDocument checks that the operators' OpenAPI document, and the example from which the page
// takes its types, describe every member of a status.
func TestDocument(t *testing.T) {
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	text, err := json.MarshalIndent(Status{
		Time: at, Version: "v1", Host: "traffic-1", Started: at, State: ops.Degraded, Summary: []string{"ClickHouse is slow."},
		Rates: Rates{1, 14000, 12}, Latency: &Latency{.01, .05}, Codes: []Code{{"UNKNOWN_DETECTOR", 7, .5}},
		Clients: []Client{{"acme", 1, 14000, 12, &at, &at, 390}}, Journal: Journal{1e6, 1e10, 1e11},
		Stores:     []Store{{"clickhouse", 2, 28000, 3.5, "connection refused", 1}},
		Registries: []Registry{{"city", 100, 1, []string{"line 7: latitude 95 is not between -90 and 90"}, 3, 60, "status 500"}}, Forecast: &Forecast{2000, 12, &at, true},
		History: History{at.Unix(), 5, map[string][]point{"accepted": {14000}}},
	}, "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(examplePath, append(text, '\n'), 0o600))
	}
	want, err := os.ReadFile(examplePath)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text)+"\n", "run go test ./cmd/trafficd/status -update to write the example again")

	var document map[string]any
	require.NoError(t, yaml.Unmarshal(openapi.Operators, &document))
	schemas := document["components"].(map[string]any)["schemas"].(map[string]any)
	var status any
	require.NoError(t, json.Unmarshal(text, &status))
	requireConforms(t, schemas["Status"], status, "status")
	item := pipeline.TapItem{
		Client: "acme", Code: "OK", Detector: "D", Field: "value", Message: []byte(`"text"`), Type: "speed", From: &at, To: &at, Value: new(50.0), Batch: "b",
	}
	text, err = json.Marshal(item)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &status))
	requireConforms(t, schemas["Item"], status, "item")
}

// requireConforms requires a value with every member of the schema and no others.
func requireConforms(t *testing.T, schema, value any, path string) {
	t.Helper()
	s := schema.(map[string]any)
	switch v := value.(type) {
	case map[string]any:
		require.Equal(t, "object", s["type"], path)
		properties, _ := s["properties"].(map[string]any)
		for name, x := range v {
			property := properties[name]
			if property == nil {
				property = s["additionalProperties"]
			}
			require.NotNil(t, property, "%s.%s is not described", path, name)
			requireConforms(t, property, x, path+"."+name)
		}
		for name := range properties {
			require.Contains(t, v, name, "%s.%s is in the schema, but not in the value", path, name)
		}
	case []any:
		require.Equal(t, "array", s["type"], path)
		for _, x := range v {
			requireConforms(t, s["items"], x, path+"[]")
		}
	case string:
		require.Equal(t, "string", s["type"], path)
	case bool:
		require.Equal(t, "boolean", s["type"], path)
	default:
		require.Contains(t, []string{"number", "integer", "[number null]"}, fmt.Sprint(s["type"]), path)
	}
}

// TestSameReasonOnce checks that a reason of several components is one sentence.
func TestSameReasonOnce(t *testing.T) {
	d := start(t, false)
	all := map[string]ops.Component{}
	for name, reason := range map[string]string{"keys": "no such file", "registry": "no such file", "settings": "another"} {
		var c ops.Component
		c.Add(ops.Degraded, ops.StoreUnreachable, reason)
		all[name] = c
	}
	d.ready = ops.NewReadiness(all)
	require.Equal(t, []string{
		"keys, registry: no such file; see the runbook, TrafficdStoreUnreachable.", "settings: another; see the runbook, TrafficdStoreUnreachable.",
	}, d.recorder.Now().Summary)
}

func TestSummary(t *testing.T) {
	d := start(t, false)
	d.batches.WithLabelValues("OK").Add(1)
	d.items.WithLabelValues().Add(1000)
	d.lag.WithLabelValues("clickhouse").Set(1200)
	d.rows.WithLabelValues("clickhouse").Set(1_234_567)
	d.set("clickhouse", ops.Degraded, "connection refused")
	d.recorder.record(time.Now())
	d.pass(4 * time.Minute)
	d.bytes.Set(340) // 1 byte a second, and 3,360 are free
	s := d.recorder.Now()
	require.Equal(t, []string{
		"ClickHouse has accepted no measurements for 4 min; about 1.23 M measurements are waiting in the journal, which has room for 56 min at this rate. " +
			"The error is: connection refused; see the runbook, TrafficdStoreUnreachable.",
	}, s.Summary)
	require.Equal(t, "connection refused", s.Stores[0].Error)
	d.bytes.Set(3700)
	require.Contains(t, d.recorder.Now().Summary[0], "the journal, which is full: batches are rejected with 503")
	d.bytes.Set(100)
	require.Contains(t, d.recorder.Now().Summary[0], "the journal, which is 3% full.")
	d.free.Set(1000)
	require.Contains(t, d.recorder.Now().Summary[0], "the journal, which is full: batches are rejected with 503")
	d.free.Set(1e9)
	d.set("clickhouse", ops.Degraded, "65s behind")
	require.Equal(t, "ClickHouse is slow; about 1.23 M measurements are waiting in the journal, which is 3% full. "+
		"The reason is: 65s behind; see the runbook, TrafficdStoreUnreachable.", d.recorder.Now().Summary[0])
	d.set("clickhouse", ops.OK, "")
	require.Empty(t, d.recorder.Now().Summary)
}

// TestSlowStoreFails checks that the time for which a store has accepted nothing does not include
// the time before, when it was only slow.
func TestSlowStoreFails(t *testing.T) {
	d := start(t, false)
	d.lag.WithLabelValues("clickhouse").Set(1)
	d.rows.WithLabelValues("clickhouse").Set(7)
	d.set("clickhouse", ops.Degraded, "65s behind")
	d.recorder.record(time.Now())
	d.pass(time.Hour)
	d.set("clickhouse", ops.Degraded, "connection refused")
	d.recorder.record(time.Now())
	d.pass(4 * time.Minute)
	require.Contains(t, d.recorder.Now().Summary[0], "ClickHouse has accepted no measurements for 4 min;")
}

// TestStalledStore checks that the time for which a store has accepted nothing begins with its
// first attempt, not with the first error, and that an unknown number of measurements is not 0.
func TestStalledStore(t *testing.T) {
	d := start(t, false)
	d.lag.WithLabelValues("clickhouse").Set(1)
	d.rows.WithLabelValues("clickhouse").Set(7)
	d.set("clickhouse", ops.Degraded, "connection refused")
	d.ready.Components["clickhouse"].Detail["stalled_seconds"] = 45.5
	d.recorder.record(time.Now())
	require.Contains(t, d.recorder.Now().Summary[0], "ClickHouse has accepted no measurements for 45 s; about 7 measurements are waiting")
	d.ready.Components["clickhouse"].Detail["counted"] = false
	require.Contains(t, d.recorder.Now().Summary[0], "for 45 s; an unknown number of measurements is waiting in the journal")
}

// TestTroubleOfNewComponent checks that the trouble of a component that was not reported for a
// while, for example because no key needed it, begins when it is reported again.
func TestTroubleOfNewComponent(t *testing.T) {
	d := start(t, false)
	for range 2 {
		d.set("journal", ops.OK, "")
		d.recorder.record(time.Now())
		d.set("registry", ops.Degraded, "no list")
		d.recorder.record(time.Now())
		d.pass(4 * time.Minute)
		require.Equal(t, []string{"registry (for 4 min): no list; see the runbook, TrafficdStoreUnreachable."}, d.recorder.Now().Summary)
	}
}

// TestJournalInKafka checks that the size of the idempotency store, which is always on disk, is not
// reported as that of a journal in Kafka.
func TestJournalInKafka(t *testing.T) {
	d := start(t, true)
	d.lag.WithLabelValues("kafka").Set(1)
	d.rows.WithLabelValues("kafka").Set(7)
	d.set("kafka", ops.Degraded, "65s behind")
	s := d.recorder.Now()
	require.Zero(t, s.Journal)
	require.Equal(t, []string{"Kafka is slow; about 7 measurements are waiting in the journal. The reason is: 65s behind; see the runbook, TrafficdStoreUnreachable."}, s.Summary)
}

// TestHistoryIsBounded records more than an hour, with a store that was not there from the start.
func TestHistoryIsBounded(t *testing.T) {
	d := start(t, false)
	for i := range points + 10 {
		if i == points-5 {
			d.lag.WithLabelValues("kafka").Set(1)
			d.rows.WithLabelValues("kafka").Set(7)
		}
		d.recorder.record(time.Now())
	}
	h := d.recorder.Now().History
	for name, values := range h.Series {
		require.Len(t, values, points, name)
	}
	require.True(t, math.IsNaN(float64(h.Series["lag_kafka"][0])))
	require.EqualValues(t, 7, h.Series["lag_kafka"][points-1])
	require.Len(t, d.recorder.recent, window)
	w := httptest.NewRecorder()
	d.recorder.ServeHTTP(w, nil)
	var decoded map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &decoded), "NaN is null")
}

func TestCount(t *testing.T) {
	f := func(want string, n float64) {
		t.Helper()
		require.Equal(t, want, count(n))
	}
	f("0", 0)
	f("9999", 9999)
	f("10,000", 10_000)
	f("999,000", 999_499)
	f("1 M", 999_500)
	f("1.23 M", 1_234_567)
	require.Equal(t, "1 measurement is", Measurements(1))
	require.Equal(t, "12,000 measurements are", Measurements(12_000))
}
