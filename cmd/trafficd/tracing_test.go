package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/pipeline/lib/gunzip/compress"
)

// collector receives spans as an OpenTelemetry collector does.
type collector struct {
	url   string
	mu    sync.Mutex
	spans []*tracev1.Span
}

func startCollector(t *testing.T) *collector {
	c := &collector{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = z
		}
		var m collectorv1.ExportTraceServiceRequest
		raw, err := io.ReadAll(body)
		if err == nil {
			err = proto.Unmarshal(raw, &m)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range m.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// named returns the spans with a name.
func (c *collector) named(name string) []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s *tracev1.Span) bool { return s.GetName() != name })
}

func attributes(s *tracev1.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.GetAttributes() {
		v := a.GetValue()
		all[a.GetKey()] = v.GetStringValue()
		if v.GetStringValue() == "" {
			all[a.GetKey()] = fmt.Sprint(v.GetIntValue())
		}
	}
	return all
}

// TestTraces checks the spans of a batch, from the client's request to the topic, even if another
// process delivers it.
func TestTraces(t *testing.T) {
	t.Parallel()
	const (
		traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
		sampled  = "00-" + traceID + "-00f067aa0ba902b7-01"
		excluded = "00-11111111111111111111111111111111-00f067aa0ba902b7-00"
	)
	c, k := startCollector(t), stores.StartKafka(t, stores.Topic("measurements", 2))
	d := newProcess(t, "kafka.brokers="+strings.Join(k.Brokers, ","), "tracing.endpoint="+c.url, "tracing.ratio=0")
	d.Set("kafka.enabled=true", "kafka.brokers=127.0.0.1:9") // nothing there: the next process delivers
	post := func(batch int, traceparent string) (batchID string) {
		body := compress.Gzip(batchOf(item(batch, batch), item(50+batch, batch)))
		r, err := launch.Post(t.Context(), http.DefaultClient, "http://"+d.API, testKey, body, "Traceparent", traceparent)
		require.NoError(t, err)
		require.Equal(t, http.StatusMultiStatus, r.Status)
		if traceparent != "" {
			require.Equal(t, strings.Split(traceparent, "-")[1], r.Header.Get("Trace-Id"))
		}
		return r.Header.Get("Batch-Id")
	}
	d.start().Await(http.StatusOK)
	traced := post(1, sampled)
	post(2, excluded)
	post(3, "") // the ratio is 0
	log := d.Terminate()

	requests := c.named("POST /dataprovider/ingestion/v1/detectors/data/ingest")
	require.Len(t, requests, 1, "%v", c.spans)
	request := requests[0]
	require.Equal(t, traceID, hex.EncodeToString(request.GetTraceId()))
	require.Equal(t, "00f067aa0ba902b7", hex.EncodeToString(request.GetParentSpanId()))
	require.Equal(t, tracev1.Span_SPAN_KIND_SERVER, request.GetKind())
	got := attributes(request)
	maps.DeleteFunc(got, func(k, _ string) bool { return k == "trafficd.client" || k == "trafficd.replay" })
	require.Equal(t, map[string]string{
		"http.request.method": "POST", "http.route": "/dataprovider/ingestion/v1/detectors/data/ingest", "http.response.status_code": "207",
		"trafficd.batch_id": traced, "trafficd.accepted": "2", "trafficd.rejected": "0",
	}, got)
	requireLinked := func(name string) {
		t.Helper()
		spans := c.named(name)
		require.Len(t, spans, 1)
		require.Len(t, spans[0].GetLinks(), 1, "links of %s", name)
		require.Equal(t, request.GetTraceId(), spans[0].GetLinks()[0].GetTraceId())
		require.Equal(t, request.GetSpanId(), spans[0].GetLinks()[0].GetSpanId())
		require.GreaterOrEqual(t, spans[0].GetEndTimeUnixNano(), spans[0].GetStartTimeUnixNano())
	}
	requireLinked("commit to the journal")
	require.NotContains(t, log, "cannot send spans")

	d.Set("kafka.brokers=" + strings.Join(k.Brokers, ","))
	d.start().Await(http.StatusOK)
	d.awaitDelivered()
	found := 0
	for _, r := range k.Records(t, "measurements") {
		want := ""
		if r.Header("batch-id") == traced {
			want = "00-" + traceID + "-" + hex.EncodeToString(request.GetSpanId()) + "-01"
			found++
		}
		require.Equal(t, want, r.Header("traceparent"))
	}
	require.Equal(t, 2, found)
	d.Terminate()
	requireLinked("deliver to kafka")
}

// TestSilentCollector checks that a collector that never responds does not make a shutdown fail.
func TestSilentCollector(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	d := newProcess(t, "tracing.endpoint="+s.URL).start()
	d.Await(http.StatusOK)
	response, err := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, response.Status)
	require.Contains(t, d.Terminate(), "cannot send the last spans; they are dropped")
}
