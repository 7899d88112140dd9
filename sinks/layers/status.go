package layers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
)

// Status describes the layer.
type Status struct {
	Published  bool      `json:"published"`              // a layer exists
	Streets    int       `json:"streets"`                // number of streets in the layer
	Unlocated  int       `json:"unlocated,omitempty"`    // of these, the number whose openLRcode is empty or cannot be decoded
	LeftOut    int       `json:"left_out,omitempty"`     // forecasts omitted because of max_streets since the feed last replaced everything
	AgeSeconds float64   `json:"age_seconds"`            // age of the newest data
	Covered    time.Time `json:"covered_until,omitzero"` // the end of the last period; absent without streets
	Stale      bool      `json:"stale"`                  // clients should not rely on the layer
	Reason     string    `json:"reason,omitempty"`       // why the layer is stale
	Refuses    bool      `json:"refuses,omitempty"`      // the layer is stale, and requests receive a 503
	Builds     uint64    `json:"builds"`
	Built      time.Time `json:"built,omitzero"`
	Reference  time.Time `json:"reference,omitzero"` // the layer's reference time
	Error      string    `json:"error,omitempty"`    // why the last rejected forecast is invalid
}

// Status returns the state of the layer at now, for the readiness check and metrics.
func (l *Layer) Status(now time.Time) Status {
	var s Status
	if current := l.current.Load(); current != nil {
		s.Published, s.Streets, s.Unlocated, s.LeftOut = true, current.streets, current.unlocated, current.leftOut
		s.Builds, s.Built, s.Reference = uint64(current.number), current.built.UTC(), current.ref.time()
		s.AgeSeconds = l.age(now).Seconds()
		if current.covered > 0 {
			s.Covered = current.covered.time()
		}
		reasons := l.staleReasons(current, now)
		s.Stale, s.Reason = len(reasons) > 0, strings.Join(reasons, "; ")
		s.Refuses = s.Stale && l.cfg.Stale == staleRefuse
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rejected != nil {
		s.Error = l.rejected.Error()
	}
	return s
}

// staleReasons returns the reasons why clients should not rely on the snapshot (contract 2).
func (l *Layer) staleReasons(s *snapshot, now time.Time) (reasons []string) {
	first := 0
	if len(l.cfg.Horizons) > 0 {
		first = slices.Min(l.cfg.Horizons)
	}
	switch {
	case s.streets == 0:
		reasons = append(reasons, "no street has a current or future forecast")
	case s.covered <= horizon(first).from(s.ref).at:
		reasons = append(reasons, fmt.Sprintf("the last forecast ends at %s, before the first horizon", s.until))
	}
	if age := l.age(now); age > l.cfg.StaleAfter {
		reasons = append(reasons, fmt.Sprintf("the newest data is %v old", age.Truncate(time.Minute)))
	}
	return reasons
}

func (l *Layer) age(now time.Time) time.Duration {
	return max(0, now.Sub(time.UnixMicro(l.dataTime.Load())))
}

var (
	streets          = metrics.NewGauge("trafficd_layers_streets", "Streets in the layer being served.")
	streetsUnlocated = metrics.NewGauge("trafficd_layers_streets_unlocated",
		"Streets in the layer whose openLRcode is empty or cannot be decoded: no map shows them.")
	streetsLeftOut = metrics.NewGauge("trafficd_layers_streets_left_out",
		"Forecasts omitted because of max_streets since the feed last replaced everything.")
	bodyBytes       = metrics.NewGauge("trafficd_layers_body_bytes", "Total size of the finished bodies of the layer, in bytes.")
	streetsRejected = metrics.NewCounter("trafficd_layers_streets_rejected_total",
		"Invalid forecasts from the feed; the street keeps its earlier forecast.")
	builds       = metrics.NewCounter("trafficd_layers_builds_total", "Builds of the layer.")
	buildSeconds = metrics.NewSeconds("trafficd_layers_build_seconds", "Duration of a build of the layer, in seconds.")
	piecesBuilt  = metrics.NewCounter("trafficd_layers_parts_built_total", "Parts of documents that were built.")
	piecesReused = metrics.NewCounter("trafficd_layers_parts_reused_total", "Parts of documents that had not changed and were reused.")
	memory       = admission.Memory("trafficd_layers", "requests for parts of the layer")
	responses    = responseCounters() // by HTTP status, then by encoding
)

func init() {
	metrics.Register(metrics.GaugeFunc("trafficd_layers_stale", "1 if the layer is too old, has no streets or ends before the first horizon, "+
		"else 0.", nil,
		func() float64 { return metrics.Bool(observe().Stale) }))
	metrics.Register(metrics.GaugeFunc("trafficd_layers_covered_until_timestamp_seconds",
		"End of the last forecast period as Unix time; 0 without streets.", nil,
		func() float64 {
			if until := observe().Covered; !until.IsZero() {
				return float64(until.Unix())
			}
			return 0
		}))
}

// age is registered when the first layer is served, so that the metric is absent until then.
var age = metrics.GaugeFunc("trafficd_layers_age_seconds", "Age of the newest data in the layer, in seconds.", nil,
	func() float64 { return observe().AgeSeconds })

// observed is the layer that the metrics describe.
var observed atomic.Pointer[Layer]

func observe() Status {
	if l := observed.Load(); l != nil {
		return l.Status(time.Now())
	}
	return Status{}
}

func responseCounters() map[int]*[numEncodings]metrics.Counter {
	vec := metrics.NewCounters("trafficd_layers_responses_total", "Responses with the layer, by status and encoding.", "status", "encoding")
	all := map[int]*[numEncodings]metrics.Counter{200: {}, 206: {}, 304: {}, 412: {}, 416: {}}
	for status, counters := range all {
		for e, name := range encodingNames {
			counters[e] = vec.WithLabelValues(strconv.Itoa(status), string(name))
		}
	}
	return all
}
