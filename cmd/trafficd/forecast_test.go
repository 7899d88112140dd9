package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/internal/ops"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func keyEntry(name, right, zone string) string    { return daemontest.KeyEntry(name, right, zone) }
func replaceFile(t *testing.T, path, text string) { daemontest.ReplaceFile(t, path, text) }
func streetLine(street int, speed float64) string { return daemontest.StreetLine(street, speed) }

func (d *process) setForecastFile(name string) (feed string) { return d.SetForecastFile(name) }

func (d *process) layer(key, query string, headers ...string) (*http.Response, []byte) {
	d.t.Helper()
	return d.Layer(key, query, headers...)
}

func TestForecastLayer(t *testing.T) {
	t.Parallel()
	d := newProcess(t, "layers.query_key=true")
	feed, keys := d.setForecastFile("forecasts.ndjson"), filepath.Join(d.Dir, "keys.yaml")
	list := "keys:\n" + keyEntry("map", "forecast", "Europe/Copenhagen") + keyEntry("city", "ingest", "UTC")
	replaceFile(t, keys, list)
	d.start()
	require.Equal(t, ops.Degraded, d.Await(http.StatusOK).Components["forecasts"].State)
	response, _ := d.layer("map", "")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Retry-After"))

	replaceFile(t, feed, streetLine(7, 40)+streetLine(8, 50))
	d.Eventually(func() bool { a, _ := d.layer("map", ""); return a.StatusCode == http.StatusOK }, "the layer is served")
	response, body := d.layer("map", "")
	var got pb.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(body, &got))
	require.Len(t, got.StreetForecast, 2)
	require.Len(t, got.StreetForecast[0].Forecast, 1)
	require.Equal(t, "Europe/Copenhagen", got.StreetForecast[0].Forecast[0].Timezone)
	require.NotEmpty(t, response.Header.Get("Trace-Id"))
	d.Eventually(func() bool { return d.Await(http.StatusOK).Components["forecasts"].State == ops.OK }, "the forecasts are ready")

	response, body = d.layer("map", "?horizon=30", "Accept", "application/json")
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	require.Equal(t, 2, strings.Count(string(body), `"speed_valid":true`), "%s", body)
	response, _ = d.layer("map", "?horizon=30", "Accept", "application/json", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", response.Header.Get("Content-Encoding"))
	again, _ := d.layer("map", "?horizon=30", "Accept", "application/json", "Accept-Encoding", "gzip", "If-None-Match", response.Header.Get("Etag"))
	require.Equal(t, http.StatusNotModified, again.StatusCode)
	part, body := d.layer("map", "", "Accept-Encoding", "identity", "Range", "bytes=0-9")
	require.Equal(t, http.StatusPartialContent, part.StatusCode)
	require.Len(t, body, 10)

	f := func(status int, code, key, query string) {
		t.Helper()
		response, body := d.layer(key, query)
		require.Equal(t, status, response.StatusCode)
		require.Contains(t, string(body), code)
	}
	f(http.StatusUnauthorized, "GENERAL_UNAUTHENTICATED", "", "")
	f(http.StatusForbidden, "GENERAL_FORBIDDEN", "city", "")
	f(http.StatusBadRequest, "INVALID_PARAMETER", "map", "?horizon=7")
	f(http.StatusOK, "", "", "?apiKey=map")

	// A key with a new time zone finds its layer ready at the first request.
	replaceFile(t, keys, list+keyEntry("tokyo", "forecast", "Asia/Tokyo"))
	d.Eventually(func() bool {
		a, body := d.layer("tokyo", "")
		require.NotEqual(t, http.StatusServiceUnavailable, a.StatusCode)
		return a.StatusCode == http.StatusOK && strings.Contains(string(body), "Asia/Tokyo")
	}, "the new key")

	replaceFile(t, feed, streetLine(9, 60)) // lacks both streets: it must be confirmed
	d.Eventually(func() bool {
		c := d.Await(http.StatusOK).Components["forecasts"]
		return c.State == ops.Degraded && strings.Contains(strings.Join(c.Reasons, " "), "the file lacks 2 of the 2 streets in use")
	}, "the reason in readiness")
	require.EqualValues(t, 1, d.Metric("trafficd_forecasts_failing"))
	replaceFile(t, feed, streetLine(8, 50)+streetLine(9, 60))
	d.Eventually(func() bool {
		_, body := d.layer("tokyo", "?horizon=0", "Accept", "application/json")
		return strings.Contains(string(body), `"street":9`) && !strings.Contains(string(body), `"street":7`)
	}, "the new content")
	require.Positive(t, d.Metric("trafficd_layers_body_bytes"))
}

func TestForecastKeyWithoutFeed(t *testing.T) {
	t.Parallel()
	d := newProcess(t)
	d.keys(keyEntry("map", "forecast", "UTC"))
	d.start()
	var c ops.Component
	d.Eventually(func() bool { _, r := d.Readiness(); c = r.Components["forecasts"]; return c.State != "" }, "started")
	require.Equal(t, ops.NotReady, c.State, "no other key can be served")
	require.Equal(t, []string{noForecasts + "; see the runbook, TrafficdNotReady"}, c.Reasons)
	response, body := d.layer("map", "")
	require.Equal(t, http.StatusForbidden, response.StatusCode, "no retry would help")
	require.Contains(t, string(body), "the operator must set forecasts.feed")
}
