package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
)

// TestDetectorsHealth checks what is printed about sick detectors.
func TestDetectorsHealth(t *testing.T) {
	list, status := `[]`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, contract.HealthPath, r.URL.Path)
		require.Equal(t, "apiKey "+testKey, r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"productInstance": "city", "checkedAt": "2026-01-02T09:00:00Z", "count": 3, "detectors": %s}`, list)
	}))
	defer server.Close()
	args := []string{"detectors", "health", "--url", server.URL, "--key", testKey}
	r := requireSuccess(t, "", args...)
	require.Equal(t, "trafficctl: 3 states of product instance city, tested at 2026-01-02T09:00:00Z\n", r.err)
	list = `[{"measureTypeCode": "speed", "state": "feed", "since": "2026-01-02T08:00:00Z", "reason": "all stopped"},
		{"detectorCode": "A\u001b[2J", "measureTypeCode": "speed", "state": "constant", "since": "2026-01-02T03:00:00Z", "reason": "speed is 57"}]`
	require.Equal(t, `DETECTOR  TYPE   STATE     SINCE                 REASON
(many)    speed  feed      2026-01-02T08:00:00Z  all stopped
A�[2J     speed  constant  2026-01-02T03:00:00Z  speed is 57
… and 1 more
`, requireSuccess(t, "", append(args, "--quiet")...).out)
	status = http.StatusServiceUnavailable
	requireFailure(t, "", "503", args...)
}
