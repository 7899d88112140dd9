package main

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/ops"
)

func TestHealth(t *testing.T) {
	d := newProcess(t, "api.keys_file=")
	number, err := launch.PickPort("operators", 0) // that no connection on another address has
	require.NoError(t, err)
	port := strconv.Itoa(number)
	d.Ops = "127.0.0.1:" + port
	d.Set("ops.listen=0.0.0.0:" + port)
	d.start().Eventually(func() bool { _, r := d.Readiness(); return r.Components["daemon"].State == ops.OK }, "started")
	f := func(code int, want string, args ...string) {
		t.Helper()
		cmd := exec.Command(binary, append([]string{"health"}, args...)...)
		out, _ := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), want)
	}
	f(0, "ok\n", "--ops-listen", d.Ops)
	f(0, "ok\n", "--ops-listen", ":"+port)
	f(0, "ok\n", "--ops-listen", "0.0.0.0:"+port)
	f(0, "ok\n", "--ops-listen", d.Ops, "--set", "journal.max_bytes=5") // invalid, but it runs
	f(1, "no API keys", "--ready", "--ops-listen", d.Ops)
	f(1, "503", "--ready", "--ops-listen", d.Ops)
	proxied := false
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proxied = true }))
	t.Setenv("HTTP_PROXY", proxy.URL)
	f(1, "cannot reach the daemon", "--ops-listen", "daemon.invalid:1") // Go never uses a proxy for loopback addresses
	proxy.Close()
	require.False(t, proxied)
	f(1, "ops.listen is empty", "--set", "ops.listen=")
	f(1, "ops.listen", "--ops-listen", "8081")
	d.Terminate()
	f(1, "cannot reach the daemon", "--ops-listen", d.Ops)
	f(1, "/nowhere/trafficd.yaml", "--ops-listen", d.Ops, "--config", "/nowhere/trafficd.yaml")
}
