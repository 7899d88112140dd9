package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
	"trafficd/pipeline/lib/watch"
	"trafficd/schemas/contract"
)

// The paths on the operators' listener.
const (
	HealthPath   = "/detectors/health"   // contract.HealthPath for all product instances
	EvidencePath = "/detectors/evidence" // with the parameters product_instance, detector and measure_type
)

const (
	healthEvery   = 10 * time.Second // the query for new tests reads a few rows
	healthListed  = 10_000           // states of a product instance; an answer takes 350 bytes for each, 40 when compressed
	healthTimeout = 15 * time.Minute // the last answer is served for as long while the archive cannot be read
)

// Errors of ClickHouse.
const (
	unknownTable    = 60
	unknownDatabase = 81
)

var (
	healthResults = feedloop.NewResults("trafficd_sites_health_checks_total", "Checks of the archive for new states of detectors", "read")
	sickDetectors = metrics.NewGauges("trafficd_sites_sick_detectors",
		"Detectors whose measurements mislead or are missing, by product instance.", "product_instance")
	sickStates = metrics.NewGauges("trafficd_sites_detector_states",
		"Detectors in a state of health, by product instance and state; 1 for a state of many detectors.", "product_instance", "state")
)

// Registry has the detectors whose health is served.
type Registry interface {
	Snapshot(productInstance string) *batch.Detectors
	HasFeed(productInstance string) bool
}

// Health serves the states of detectors that the archive has. It reads them when the forecaster has
// tested the detectors again, never for a request.
type Health struct {
	service  *Service
	registry Registry
	status   *feedloop.Status
	latest   atomic.Pointer[states]
}

// states are the answers by product instance, and the one for operators.
type states struct {
	instances map[string]content
	all       content
	tested    string // identifies the tests and the registry
}

// NewHealth returns a service that reads from the archive of s. Without an archive, s is nil.
func NewHealth(s *Service, registry Registry, log zerolog.Logger) *Health {
	return &Health{service: s, registry: registry, status: feedloop.NewStatus("the health of the detectors", healthResults, log)}
}

// Start reads the states until stop is called.
func (h *Health) Start(ctx context.Context) (stop func()) {
	if h.service == nil {
		return func() {}
	}
	return h.loop().Start(ctx)
}

func (h *Health) loop() *feedloop.Loop[*states] {
	return &feedloop.Loop[*states]{Load: h.load, Use: h.use, Status: h.status, Interval: healthEvery, Settle: time.Second}
}

func (h *Health) use(s *states) error {
	if last := h.latest.Swap(s); last != nil {
		for instance := range last.instances {
			if _, remains := s.instances[instance]; !remains {
				sickDetectors.DeleteLabelValues(instance)
				sickStates.DeletePartialMatch(map[string]string{"product_instance": instance})
			}
		}
	}
	return nil
}

// load reads the states, unless neither a test has been run nor a list has changed since the last
// time.
func (h *Health) load(ctx context.Context) (*states, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var tests []struct {
		Instance string    `ch:"instance"`
		Checked  time.Time `ch:"checked"`
		Sum      uint64    `ch:"sum"`
	}
	if err := h.service.conn.Select(ctx, &tests, h.service.queries.tests); err != nil {
		if e, ok := errors.AsType[*clickhouse.Exception](err); ok && (e.Code == unknownTable || e.Code == unknownDatabase) {
			return nil, watch.ErrUnsettled // before the first migration
		}
		return nil, fmt.Errorf("cannot read the tests of the detectors: %w", err)
	}
	next := &states{instances: map[string]content{}}
	lists := map[string]*list{}
	for _, t := range tests {
		if known := h.registry.Snapshot(t.Instance); known != nil {
			next.tested += fmt.Sprintln(t.Instance, t.Sum, known.Version())
			lists[t.Instance] = newList(t.Instance, t.Checked, known)
		}
	}
	if last := h.latest.Load(); last != nil && last.tested == next.tested {
		return nil, watch.ErrUnchanged
	}
	rows, err := h.service.conn.Query(ctx, h.service.queries.health)
	if err != nil {
		return nil, fmt.Errorf("cannot read the health of the detectors: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var instance string
		var d contract.SickDetector
		if err := rows.Scan(&instance, &d.DetectorCode, &d.MeasureTypeCode, &d.State, &d.Since, &d.Last, &d.Reason); err != nil {
			return nil, err
		}
		if l := lists[instance]; l != nil {
			l.add(d)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	var bodies [][]byte
	for _, instance := range slices.Sorted(maps.Keys(lists)) {
		body, err := json.Marshal(lists[instance])
		if err != nil {
			return nil, fmt.Errorf("cannot encode the health of the detectors: %w", err)
		}
		next.instances[instance], bodies = newContent(body), append(bodies, body)
		sickDetectors.WithLabelValues(instance).Set(float64(lists[instance].detectors[""]))
		for _, s := range contract.HealthStates {
			if n := lists[instance].detectors[s.Name]; n > 0 || !s.Off() {
				sickStates.WithLabelValues(instance, s.Name).Set(float64(n))
			} else {
				sickStates.DeleteLabelValues(instance, s.Name)
			}
		}
	}
	next.all = newContent(slices.Concat([]byte(`{"problem":"","instances":[`), bytes.Join(bodies, []byte(",")), []byte("]}")))
	return next, nil
}

// list collects the states of a product instance.
type list struct {
	contract.Health
	known     *batch.Detectors
	seen      map[[2]string]bool
	detectors map[string]int // by state, "" for any
}

func newList(instance string, checked time.Time, known *batch.Detectors) *list {
	return &list{
		Health: contract.Health{ProductInstance: instance, CheckedAt: checked, Detectors: []contract.SickDetector{}},
		known:  known, seen: map[[2]string]bool{}, detectors: map[string]int{},
	}
}

// add adds a state, unless the registry does not have its detector anymore.
func (l *list) add(d contract.SickDetector) {
	if d.DetectorCode != "" && !l.known.Has([]byte(d.DetectorCode)) {
		return
	}
	l.Count++
	if d.Rule = contract.HealthRule(d.State); len(l.Detectors) < healthListed {
		l.Detectors = append(l.Detectors, d)
	}
	for _, state := range []string{"", d.State} {
		if one := [2]string{state, d.DetectorCode}; !l.seen[one] && (state != "" || d.DetectorCode != "") {
			l.seen[one] = true
			l.detectors[state]++
		}
	}
}

// Admit implements api.Endpoint.
func (h *Health) Admit(client *contract.Client, _ *fasthttp.RequestHeader) *contract.APIError {
	if h.service == nil {
		return contract.NewError(contract.Forbidden, "the health of detectors is not known: the operator must set clickhouse.enabled")
	}
	if h.registry.Snapshot(client.ProductInstance) == nil {
		return contract.NoRegistry(client.ProductInstance, h.registry.HasFeed(client.ProductInstance))
	}
	return nil
}

// Handle implements api.Endpoint. It responds with the states of the client's product instance.
func (h *Health) Handle(client *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	s, err := h.current()
	if err != nil {
		return 0, err
	}
	c, tested := s.instances[client.ProductInstance]
	if !tested {
		return 0, contract.Unavailable("no forecaster has tested the detectors of product instance "+client.ProductInstance+" yet", time.Minute)
	}
	c.serve(ctx, "Authorization, Accept-Encoding")
	return 0, nil
}

// Serve responds with the states of all product instances, for operators. If they are unknown, it
// says why.
func (h *Health) Serve(ctx *fasthttp.RequestCtx) error {
	s, err := h.current()
	if err != nil {
		s = &states{all: newContent([]byte(`{"problem":"` + unreadable + `","instances":[]}`))}
	}
	s.all.serve(ctx, fasthttp.HeaderAcceptEncoding)
	return nil
}

const unreadable = "cannot read the health of the detectors from the archive"

func (h *Health) current() (*states, error) {
	s := h.latest.Load()
	if s == nil || time.Since(h.status.Get().Confirmed) > healthTimeout {
		return nil, contract.Unavailable(unreadable, healthEvery)
	}
	return s, nil
}

// ServeEvidence responds with the values and counts of a measure type of a detector, or of all
// detectors, in the hours of the last nine days.
func (s *Service) ServeEvidence(ctx *fasthttp.RequestCtx) error {
	args := ctx.QueryArgs()
	instance, detector, code := string(args.Peek("product_instance")), string(args.Peek("detector")), string(args.Peek("measure_type"))
	return s.serve(ctx, instance+"\x00"+detector+"\x00"+code, "hours", func(ctx context.Context) (any, string, error) {
		hours := []Hour{}
		err := s.conn.Select(ctx, &hours, s.queries.evidence, instance, code, detector, detector)
		return hours, "", err
	})
}

// Hour has the values of an hour: their number, mean, and the number of detectors that sent any.
type Hour struct {
	Start     time.Time `json:"start" ch:"bucket"`
	Count     uint64    `json:"count" ch:"values"`
	Average   float64   `json:"average" ch:"mean"`
	Detectors uint64    `json:"detectors" ch:"detectors"`
}
