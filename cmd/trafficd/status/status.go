// Package status serves the state of the daemon for operators as JSON: rates, latency, clients,
// stores, and a sentence for each problem. It samples the metrics every few seconds and keeps them
// for an hour, so that Prometheus is not required.
package status

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trafficd/cmd/internal/ops"
	"trafficd/sources/registry"
)

const (
	step   = 5 * time.Second
	points = int(time.Hour / step)
	window = int(time.Minute / step) // samples for rates, the latency and the growth of the journal
)

// Status is the response of /status. Rates are per second, over the last minute. Times are in UTC.
type Status struct {
	Time       time.Time  `json:"time"`
	Version    string     `json:"version"`
	Host       string     `json:"host"` // name of the machine or container
	Started    time.Time  `json:"started"`
	State      ops.State  `json:"state"`
	Summary    []string   `json:"summary"` // problems and remedies, worst first; empty if there are none
	Rates      Rates      `json:"rates"`
	Latency    *Latency   `json:"latency,omitempty"` // of the last minute; absent if there were no requests
	Codes      []Code     `json:"codes"`             // most frequent first
	Clients    []Client   `json:"clients"`           // clients that may ingest, sorted by name
	Journal    Journal    `json:"journal"`
	Stores     []Store    `json:"stores"`
	Registries []Registry `json:"registries"`
	Forecast   *Forecast  `json:"forecast,omitempty"` // absent before the first layer
	History    History    `json:"history"`
}

// Rates are numbers per second.
type Rates struct {
	Batches  float64 `json:"batches"`
	Accepted float64 `json:"accepted"`
	Rejected float64 `json:"rejected"`
}

// Latency is the time from the header of a batch to its response, in seconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Code counts the measurements rejected with an error code since startup.
type Code struct {
	Code      string  `json:"code"`
	Total     float64 `json:"total"`
	PerSecond float64 `json:"perSecond"`
}

// Client counts the batches and measurements of a client since startup.
type Client struct {
	Name      string     `json:"name"`
	Batches   float64    `json:"batches"`
	Accepted  float64    `json:"accepted"`
	Rejected  float64    `json:"rejected"`
	LastBatch *time.Time `json:"lastBatch,omitempty"`
	Newest    *time.Time `json:"newestInterval,omitempty"` // end of the newest accepted interval
	UsualLag  float64    `json:"usualLag,omitempty"`       // age in seconds that Newest usually reaches; 0: not known yet
}

// Journal holds sizes in bytes. They are 0 if the journal is in Kafka.
type Journal struct {
	Bytes    float64 `json:"bytes"`
	Limit    float64 `json:"limit"`
	DiskFree float64 `json:"diskFree"`
}

// Store describes the backlog of a sink.
type Store struct {
	Name        string  `json:"name"`
	Batches     float64 `json:"batches"`
	Rows        float64 `json:"rows"`    // an estimate
	Seconds     float64 `json:"seconds"` // age of the oldest row
	Error       string  `json:"error,omitempty"`
	DeadLetters float64 `json:"deadLetters"` // rows in the dead-letter file
}

// Registry describes the detector list of a product instance.
type Registry struct {
	ProductInstance string   `json:"productInstance"`
	Detectors       float64  `json:"detectors"`
	Doubtful        float64  `json:"doubtful"`           // entries of the list whose code or position seems to be wrong
	Warnings        []string `json:"warnings,omitempty"` // about the first of them
	Sick            float64  `json:"sick"`               // detectors whose measurements mislead or are missing
	Age             float64  `json:"age"`                // s
	Error           string   `json:"error,omitempty"`
}

// Forecast is the state of the layer.
type Forecast struct {
	Streets      float64    `json:"streets"`
	Age          float64    `json:"age"` // s
	CoveredUntil *time.Time `json:"coveredUntil,omitempty"`
	Stale        bool       `json:"stale,omitempty"`
}

// History holds a value for each step of the last hour, oldest first. Unknown values are null.
type History struct {
	From   int64              `json:"from"` // Unix time of the first value, s
	Step   float64            `json:"step"` // s
	Series map[string][]point `json:"series"`
}

// point is a value of a series; NaN is null in JSON.
type point float32

// MarshalJSON implements json.Marshaler.
func (p point) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(p)) {
		return []byte("null"), nil
	}
	return json.Marshal(float32(p))
}

// Recorder samples the metrics. It keeps points × (5 + number of stores) values of 4 bytes.
type Recorder struct {
	gatherer   prometheus.Gatherer
	ingestPath string
	version    string
	readiness  func() ops.Readiness
	started    time.Time

	mu      sync.Mutex
	recent  []sample // the last window, oldest first
	times   []int64  // Unix times of the points, s
	series  map[string][]point
	trouble map[string]time.Time // start of each current problem, by troubleOf

	stop chan struct{}
	done sync.WaitGroup
}

// Start starts sampling until Stop. ingestPath is the route label of batches.
func Start(gatherer prometheus.Gatherer, ingestPath, version string, readiness func() ops.Readiness) *Recorder {
	r := &Recorder{
		gatherer: gatherer, ingestPath: ingestPath, version: version, readiness: readiness, started: time.Now().UTC(),
		series: map[string][]point{}, trouble: map[string]time.Time{}, stop: make(chan struct{}),
	}
	r.record(time.Now())
	r.done.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				r.record(now)
			case <-r.stop:
				return
			}
		}
	})
	return r
}

// Stop ends the recording.
func (r *Recorder) Stop() {
	close(r.stop)
	r.done.Wait()
}

// record takes a sample and appends its point to each series.
func (r *Recorder) record(now time.Time) {
	s, ready := newSample(r.gatherer, r.ingestPath, now), r.readiness()
	r.mu.Lock()
	defer r.mu.Unlock()
	trouble := map[string]time.Time{}
	for name, c := range ready.Components {
		if c.State != ops.OK {
			of := troubleOf(name, c)
			trouble[of] = now
			if since, before := r.trouble[of]; before {
				trouble[of] = since
			}
		}
	}
	r.trouble = trouble
	before := &sample{}
	if n := len(r.recent); n > 0 {
		before = &r.recent[n-1]
	}
	add := func(name string, value float64) {
		values := r.series[name]
		for len(values) < len(r.times) {
			values = append(values, point(math.NaN())) // unknown before the series began
		}
		values = append(values, point(value))
		r.series[name] = values[max(0, len(values)-points):]
	}
	add("batches", s.rate(before, "ingest_batches_total", "OK"))
	add("accepted", s.rates(before, "ingest_items_accepted_total"))
	add("rejected", s.rates(before, "ingest_items_rejected_total"))
	add("p50", 1000*s.quantile(before, .5))
	add("p99", 1000*s.quantile(before, .99))
	for sink := range s.values["pipeline_lag_frames"] {
		add("lag_"+sink, s.values["pipeline_lag_rows"][sink])
	}
	r.times = append(r.times, now.Unix())
	r.times = r.times[max(0, len(r.times)-points):]
	r.recent = append(r.recent, s)
	r.recent = slices.Clone(r.recent[max(0, len(r.recent)-window):])
}

// Now returns the status, computed from a new sample that is not kept.
func (r *Recorder) Now() Status {
	now := time.Now()
	s, ready := newSample(r.gatherer, r.ingestPath, now), r.readiness()
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := &r.recent[0]   // not the last one: clients may send only a few times a minute
	host, _ := os.Hostname() // unknown: empty
	st := Status{
		Time: now.UTC(), Version: r.version, Host: host, Started: r.started, State: ready.State,
		Rates: Rates{
			s.rate(oldest, "ingest_batches_total", "OK"), s.rates(oldest, "ingest_items_accepted_total"),
			s.rates(oldest, "ingest_items_rejected_total"),
		},
		Journal: Journal{r.journal(&s, "bytes"), r.journal(&s, "bytes_limit"), r.journal(&s, "disk_free_bytes")},
		Codes:   []Code{}, Clients: []Client{}, Stores: []Store{}, Registries: []Registry{},
		History: History{From: r.times[0], Step: step.Seconds(), Series: map[string][]point{}},
	}
	for name, values := range r.series {
		st.History.Series[name] = slices.Clone(values)
	}
	if p50 := s.quantile(oldest, .5); !math.IsNaN(p50) {
		st.Latency = &Latency{p50, s.quantile(oldest, .99)}
	}
	for code, total := range s.values["ingest_items_rejected_total"] {
		if total > 0 {
			st.Codes = append(st.Codes, Code{code, total, s.rate(oldest, "ingest_items_rejected_total", code)})
		}
	}
	slices.SortFunc(st.Codes, func(a, b Code) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Code, b.Code)) })
	for _, name := range sorted(s.values["ingest_client_batches_total"]) {
		st.Clients = append(st.Clients, Client{
			Name: name, Batches: s.values["ingest_client_batches_total"][name],
			Accepted:  s.values["ingest_client_items_accepted_total"][name],
			Rejected:  s.values["ingest_client_items_rejected_total"][name],
			LastBatch: unix(s.values["ingest_client_last_batch_timestamp_seconds"][name]),
			Newest:    unix(s.values["ingest_client_newest_interval_timestamp_seconds"][name]),
			UsualLag:  s.values["ingest_client_usual_lag_seconds"][name],
		})
	}
	for _, name := range sorted(s.values["pipeline_lag_frames"]) {
		store := Store{
			Name: name, Batches: s.values["pipeline_lag_frames"][name], Rows: s.values["pipeline_lag_rows"][name],
			Seconds: s.values["pipeline_lag_seconds"][name], DeadLetters: s.values["pipeline_dead_letter_rows"][name],
		}
		store.Error, _ = ready.Components[name].Detail["error"].(string)
		st.Stores = append(st.Stores, store)
	}
	instances, _ := ready.Components["registry"].Detail["product_instances"].(map[string]ops.Component)
	feeds, _ := ready.Components["registry"].Detail["feeds"].([]registry.Status)
	for _, name := range sorted(s.values["registry_detectors"]) {
		list := Registry{
			ProductInstance: name, Detectors: s.values["registry_detectors"][name], Age: s.values["registry_age_seconds"][name],
			Error: strings.Join(instances[name].Reasons, "; "), Sick: s.values["sites_sick_detectors"][name],
		}
		if i := slices.IndexFunc(feeds, func(f registry.Status) bool { return f.ProductInstance == name }); i >= 0 {
			list.Doubtful, list.Warnings = float64(feeds[i].Doubtful), feeds[i].Warnings
		}
		st.Registries = append(st.Registries, list)
	}
	if streets, ok := s.values["layers_streets"]; ok && len(s.values["layers_age_seconds"]) > 0 {
		st.Forecast = &Forecast{
			streets[""], s.sum("layers_age_seconds"), unix(s.sum("layers_covered_until_timestamp_seconds")),
			s.sum("layers_stale") > 0,
		}
	}
	st.Summary = r.summary(&s, oldest, ready, now)
	return st
}

// journal returns a metric of the journal, or 0 if the journal is in Kafka. The idempotency store
// has the same metrics with a different label.
func (r *Recorder) journal(s *sample, name string) float64 {
	return s.values["journal_"+name]["measurements"]
}

func unix(seconds float64) *time.Time {
	if seconds == 0 {
		return nil
	}
	t := time.UnixMilli(int64(1000 * seconds)).UTC()
	return &t
}

func sorted(m map[string]float64) []string { return slices.Sorted(maps.Keys(m)) }

// ServeHTTP writes the status as JSON.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(r.Now()) // fails only if the client has disconnected
}
