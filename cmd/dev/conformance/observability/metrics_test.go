package observability

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/needs"
)

// TestPromtool checks that promtool finds no problem in the metrics of a running daemon, and that
// the daemon exports no series for impossible label values.
func TestPromtool(t *testing.T) {
	needs.Everything(t, "promtool")
	d := daemontest.New(t)
	changeKeys(d, "test")
	d.Run()
	d.Await(http.StatusOK)
	sendBatches(d, 2)
	_, text := d.Fetch("/metrics")
	check := exec.Command(needs.Program(t, "promtool"), "check", "metrics")
	check.Stdin = bytes.NewReader(text)
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out))
	for name, want := range map[string]string{
		"trafficd_ingest_batches_total":                       `{code="OK"} 2`,
		"trafficd_api_requests_total":                         `{code="OK",route="/dataprovider/ingestion/v1/detectors/data/ingest"} 2`,
		"trafficd_ingest_client_batches_total":                `{client="test"} 2`,
		"trafficd_ingest_client_items_accepted_total":         `{client="test"} 2`,
		"trafficd_ingest_client_items_rejected_total":         `{client="test"} 2`,
		"trafficd_build_info":                                 `{goversion="go`,
		"trafficd_journal_bytes_limit":                        `{journal="measurements"} 8.589934592e+09`,
		"trafficd_ingest_client_last_batch_timestamp_seconds": `{client="test"} 1.`,
		"trafficd_ops_ready":                                  " 1",
		"go_goroutines":                                       " ",
		"process_open_fds":                                    " ",
		"go_memstats_mallocs_total":                           " ",
	} {
		require.Contains(t, string(text), "\n"+name+want)
	}
	require.NotContains(t, string(text), `trafficd_ingest_items_rejected_total{code="OK"}`)
	require.NotContains(t, string(text), `trafficd_ingest_batches_total{code="NOT_FOUND"}`)
	require.Contains(t, string(text), `trafficd_ingest_batches_total{code="GENERAL_FORBIDDEN"} 0`)
	require.NotContains(t, string(text), "trafficd_api_certificate_expiry", "no TLS")
	require.Positive(t, d.Metric("trafficd_journal_disk_free_bytes"))
	names := metricNames(t)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (trafficd_\w+)`).FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, names, m[1])
	}

	changeKeys(d, "renamed")
	d.Eventually(func() bool {
		_, text = d.Fetch("/metrics")
		return strings.Contains(string(text), `{client="renamed"} 0`) && !strings.Contains(string(text), `client="test"`)
	}, "the series of the new key instead of those of the removed one")
	d.Terminate()
}

// TestPrometheus lets a real Prometheus scrape the daemon and computes a quantile there.
func TestPrometheus(t *testing.T) {
	needs.Everything(t, "Prometheus")
	d := daemontest.New(t)
	changeKeys(d, "test")
	d.Run()
	d.Await(http.StatusOK)
	address := daemontest.FreeAddress(t)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: trafficd, static_configs: [{targets: [%q]}]}]\n", d.Ops)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	log := new(bytes.Buffer)
	cmd := exec.CommandContext(t.Context(), needs.Program(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", daemontest.LastBytes(log.Bytes(), 3000))
		}
	})
	route := `{route="/dataprovider/ingestion/v1/detectors/data/ingest"}`
	for query, ok := range map[string]func(v float64) bool{
		"histogram_quantile(0.99, rate(trafficd_api_request_seconds_bucket" + route + "[1m]))": func(v float64) bool { return v > 0 && v < 60 },
		`trafficd_ingest_client_items_accepted_total{client="test"}`:                           func(v float64) bool { return v > 0 },
	} {
		d.Eventually(func() bool {
			sendBatches(d, 1)
			v, found := queryPrometheus(address, query)
			return found && ok(v)
		}, "a response to %s", query)
	}
	metadata, err := http.Get("http://" + address + "/api/v1/metadata?metric=trafficd_api_request_seconds")
	require.NoError(t, err)
	defer metadata.Body.Close()
	var a struct {
		Data map[string][]struct{ Type, Help string }
	}
	require.NoError(t, json.NewDecoder(metadata.Body).Decode(&a))
	require.Equal(t, "histogram", a.Data["trafficd_api_request_seconds"][0].Type)
	require.NotEmpty(t, a.Data["trafficd_api_request_seconds"][0].Help)
}

// queryPrometheus returns the value of a query. found reports whether the query returned exactly
// one result that is not NaN.
func queryPrometheus(address, query string) (v float64, found bool) {
	r, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, false
	}
	defer r.Body.Close()
	var a struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if json.NewDecoder(r.Body).Decode(&a) != nil || len(a.Data.Result) != 1 {
		return 0, false
	}
	text, _ := a.Data.Result[0].Value[1].(string)
	v, err = strconv.ParseFloat(text, 64)
	return v, err == nil && v == v
}

// sendBatches sends batches of an accepted and a rejected item.
func sendBatches(d *daemontest.Trafficd, n int) {
	for range n {
		a, err := d.Post(d.T.Context(), `{"measurements":[`+daemontest.Item(1, 0)+`,{}]}`, "")
		require.NoError(d.T, err)
		require.Equal(d.T, http.StatusMultiStatus, a.Status)
	}
}

// changeKeys replaces the keys file with one that contains the same key under the given name.
func changeKeys(d *daemontest.Trafficd, name string) {
	digest := sha256.Sum256([]byte(daemontest.Key))
	keys := "keys:\n- {name: " + name + ", sha256: " + hex.EncodeToString(digest[:]) + ", product_instance: " + daemontest.Instance + ", rights: [ingest]}\n"
	path := filepath.Join(d.Dir, "keys.yaml")
	require.NoError(d.T, os.WriteFile(path+".new", []byte(keys), 0o600))
	require.NoError(d.T, os.Rename(path+".new", path))
}
