package layers

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

var (
	streets        = metrics.NewGauge("trafficd_layers_streets", nil)          // in the layer being served
	streetsLeftOut = metrics.NewGauge("trafficd_layers_streets_left_out", nil) // over max_streets, since the feed last replaced everything
	bodyBytes      = metrics.NewGauge("trafficd_layers_body_bytes", nil)       // of all finished bodies
	streetsRefused = metrics.NewCounter("trafficd_layers_streets_refused_total")
	builds         = metrics.NewCounter("trafficd_layers_builds_total")
	buildSeconds   = metrics.NewHistogram("trafficd_layers_build_seconds")
	partsBuilt     = metrics.NewCounter("trafficd_layers_parts_built_total")
	partsReused    = metrics.NewCounter("trafficd_layers_parts_reused_total") // of unchanged documents
	piecesStored   = [encodings]*metrics.Counter{                             // a compressed form failed its proof
		gzipped:   metrics.NewCounter(`trafficd_layers_pieces_stored_total{encoding="gzip"}`),
		zstandard: metrics.NewCounter(`trafficd_layers_pieces_stored_total{encoding="zstd"}`),
	}
	answers = answerCounters()
	_       = metrics.NewGauge("trafficd_layers_stale", func() float64 { return asNumber(observe().Stale) })
)

// showAge registers the age metric, which is absent before the first layer.
func showAge() {
	metrics.GetOrCreateGauge("trafficd_layers_age_seconds", func() float64 { return observe().AgeSeconds })
}

// observed is the layer that the metrics describe.
var observed atomic.Pointer[Layer]

func observe() Status {
	if l := observed.Load(); l != nil {
		return l.Status(time.Now())
	}
	return Status{}
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// outcome is the result of a request.
type outcome int

const (
	sentWhole outcome = iota
	sentRange
	notModified
	conditionFailed
	badRange
	outcomes
)

var outcomeStatus = [outcomes]int{sentWhole: 200, sentRange: 206, notModified: 304, conditionFailed: 412, badRange: 416}

func answerCounters() (all [outcomes][encodings]*metrics.Counter) {
	for o := range all {
		for e := range all[o] {
			all[o][e] = metrics.NewCounter(fmt.Sprintf("trafficd_layers_answers_total{status=%q,encoding=%q}", fmt.Sprint(outcomeStatus[o]), encodingNames[e]))
		}
	}
	return all
}
