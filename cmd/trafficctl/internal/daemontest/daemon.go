// Package daemontest is a daemon for tests: a real HTTP server that keeps the
// contract as a slow and plain reader of it would (interface specification
// 4.1, contract 1), remembers what arrived, and fails when it is told to.
package daemontest

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Key is the API key that the daemon knows.
const Key = "tfd_test"

const path = "/base/dataprovider/ingestion/v1/detectors/data/ingest"

// Daemon is a running server. Set the exported fields before the first request.
type Daemon struct {
	URL string // base URL

	// Known are the detectors; nil: all codes are.
	Known map[string]bool
	// Before may answer the n-th request (from 1) in the daemon's stead: it
	// returns true if it did. The body is not read.
	Before func(n int, w http.ResponseWriter, r *http.Request) bool
	// CutAfter: the n-th request is taken in full and its connection closed
	// without an answer.
	CutAfter func(n int) bool

	mu       sync.Mutex
	requests int
	keys     []string
	batches  [][]json.RawMessage
	answers  map[string]answered
}

type answered struct {
	digest [32]byte
	text   []byte
}

type rejection struct {
	Index int               `json:"index"`
	Error map[string]string `json:"error"`
}

// New starts a daemon that ends with the test.
func New(t testing.TB) *Daemon {
	d := &Daemon{answers: map[string]answered{}}
	s := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(s.Close)
	d.URL = s.URL + "/base"
	return d
}

// Batches gives the items of each batch that was taken, once each, in the
// order of arrival.
func (d *Daemon) Batches() [][]json.RawMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// Items gives all items that were taken.
func (d *Daemon) Items() (items []json.RawMessage) {
	for _, b := range d.Batches() {
		items = append(items, b...)
	}
	return items
}

// Keys gives the Idempotency-Key of every request, repetitions included.
func (d *Daemon) Keys() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys
}

func (d *Daemon) serve(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.requests++
	n := d.requests
	d.keys = append(d.keys, r.Header.Get("Idempotency-Key"))
	d.mu.Unlock()
	if d.Before != nil && d.Before(n, w, r) {
		return
	}
	d.take(n, w, r)
}

func (d *Daemon) take(n int, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path || r.Method != http.MethodPost {
		Refuse(w, http.StatusNotFound, "NOT_FOUND", "nothing here")
		return
	}
	if r.Header.Get("Authorization") != "apiKey "+Key {
		Refuse(w, http.StatusUnauthorized, "GENERAL_UNAUTHENTICATED", "the API key is unknown")
		return
	}
	items, digest, err := read(r.Body)
	if err != nil {
		Refuse(w, http.StatusBadRequest, "INVALID_JSON", err.Error())
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before, again := d.answers[r.Header.Get("Idempotency-Key")]
	if again && before.digest != digest {
		Refuse(w, http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "the key stands for another body")
		return
	}
	if !again {
		before = answered{digest, d.judge(items)}
		d.answers[r.Header.Get("Idempotency-Key")] = before
		d.batches = append(d.batches, items)
	}
	if d.CutAfter != nil && d.CutAfter(n) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Idempotent-Replay", strconv.FormatBool(again))
	w.Header().Set("Batch-Id", fmt.Sprintf("batch-%d", len(d.batches)))
	w.WriteHeader(http.StatusMultiStatus)
	w.Write(before.text)
}

// Refuse answers like the daemon does when it does not take a batch.
func Refuse(w http.ResponseWriter, status int, code, description string) {
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"errorCode": code, "description": description, "traceId": "t1"})
}

func read(body io.Reader) (items []json.RawMessage, digest [32]byte, err error) {
	z, err := gzip.NewReader(body)
	if err != nil {
		return nil, digest, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, digest, err
	}
	var request struct{ Measurements []json.RawMessage }
	err = json.Unmarshal(text, &request)
	return request.Measurements, sha256.Sum256(text), err
}

func (d *Daemon) judge(items []json.RawMessage) []byte {
	rejections := []rejection{}
	for i, item := range items {
		if code, field := d.Judge(i, item); code != "" {
			parameter := fmt.Sprintf("measurements[%d]", i)
			if field != "" {
				parameter += "." + field
			}
			rejections = append(rejections, rejection{i, map[string]string{
				"description": "it is wrong", "errorCode": code, "parameter": parameter,
			}})
		}
	}
	text, _ := json.Marshal(map[string]any{
		"accepted": len(items) - len(rejections), "rejected": len(rejections), "rejections": rejections,
	})
	return text
}
