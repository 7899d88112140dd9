package metrics

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protodelim"
)

var (
	latency = NewSeconds("metrics_test_seconds", "For a test, in seconds.")
	counter = NewCounter("metrics_test_total", "For a test.")
)

func TestCountingDoesNotAllocate(t *testing.T) {
	durations := make([]float64, 500)
	for i, d := 0, 0.0001; i < len(durations); i, d = i+1, d*1.03 {
		durations[i] = d
	}
	all := func() {
		for _, d := range durations {
			latency.Observe(d)
			counter.Inc()
		}
	}
	all() // native buckets are created by their first value
	require.Zero(t, testing.AllocsPerRun(1000, all))
}

// TestNativeHistograms checks that a scraper that asks for protobuf gets native buckets, and any
// other scraper classic ones.
func TestNativeHistograms(t *testing.T) {
	latency.Observe(0.5)
	scrape := func(accept string) (mediaType string, body []byte) {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		promhttp.Handler().ServeHTTP(w, r)
		return w.Header().Get("Content-Type"), w.Body.Bytes()
	}
	_, text := scrape("")
	require.Contains(t, string(text), `metrics_test_seconds_bucket{le="0.5"} `)
	mediaType, binary := scrape("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	require.Contains(t, mediaType, "application/vnd.google.protobuf")
	in := bufio.NewReader(bytes.NewReader(binary))
	for {
		var f dto.MetricFamily
		require.NoError(t, protodelim.UnmarshalFrom(in, &f), "the histogram is missing")
		if f.GetName() == "metrics_test_seconds" {
			h := f.Metric[0].Histogram
			require.NotEmpty(t, h.PositiveSpan)
			require.NotEmpty(t, h.Bucket)
			return
		}
	}
}

// TestRegisterReplaces checks that a second collector of the same metrics replaces the first.
func TestRegisterReplaces(t *testing.T) {
	gauge := func(v float64) Collector {
		return GaugeFunc("metrics_test_replaced", "For a test.", nil, func() float64 { return v })
	}
	value := func() string {
		w := httptest.NewRecorder()
		promhttp.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	first, second := gauge(1), gauge(2)
	Register(first)
	require.Contains(t, value(), "\nmetrics_test_replaced 1\n")
	Register(second)
	require.Contains(t, value(), "\nmetrics_test_replaced 2\n")
	Unregister(second)
	require.NotContains(t, value(), "\nmetrics_test_replaced")
}
