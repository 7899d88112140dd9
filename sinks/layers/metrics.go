package layers

import (
	"strconv"
	"sync/atomic"
	"time"

	"trafficd/pipeline/admission"
	"trafficd/pipeline/metrics"
)

var (
	streets          = metrics.NewGauge("trafficd_layers_streets", "Streets in the layer being served.")
	streetsUnlocated = metrics.NewGauge("trafficd_layers_streets_unlocated",
		"Streets in the layer whose openLRcode is empty or cannot be decoded: no map shows them.")
	streetsLeftOut = metrics.NewGauge("trafficd_layers_streets_left_out",
		"Forecasts omitted because of max_streets since the feed last replaced everything.")
	bodyBytes       = metrics.NewGauge("trafficd_layers_body_bytes", "Total size of the finished bodies of the layer, in bytes.")
	streetsRejected = metrics.NewCounter("trafficd_layers_streets_refused_total",
		"Invalid forecasts from the feed; the street keeps its earlier forecast.")
	builds       = metrics.NewCounter("trafficd_layers_builds_total", "Builds of the layer.")
	buildSeconds = metrics.NewSeconds("trafficd_layers_build_seconds", "Duration of a build of the layer, in seconds.")
	partsBuilt   = metrics.NewCounter("trafficd_layers_parts_built_total", "Parts of documents that were built.")
	partsReused  = metrics.NewCounter("trafficd_layers_parts_reused_total", "Parts of documents that had not changed and were reused.")
	formsMade    = metrics.NewCounter("trafficd_layers_forms_made_total",
		"Parts of documents serialised in a format and encoding.")
	piecesStored = metrics.NewCounter("trafficd_layers_pieces_stored_total",
		"Serialised parts stored uncompressed because the compressed bytes could not be verified.")
	memory    = admission.Memory("trafficd_layers", "requests for parts of the layer")
	responses = responseCounters() // by HTTP status, then by encoding
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
	vec := metrics.NewCounters("trafficd_layers_answers_total", "Responses with the layer, by HTTP status and encoding.", "status", "encoding")
	all := map[int]*[numEncodings]metrics.Counter{200: {}, 206: {}, 304: {}, 412: {}, 416: {}}
	for status, counters := range all {
		for e, name := range encodingNames {
			counters[e] = vec.WithLabelValues(strconv.Itoa(status), string(name))
		}
	}
	return all
}
