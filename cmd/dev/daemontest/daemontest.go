// Package daemontest runs a trafficd in its own process for tests, those of cmd/trafficd and of
// conformance, with one API key, a registry of a hundred detectors and, unless settings enable
// them, no stores.
package daemontest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/internal/ops"
	"trafficd/schemas/contract"
	"trafficd/sinks/layers"
)

// Key is the API key, with the right ingest for the product instance Instance.
const (
	Key      = "tk_test"
	Instance = "city"
)

// Detector returns a detector of the registry: D0000 … D0099.
func Detector(i int) string { return fmt.Sprintf("D%04d", i%100) }

// Trafficd is a trafficd process.
type Trafficd struct {
	T *testing.T
	launch.Daemon
}

// New configures a daemon. It does not start it.
func New(t *testing.T, settings ...string) *Trafficd {
	t.Helper()
	var detectors []string
	for i := range 100 {
		detectors = append(detectors, Detector(i))
	}
	return With(t, detectors, settings...)
}

// With is like New, but with the given detectors.
func With(t *testing.T, detectors []string, settings ...string) *Trafficd {
	t.Helper()
	binary, err := launch.Program(t.Context(), "trafficd")
	require.NoError(t, err)
	d := &Trafficd{t, launch.Daemon{Binary: binary, Dir: t.TempDir()}}
	require.NoError(t, d.Configure(Instance, Key, "ingest", detectors,
		"journal.min_free_bytes=0", "clickhouse.enabled=false", "kafka.enabled=false"))
	d.Set(settings...)
	return d
}

// ExamplesKey is the key of the daemon that Examples runs. It has the rights of all clients.
const ExamplesKey = "integrator"

// Examples runs a daemon with the detectors and the street of the examples in the OpenAPI document.
func Examples(t *testing.T, settings ...string) *Trafficd {
	t.Helper()
	d := With(t, []string{"MQ-0815-1", "MQ-4711-2"})
	ReplaceFile(t, d.SetForecastFile("forecasts.ndjson"), StreetLine(4711, 43.2))
	d.Keys(KeyEntry(ExamplesKey, "ingest, forecast, routing", "Europe/Copenhagen"))
	d.Set(settings...)
	d.Run().Await(http.StatusOK)
	d.AwaitLayer(ExamplesKey)
	return d
}

// Run starts the daemon and kills it when the test ends.
func (d *Trafficd) Run() *Trafficd {
	d.T.Helper()
	require.NoError(d.T, d.Start())
	started := d.Process
	d.T.Cleanup(func() {
		_ = started.Kill() // fails only if it has exited
		if d.T.Failed() {
			d.T.Logf("log of the daemon:\n%s", LastBytes([]byte(d.Log()), 6000))
		}
	})
	return d
}

// End waits until the daemon exits and returns its exit code and log.
func (d *Trafficd) End() (code int, log string) {
	d.T.Helper()
	select {
	case <-d.Done():
	case <-time.After(2 * time.Minute):
		d.T.Fatal("the daemon does not exit")
	}
	return d.State().ExitCode(), d.Log()
}

// Terminate stops the daemon with SIGTERM, requires the exit code 0, and returns the log.
func (d *Trafficd) Terminate() (log string) {
	d.T.Helper()
	require.NoError(d.T, d.Signal(syscall.SIGTERM))
	code, log := d.End()
	require.Zero(d.T, code, log)
	return log
}

// Readiness returns the response of /readyz; status 0 means that there was none.
func (d *Trafficd) Readiness() (status int, r ops.Readiness) {
	status, body := d.Fetch("/readyz")
	_ = json.Unmarshal(body, &r)
	return status, r
}

// Fetch returns a response of the operators' listener; status 0 means that there was none.
func (d *Trafficd) Fetch(path string) (status int, body []byte) {
	status, body, _ = d.Get(context.Background(), path)
	return status, body
}

// Await waits until /readyz returns the status.
func (d *Trafficd) Await(status int) ops.Readiness {
	d.T.Helper()
	var r ops.Readiness
	d.Eventually(func() bool {
		var got int
		got, r = d.Readiness()
		return got == status
	}, "readiness %d", status)
	return r
}

// Eventually waits until ok returns true. It fails when the daemon exits.
func (d *Trafficd) Eventually(ok func() bool, what string, args ...any) {
	d.T.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		select {
		case <-d.Done():
			d.T.Fatalf("the daemon exited while the test waited for: "+what, args...)
		default:
		}
	}
	_, r := d.Readiness()
	d.T.Fatalf("timed out after a minute waiting for: "+what+"; readiness: %+v", append(args, r)...)
}

// Metric returns the sum of all series of a metric, or NaN if there is none.
func (d *Trafficd) Metric(name string) float64 {
	metrics, _ := d.Metrics(context.Background()) // without a response there is no series
	return metrics.Sum(name)
}

// Keys replaces the keys file; see KeyEntry.
func (d *Trafficd) Keys(entries ...string) {
	d.T.Helper()
	text := "keys:\n"
	for _, e := range entries {
		text += e
	}
	require.NoError(d.T, os.WriteFile(filepath.Join(d.Dir, "keys.yaml"), []byte(text), 0o600))
}

// KeyEntry returns a line of the keys file for a key that equals its name.
func KeyEntry(name, right, zone string) string {
	digest := sha256.Sum256([]byte(name))
	return fmt.Sprintf("- {name: %s, sha256: %s, product_instance: %s, rights: [%s], timezone: %s}\n", name, hex.EncodeToString(digest[:]), Instance, right, zone)
}

// SetForecastFile makes a file in the daemon's directory its forecast feed, and returns the path.
func (d *Trafficd) SetForecastFile(name string) (feed string) {
	feed = filepath.Join(d.Dir, name)
	d.Set("forecasts.feed=file", "forecasts.file.path="+feed)
	return feed
}

// ReplaceFile replaces a file atomically, as writers of feeds must.
func ReplaceFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// StreetLine returns a street's forecast: one period around now, so that the layer does not change
// with the minute during the test.
func StreetLine(street int, speed float64) string {
	hour := time.Now().UTC().Truncate(time.Hour)
	return fmt.Sprintf(`{"street":%d,"fromnode":1,"openLRcode":"CwOiYCUMnQkJAP+/ABQBCg==","forecast":[{"start":%q,"end":%q,"speed_valid":true,"speed":%v}]}`+"\n",
		street, hour.Format(time.RFC3339), hour.Add(6*time.Hour).Format(time.RFC3339), speed)
}

// Layer requests the forecast layer with a key.
func (d *Trafficd) Layer(key, query string, headers ...string) (*http.Response, []byte) {
	d.T.Helper()
	if key != "" {
		headers = append([]string{"Authorization", "apiKey " + key}, headers...)
	}
	response, body := WithoutKey(d.T, http.MethodGet, "http://"+d.API+layers.Path+query, headers...)
	return response, []byte(body)
}

// AwaitLayer waits until the layer is served.
func (d *Trafficd) AwaitLayer(key string) {
	d.T.Helper()
	d.Eventually(func() bool {
		r, err := launch.GetLayer(d.T.Context(), http.DefaultClient, "http://"+d.API, key, "")
		return err == nil && r.Status == http.StatusOK // it may not listen yet
	}, "the layer is served")
}

// WithoutKey sends a request with the given headers only. It does not follow redirects.
func WithoutKey(t *testing.T, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body) // decompressed if the transport asked for gzip
	require.NoError(t, err)
	return response, string(body)
}

// Day is the date of the measurements: any day in the past.
var Day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// Item returns a valid measurement. batch and n identify it, even in the stores.
func Item(n, batch int) string {
	from := Day.Add(time.Duration(batch) * 5 * time.Minute)
	m := contract.Measurement{
		DetectorCode: Detector(n), MeasureTypeCode: fmt.Sprint("flow", n/100), TimestampFrom: from, TimestampTo: from.Add(5 * time.Minute),
		Value: json.Number(fmt.Sprint(n, ".5")), Quality: "0.75",
	}
	return string(m.AppendJSON(nil))
}

// BatchOf returns the body of a batch.
func BatchOf(items ...string) string { return string(contract.Batch(items...)) }

// BatchNumber returns the body of a batch of unique valid items.
func BatchNumber(batch, size int) string {
	items := make([]string, size)
	for i := range items {
		items[i] = Item(i, batch)
	}
	return BatchOf(items...)
}

// SchemasPath is the path of the list of the published schemas, and of the schemas.
const SchemasPath = "/schemas/"

// DownloadSchemas stores all published schemas in a directory, at the paths of the list,
// which it returns.
func DownloadSchemas(t *testing.T, base, directory string) []string {
	t.Helper()
	_, list := WithoutKey(t, http.MethodGet, base+SchemasPath)
	names := strings.Fields(list)
	require.NotEmpty(t, names)
	for _, name := range names {
		response, text := WithoutKey(t, http.MethodGet, base+SchemasPath+name)
		require.Equal(t, http.StatusOK, response.StatusCode, name)
		path := filepath.Join(directory, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return names
}

// FreeAddress returns a loopback address that no other program uses.
func FreeAddress(t *testing.T) string {
	t.Helper()
	address, err := launch.FreeAddress()
	require.NoError(t, err)
	return address
}

// LastBytes returns the last n bytes of b.
func LastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
