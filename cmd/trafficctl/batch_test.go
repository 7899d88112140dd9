package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
)

// TestBatch checks what is printed about a batch, and that --wait waits until the state is final.
func TestBatch(t *testing.T) {
	const id = "0193a5c2-7b1e-7c3a-9f00-5d2c1a7be001"
	status, final, requests := http.StatusOK, true, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		require.Equal(t, contract.BatchesPath+id, r.URL.Path)
		require.Equal(t, "apiKey "+testKey, r.Header.Get("Authorization"))
		w.WriteHeader(status)
		if status == http.StatusOK {
			_, _ = fmt.Fprintf(w, `{"batchId": %q, "receivedAt": "2026-01-02T09:00:00Z", "accepted": 14000, "final": %v,
				"archived": {"items": 13999, "deadLettered": 1, "at": "2026-01-02T09:00:01Z"}, "forwarded": {"items": 0, "deadLettered": 0}}`, id, final)
		} else {
			status = http.StatusOK
		}
	}))
	defer server.Close()
	args := []string{"batch", id, "--url", server.URL + "/", "--key", testKey}
	const stores = `STORE    ITEMS   DEAD LETTERS  SINCE
archive  13,999  1             2026-01-02T09:00:01Z
topic    0       0             
`
	require.Equal(t, "14,000 items accepted at 2026-01-02T09:00:00Z; final\n"+stores, requireSuccess(t, "", args...).out)
	final = false
	require.Equal(t, "14,000 items accepted at 2026-01-02T09:00:00Z; not final: a store does not have all items yet\n"+stores,
		requireSuccess(t, "", args...).out)
	requireFailure(t, "", "not final after --wait 1ms", append(args, "--wait", "1ms")...)
	status = http.StatusNotFound
	requireFailure(t, "", "404", args...)
	before := requests
	requireFailure(t, "", `"../capabilities" is not a Batch-Id`, "batch", "../capabilities", "--url", server.URL, "--key", testKey)
	require.Equal(t, before, requests)
	requests, final, status = 0, true, http.StatusServiceUnavailable
	requireSuccess(t, "", append(args, "--wait", "1m")...)
	require.Equal(t, 2, requests)
	requests, status = 0, http.StatusForbidden
	requireFailure(t, "", "403", append(args, "--wait", "1m")...)
	require.Equal(t, 1, requests)
}
