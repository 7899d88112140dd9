package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	feeder "trafficd/cmd/feeder/config"
	"trafficd/cmd/internal/conf"
	"trafficd/schemas/feeds"
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
trafficd: {key_file: k}
feeds:
  - {name: a, url: "https://user:hidden1@example.org/?token=hidden2", format: ndw, headers: ["Authorization: Bearer hidden3"]}
`, "--print-config")
	require.NoError(t, err)
	require.NotContains(t, out, "hidden")
	require.Contains(t, out, "every: 30s")
	out, err = execute(t, "log: {level: debug}", "--print-config")
	require.ErrorContains(t, err, "feeds must be set")
	require.Contains(t, out, "level: debug")
}

// TestDocumentedSettings checks that the feeder accepts the settings that the documents show, and
// that those of rows read the row that they show.
func TestDocumentedSettings(t *testing.T) {
	text, err := os.ReadFile("../../deployments/README.md")
	require.NoError(t, err)
	block := func(name string) string {
		m := regexp.MustCompile("(?ms)^```yaml\n(# " + regexp.QuoteMeta(name) + ".*?)^```$").FindStringSubmatch(string(text))
		require.NotNil(t, m, name)
		return m[1]
	}
	_, err = execute(t, block("feeder.yaml"), "--print-config")
	require.NoError(t, err)
	rows := block("rows.yaml")
	config := "trafficd: {key_file: k}\nfeeds:\n  - name: a\n    url: http://x\n    format: rows\n    period: 5m\n    zone: Europe/Madrid\n    rows:\n" +
		regexp.MustCompile("(?m)^").ReplaceAllString(rows, "      ")
	out, err := execute(t, config, "--print-config")
	require.NoError(t, err)
	require.Contains(t, out, "rows.values.unit: ")
	file := filepath.Join(t.TempDir(), "feeder.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	c, _, err := feeder.Load(conf.Options{File: file})
	require.NoError(t, err)
	o, err := c.Feeds[0].Options("")
	require.NoError(t, err)
	format, _ := feeds.Lookup("rows")
	row, _, _ := strings.Cut(regexp.MustCompile(`rows such as (.*)`).FindStringSubmatch(rows)[1], "\n")
	var got []string
	_, err = format.Parse(strings.NewReader(row+"\n"), o, feeds.Sink{Rows: func(all []feeds.Row) error {
		for i := range all {
			got = append(got, fmt.Sprint(all[i].Site, " ", all[i].Code, " ", all[i].Value, " ", all[i].From.Format(time.RFC3339), " ", all[i].Outcome))
		}
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"715898 flow.lane1 144 2026-01-31T07:00:00Z measured", "715898 speed.lane1 48.5 2026-01-31T07:00:00Z measured"}, got)
}

func TestCheckConfig(t *testing.T) {
	_, err := execute(t, `
trafficd: {url: nowhere}
feeds:
  - {name: A, url: ftp://x, format: none, every: 1ms, cert: c, time: noon, zone: Nowhere, period: -1s, rows: {form: csv}, headers: ["x"]}
  - {name: A, url: http://x, format: ndw, sites: y}
  - {name: b, url: http://x, format: rows, sites: http://y, rows: {form: csv}}
`, "--check-config")
	for _, want := range []string{
		"trafficd.url", "trafficd.key_file", "feeds[0].name", "feeds[0].url", "feeds[0].format", "feeds[0].every", "feeds[0].cert", "feeds[0].time",
		"feeds[0].zone", "feeds[0].headers", `name "A" is used by another feed`, "feeds[1].sites", "feeds[0].period", "feeds[0].rows is only", "feeds[2].rows: detector must", "feeds[2].sites",
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
