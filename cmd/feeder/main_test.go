package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// execute runs the program with a configuration file and returns its output.
func execute(t *testing.T, config string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "feeder.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(append(args, "--config", file))
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestPrintConfig(t *testing.T) {
	out, err := execute(t, `
feeds:
  - {name: a, url: "https://user:hidden1@example.org/?token=hidden2", format: ndw, headers: ["Authorization: Bearer hidden3"]}
`, "--print-config")
	require.NoError(t, err)
	require.NotContains(t, out, "hidden")
	require.Contains(t, out, "every: 30s")
}

func TestCheckConfig(t *testing.T) {
	_, err := execute(t, `
trafficd: {url: nowhere}
feeds:
  - {name: A, url: ftp://x, format: none, every: 1ms, cert: c, time: noon, zone: Nowhere, headers: ["x"]}
  - {name: A, url: http://x, format: ndw, sites: y}
`, "--check-config")
	for _, want := range []string{
		"trafficd.url", "trafficd.key_file", "feeds[0].name", "feeds[0].url", "feeds[0].format", "feeds[0].every", "feeds[0].cert", "time of feed A",
		"zone of feed A", "headers of feed A", `name "A" is used by another feed`, "feeds[1].sites",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = execute(t, "feeds: [{name: a, url: http://x, format: ndw, header: y}]", "--check-config")
	require.ErrorContains(t, err, `did you mean "feeds[0].headers"?`)
	require.NotContains(t, err.Error(), "feeds must be set")
	_, err = execute(t, "trafficd: {key_file: k}", "--check-config")
	require.ErrorContains(t, err, "feeds must be set")
}

// TestDeepCheck checks that trafficd and the feeds are asked.
func TestDeepCheck(t *testing.T) {
	dir, status := t.TempDir(), http.StatusUnauthorized
	key := filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(key, []byte("k\n"), 0o600))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"accepted":0}`))
	}))
	defer server.Close()
	c, _ := feedConfig(server.URL)
	c.Trafficd.URL, c.Trafficd.KeyFile, c.Spool.Dir = server.URL, key, dir
	require.NoError(t, check(t.Context(), c, false))
	err := check(t.Context(), c, true)
	require.ErrorContains(t, err, "401")
	require.ErrorContains(t, err, "check the key")
	require.ErrorContains(t, err, "feeds[0], test: GET "+server.URL)
	c.Spool.Dir, c.Trafficd.KeyFile, c.Feeds[0].BodyFile = "/dev/null/none", "/none", "/none"
	err = check(t.Context(), c, false)
	for _, want := range []string{"spool.dir", "trafficd.key_file", "feeds[0], test: "} {
		require.ErrorContains(t, err, want)
	}
}
