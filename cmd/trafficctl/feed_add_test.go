package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	feeder "trafficd/cmd/feeder/config"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficctl/internal/keyfile"
	daemon "trafficd/cmd/trafficd/config"
)

// publisher serves the samples as an authority does. It returns its address.
func publisher(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(published(""))))
	t.Cleanup(server.Close)
	return server.URL
}

// written is what is in a directory for which feeds were added.
type written struct {
	feeder *feeder.Config
	daemon *daemon.Config
	all    map[string]string // content of files
}

func readAdded(t *testing.T, dir string) (w written) {
	t.Helper()
	var err error
	w.feeder, _, err = feeder.Load(conf.Options{File: filepath.Join(dir, "feeder.yaml")})
	require.NoError(t, err)
	w.daemon, _, err = daemon.Load(conf.Options{File: filepath.Join(dir, "trafficd.yaml")})
	require.NoError(t, err)
	w.all = map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Type().IsRegular() {
			w.all[e.Name()] = textOf(t, filepath.Join(dir, e.Name()))
		}
	}
	return w
}

// TestFeedAdd configures a feeder and a daemon in an empty directory, twice.
func TestFeedAdd(t *testing.T) {
	url, dir := publisher(t), t.TempDir()
	args := []string{"feed", "add", url + "/measured-v3.7.xml", "--sites", url + "/site-table-v3.7.xml", "--product-instance", "No.1", "--dir", dir}
	out := requireSuccess(t, "", args...).out
	for _, want := range []string{
		"format     fintraffic 3", "sites      1 described: 1 with a position, 0 without; 0 with values are not described\n", "area       longitude", `"measureTypeCode":"speed.lane1"`, "feed no-1 added to " + dir + "/feeder.yaml",
		"for a trial", "feeder --config " + dir + "/feeder.yaml",
	} {
		require.Contains(t, out, want)
	}
	w := readAdded(t, dir)
	f := w.feeder.Feeds[0]
	require.Equal(t, []string{"no-1", url + "/measured-v3.7.xml", "fintraffic", url + "/site-table-v3.7.xml"}, []string{f.Name, f.URL, f.Format, f.Sites})
	require.Equal(t, filepath.Join(dir, "spool"), w.feeder.Spool.Dir)
	require.Equal(t, "http://127.0.0.1:8080", w.feeder.Trafficd.URL)
	list := w.daemon.Registry.Feeds
	require.Len(t, list, 1)
	require.Equal(t, "No.1 http://127.0.0.1:8083/sites", list[0].ProductInstance+" "+list[0].HTTP.URL)
	require.False(t, w.daemon.ClickHouse.Enabled || w.daemon.Kafka.Enabled)
	keys, err := keyfile.Read(w.daemon.API.KeysFile)
	require.NoError(t, err)
	require.Equal(t, keyfile.Digest(strings.TrimSpace(textOf(t, w.feeder.Trafficd.KeyFile))), keys[0].SHA256)
	require.Equal(t, "No.1 [ingest]", fmt.Sprint(keys[0].ProductInstance, " ", keys[0].Rights))
	info, err := os.Stat(w.feeder.Trafficd.KeyFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	out = requireSuccess(t, "", args...).out
	require.Contains(t, out, "feed no-1 is already in ")
	require.Equal(t, w.all, readAdded(t, dir).all, "the second time, nothing is changed")

	requireSuccess(t, "", "feed", "add", url+"/hongkong.xml", "--product-instance", "No.1", "--dir", dir, "--name", "hk", "--every", "15s",
		"--header", "Api-Key: s")
	w = readAdded(t, dir)
	require.Len(t, w.feeder.Feeds, 2)
	require.Len(t, w.daemon.Registry.Feeds, 1)
	require.Equal(t, "hongkong 15s [Api-Key: s]", fmt.Sprint(w.feeder.Feeds[1].Format, " ", w.feeder.Feeds[1].Every, " ", w.feeder.Feeds[1].Headers))
}

// TestFeedAddToFiles extends files that exist, and does not change them if there is a conflict.
func TestFeedAddToFiles(t *testing.T) {
	url := publisher(t)
	const (
		ofDaemon = `# ours
api:
  listen: 0.0.0.0:9090 # all

  keys: []
registry: {feeds: [{product_instance: city, file: {path: detectors.csv}}]} # the town
kafka: {topic: mine}
pipeline: {validate: {measure_types: [{code: flow}, {code: "speed*"}]}}
`
		ofFeeder = `trafficd:
  key_file: KEY

ops: {listen: ":9999"}
# the others

feeds:
  # the first
  - name: old
    url: http://old.example.org/x
    format: ndw
    every: 20s
`
	)
	f := func(change func(dir string, daemon, feeder *string), want string, args ...string) string {
		t.Helper()
		dir := t.TempDir()
		ofDaemon, ofFeeder := ofDaemon, strings.Replace(ofFeeder, "KEY", filepath.Join(dir, "own.key"), 1)
		if change != nil {
			change(dir, &ofDaemon, &ofFeeder)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "trafficd.yaml"), []byte(ofDaemon), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "feeder.yaml"), []byte(ofFeeder), 0o600))
		args = append([]string{"feed", "add", url + "/hongkong.xml", "--dir", dir}, args...)
		if want == "" {
			requireSuccess(t, "", args...)
			return dir
		}
		requireFailure(t, "", want, args...)
		require.Equal(t, ofDaemon, textOf(t, filepath.Join(dir, "trafficd.yaml")))
		require.Equal(t, ofFeeder, textOf(t, filepath.Join(dir, "feeder.yaml")))
		require.NoFileExists(t, filepath.Join(dir, "keys.yaml"))
		return dir
	}
	dir := f(nil, "", "--product-instance", "hk")
	out := requireSuccess(t, "", "feed", "add", url+"/hongkong.xml", "--dir", dir, "--product-instance", "hk").out
	require.Contains(t, out, "measure_types in trafficd.yaml lacks 6 of these codes, such as flow.fast: the daemon rejects them; add")
	w := readAdded(t, dir)
	require.Equal(t, []string{"old", "hk"}, []string{w.feeder.Feeds[0].Name, w.feeder.Feeds[1].Name})
	require.Equal(t, "http://127.0.0.1:9999/sites", w.daemon.Registry.Feeds[1].HTTP.URL)
	require.Equal(t, "/var/lib/feeder", w.feeder.Spool.Dir)
	require.True(t, w.daemon.Kafka.Enabled)
	require.FileExists(t, filepath.Join(dir, "own.key"))
	for _, line := range []string{"# ours", "  listen: 0.0.0.0:9090 # all\n\n  keys: []", "topic: mine", "# the town"} {
		require.Contains(t, w.all["trafficd.yaml"], line)
	}
	require.Contains(t, w.all["feeder.yaml"], "ops: {listen: \":9999\"}\n# the others\n\nfeeds:\n  # the first\n  - name: old\n")

	f(nil, `has another list of detectors for the product instance "city"`, "--product-instance", "city")
	f(nil, `the feed "old" exists in `, "--product-instance", "hk", "--name", "old")
	f(nil, `feeds[1].name is "Old"`, "--product-instance", "hk", "--name", "Old")
	f(func(_ string, _, feeder *string) { *feeder += "    evry: 1s\n" }, `unknown key "feeds[0].evry"`, "--product-instance", "hk")
	f(func(_ string, daemon, _ *string) { *daemon += "registry: {}\n" }, `duplicate key`, "--product-instance", "hk")
	f(func(_ string, daemon, _ *string) { *daemon += "api: [\n" }, `YAML`, "--product-instance", "hk")
	f(func(dir string, daemon, _ *string) {
		other := "keys: [{name: feeder, sha256: " + keyfile.Digest("other") + ", product_instance: hk, rights: [ingest]}]\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "others.yaml"), []byte(other), 0o600))
		*daemon = strings.Replace(*daemon, "keys: []", "keys_file: "+filepath.Join(dir, "others.yaml"), 1)
	}, `has a key named "feeder"`, "--product-instance", "hk")
	f(func(dir string, daemon, _ *string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "own.key"), []byte("own\n"), 0o600))
		*daemon = strings.Replace(*daemon, "keys: []", "keys: [{name: f, sha256: "+keyfile.Digest("own")+", product_instance: nl, rights: [ingest]}]", 1)
	}, `a feeder sends to one product instance`, "--product-instance", "hk")
	requireFailure(t, "", "must be http or https URLs", "feed", "add", published("hongkong.xml"), "--product-instance", "hk")
	requireFailure(t, "", "contains no measurement", "feed", "add", url+"/site-table-v3.7.xml", "--product-instance", "hk", "--dir", t.TempDir())
	requireFailure(t, "", "--period is missing", "feed", "add", url+"/fr-speeds.xml", "--format", "datex2", "--product-instance", "fr", "--dir", t.TempDir())
}

// TestFeedAddForContainers has the files in another directory than the programs.
func TestFeedAddForContainers(t *testing.T) {
	url, dir := publisher(t), t.TempDir()
	for name, text := range map[string]string{"trafficd.yaml": "api: {keys_file: /etc/containers-only/keys.yaml}\n", "keys.yaml": "keys: []\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	args := []string{"feed", "add", url + "/hongkong.xml", "--product-instance", "hk", "--dir", dir, "--feeder-url", "http://feeder:8083/"}
	requireSuccess(t, "", args...)
	w := readAdded(t, dir)
	require.Equal(t, "http://feeder:8083/sites", w.daemon.Registry.Feeds[0].HTTP.URL)
	require.Equal(t, "/etc/containers-only/feeder.key", w.feeder.Trafficd.KeyFile)
	require.Contains(t, w.all["keys.yaml"], "product_instance: hk")
	require.Contains(t, w.all["feeder.key"], "tfd_")
	requireSuccess(t, "", args...)
	require.Equal(t, w.all, readAdded(t, dir).all)
}

// TestFeedAddRuns starts the daemon and the feeder with the files that were written. The
// measurements of rows, whose mapping is in a file, are accepted.
func TestFeedAddRuns(t *testing.T) {
	needs.Everything(t, "processes of the daemon and the feeder")
	dir := t.TempDir()
	table := filepath.Join(dir, "rows.csv")
	require.NoError(t, os.WriteFile(table, []byte("id;at;road;x;y;kmh;vehicles\nA;01/11/2026 08:00;Ring;4,5;52,1;48,5;12\nB;01/11/2026 08:00;Ring;4,6;52,2;;0\n"), 0o600))
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	mapping := file(t, "rows.yaml", `
form: csv
separator: ";"
decimal: ","
detector: id
at: at
layout: 02/01/2006 15:04
values:
  - {column: kmh, measure: speed}
  - {column: vehicles, measure: flow, unit: vehicles}
name: road
lon: x
lat: y
`)
	d, f := launch.Daemon{Dir: dir, Ops: daemontest.FreeAddress(t), API: daemontest.FreeAddress(t)}, launch.Daemon{Dir: dir, Ops: daemontest.FreeAddress(t)}
	for name, text := range map[string]string{
		"trafficd.yaml": fmt.Sprintf("api: {listen: %q}\nops: {listen: %q}\njournal: {dir: %s/journal, min_free_bytes: 0}\nclickhouse: {enabled: false}\nkafka: {enabled: false}\n",
			d.API, d.Ops, dir),
		"feeder.yaml": fmt.Sprintf("ops: {listen: %q}\nspool: {dir: %s/spool}\ntrafficd: {url: \"http://%s\"}\n", f.Ops, dir, d.API),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	requireSuccess(t, "", "feed", "add", server.URL+"/rows.csv", "--format", "rows", "--rows", mapping, "--period", "5m", "--zone", "Europe/Amsterdam",
		"--product-instance", "nl", "--dir", dir, "--every", "1s")
	for name, p := range map[string]*launch.Daemon{"trafficd": &d, "feeder": &f} {
		binary, err := launch.Program(t.Context(), name)
		require.NoError(t, err)
		p.Binary = binary
		p.Args = []string{"--config", filepath.Join(dir, name+".yaml")}
		require.NoError(t, p.Start())
		started := p.Process
		defer func() { _ = started.Kill() }() // fails only if it has exited
	}
	accepted := func() error {
		metrics, err := f.Metrics(t.Context())
		if err == nil && metrics.Sum("trafficd_feeder_accepted_total") != 3 {
			err = fmt.Errorf("log of the feeder: %s", daemontest.LastBytes([]byte(f.Log()), 3000))
		}
		return err
	}
	require.NoError(t, launch.Eventually(t.Context(), 2*time.Minute, accepted))
	_, body, err := f.Get(t.Context(), "/sites")
	require.NoError(t, err)
	var list []map[string]any
	require.NoError(t, json.Unmarshal(body, &list))
	require.Equal(t, map[string]any{"detectorCode": "A", "name": "Ring", "longitude": 4.5, "latitude": 52.1}, list[0])
}
