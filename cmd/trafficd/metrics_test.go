package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/trafficd/status"
	"trafficd/pipeline/lib/gunzip/compress"
)

// TestStatusWithBasePath checks that /status has the latency of batches if api.base_path is set.
func TestStatusWithBasePath(t *testing.T) {
	t.Parallel()
	d := newProcess(t, "api.base_path=/traffic").start()
	d.Await(http.StatusOK)
	response, err := launch.Post(t.Context(), http.DefaultClient, "http://"+d.API+"/traffic", testKey, compress.Gzip(batchOf(item(1, 0))))
	require.NoError(t, err)
	require.Equal(t, http.StatusMultiStatus, response.Status)
	var got status.Status
	_, text := d.Fetch("/status")
	require.NoError(t, json.Unmarshal(text, &got))
	require.NotNil(t, got.Latency)
	require.Positive(t, got.Latency.P50)
	require.Equal(t, float64(8<<30), got.Journal.Limit, "journal.max_bytes")
}
