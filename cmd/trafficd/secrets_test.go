package main

import (
	"net/http"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/internal/ops"
)

// TestSecretsInURLsAreNotShown checks that the password and the query of a URL in the settings are
// masked wherever the daemon shows the URL.
func TestSecretsInURLsAreNotShown(t *testing.T) {
	d := newProcess(t, "registry.feeds=[{product_instance: "+instance+", http: {url: 'http://user:Se1cret@127.0.0.1:1/list?token=Se2cret&plain'}}]",
		"tracing.endpoint=http://127.0.0.1:1/?token=Se3cret")
	printed, err := exec.Command(binary, append(d.Args, "--print-config")...).CombinedOutput()
	require.NoError(t, err, string(printed))
	checked, _ := exec.Command(binary, append(d.Args, "--check-config=deep")...).CombinedOutput()
	invalid, _ := exec.Command(binary, append(d.Args, "--set", "tracing.endpoint=https://?token=Se3cret", "--set", "routing.public_url=http://h?Se4cret",
		"--set", "pipeline.max_body_bytes=http://h/?Se5cret")...).CombinedOutput()
	d.start()
	var body []byte
	d.Eventually(func() bool {
		_, r := d.Readiness()
		return r.Components["registry"].State == ops.NotReady && r.Components["registry"].Reasons[0] != ""
	}, "a failed request")
	_, readyz := d.Fetch("/readyz")
	_, body = d.Fetch("/status")
	response, err := d.Post(t.Context(), daemontest.BatchNumber(1, 1), "") // a span
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, response.Status)
	log := d.Terminate()
	require.Contains(t, log, "cannot send")
	for name, text := range map[string]string{
		"--print-config": string(printed), "--check-config": string(checked), "invalid": string(invalid),
		"/readyz": string(readyz), "/status": string(body), "log": log,
	} {
		require.NotRegexp(t, `Se\dcret`, text, name)
	}
	require.Contains(t, string(printed), "http://user@127.0.0.1:1/list?token=&")
	for _, text := range []string{string(checked), log} {
		require.Contains(t, text, "http://user:xxxxx@127.0.0.1:1/list?token=xxxxx&xxxxx")
	}
}
