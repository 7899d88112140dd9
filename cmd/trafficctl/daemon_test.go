package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/journal"
	"trafficd/schemas/contract"
	"trafficd/sources/api"
	"trafficd/sources/ingest"
)

// API keys that the servers accept. testKey has the right that the test needs, and noRightKey has a
// different right.
const (
	testKey    = "tfd_test"
	noRightKey = "tfd_no_right"
)

const basePath = "/base"

// testDaemon is the real intake behind a proxy that records requests and can inject failures. Set
// the exported fields before the first request.
type testDaemon struct {
	URL string // base URL

	// Known is the registry. While it is nil, every detector code that is sent is registered.
	Known map[string]bool
	// Before may respond to the n-th request (from 1) instead of the daemon; it then returns true.
	Before func(n int, w http.ResponseWriter, r *http.Request) bool
	// CutAfter reports whether to drop the connection after the daemon has processed the n-th
	// request.
	CutAfter func(n int) bool

	backend string
	mu      sync.Mutex
	learned map[string]bool
	keys    []string
	batches [][]json.RawMessage
}

// newDaemon starts a daemon that stops with the test.
func newDaemon(t testing.TB) *testDaemon {
	t.Helper()
	d := &testDaemon{learned: map[string]bool{}}
	cfg := pipeline.DefaultConfig()
	cfg.Workers = 2
	cfg.Validate.FutureTolerance = 100 * 365 * 24 * time.Hour // test data is of any year
	journals := journalConfig(t.TempDir())
	journals.SegmentBytes, journals.MaxBytes, journals.MaxFrameBytes = 1<<20, 64<<20, 8<<20
	j, err := journal.Open(journals, []string{pipeline.IdempotencyConsumer})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	cfg.Idempotency.Journal.Dir = t.TempDir()
	idempotency, err := pipeline.OpenIdempotencyStore(cfg.Idempotency, j, pipeline.Local(j, pipeline.IdempotencyConsumer))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, idempotency.Close()) })
	intake, err := pipeline.NewIntake(cfg, j, d, idempotency, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(intake.Close)
	endpoint := ingest.New(ingest.DefaultConfig(), intake, zerolog.Nop())
	d.backend = serve(t, "ingest", "routing", api.Route{
		Path: ingest.Path, Methods: []string{"POST"}, Right: contract.RightIngest, Endpoint: endpoint,
	})
	proxy := httptest.NewServer(d)
	t.Cleanup(proxy.Close)
	d.URL = proxy.URL + basePath
	return d
}

// Snapshot implements pipeline.Registry.
func (d *testDaemon) Snapshot(string) *batch.Detectors {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.Known
	if known == nil {
		known = d.learned
	}
	detectors, _ := batch.NewDetectors(slices.Collect(maps.Keys(known)))
	return detectors
}

// HasFeed implements pipeline.Registry.
func (d *testDaemon) HasFeed(string) bool { return true }

// Batches returns the items of each batch that was acknowledged with 207, once each, in that order.
func (d *testDaemon) Batches() [][]json.RawMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// Items returns the items of all Batches.
func (d *testDaemon) Items() []json.RawMessage { return slices.Concat(d.Batches()...) }

// Keys returns the Idempotency-Key of every request, retries included.
func (d *testDaemon) Keys() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys
}

// ServeHTTP implements http.Handler.
func (d *testDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.keys = append(d.keys, r.Header.Get("Idempotency-Key"))
	n := len(d.keys)
	d.mu.Unlock()
	if d.Before != nil && d.Before(n, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	items := d.learn(body)
	req, _ := http.NewRequestWithContext(r.Context(), r.Method, d.backend+r.URL.Path, bytes.NewReader(body))
	req.Header, req.Close = r.Header.Clone(), true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusMultiStatus && resp.Header.Get("Idempotent-Replay") != "true" {
		d.mu.Lock()
		d.batches = append(d.batches, items)
		d.mu.Unlock()
	}
	if d.CutAfter != nil && d.CutAfter(n) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// learn returns the items of a body and registers their detectors.
func (d *testDaemon) learn(body []byte) []json.RawMessage {
	var request struct{ Measurements []json.RawMessage }
	if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		_ = json.NewDecoder(z).Decode(&request) // the daemon rejects an invalid body
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, item := range request.Measurements {
		var m struct{ DetectorCode string }
		if json.Unmarshal(item, &m) == nil {
			d.learned[m.DetectorCode] = true
		}
	}
	return request.Measurements
}

// reject writes an error as the daemon does.
func reject(w http.ResponseWriter, status int, code, description string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorCode": code, "description": description, "traceId": "t1"})
}

// serve starts the daemon's HTTP server with one route and returns its address.
func serve(t testing.TB, right, otherRight string, route api.Route) string {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Listen, cfg.BasePath, cfg.DrainGrace = "127.0.0.1:0", basePath, 0
	for i, key := range []string{testKey, noRightKey} {
		digest := sha256.Sum256([]byte(key))
		cfg.Keys = append(cfg.Keys, api.KeyEntry{
			Name: strconv.Itoa(i), SHA256: hex.EncodeToString(digest[:]), ProductInstance: "city", Rights: []string{right}, Timezone: "Europe/Copenhagen",
		})
	}
	cfg.Keys[1].Rights = []string{otherRight}
	keys, err := api.OpenKeyring(cfg, zerolog.Nop())
	require.NoError(t, err)
	server, err := api.New(cfg, keys, []api.Route{route}, zerolog.Nop())
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
		keys.Close()
	})
	return "http://" + server.Addr().String()
}
