// Package metrics creates the daemon's metrics and registers them with Prometheus's default
// registry, which also contains the metrics of the Go runtime and of the process.
//
// A label has a fixed set of values, or one value for each API key or file in the settings. Hot
// paths keep their counters in variables, because looking up a label value costs more than
// incrementing a counter.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type (
	// Counter is a counter without labels.
	Counter = prometheus.Counter
	// Counters is a set of counters with labels.
	Counters = prometheus.CounterVec
	// Gauge is a gauge without labels.
	Gauge = prometheus.Gauge
	// Observer is a histogram.
	Observer = prometheus.Observer
	// Collector is a source of time series.
	Collector = prometheus.Collector
)

// buckets are the upper bounds of the buckets of all histograms, in seconds. They range from a
// response served from memory to a large body from a slow client.
var buckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// NewCounter registers a counter. help is one sentence that names the unit.
func NewCounter(name, help string) Counter {
	return promauto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// NewCounters registers counters with labels.
func NewCounters(name, help string, labels ...string) *Counters {
	return promauto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// NewGauge registers a gauge.
func NewGauge(name, help string) Gauge {
	return promauto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// NewGauges registers gauges with labels.
func NewGauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// NewSeconds registers a histogram of durations.
func NewSeconds(name, help string) Observer { return promauto.NewHistogram(seconds(name, help)) }

// NewSecondsBy registers histograms of durations with labels.
func NewSecondsBy(name, help string, labels ...string) *prometheus.HistogramVec {
	return promauto.NewHistogramVec(seconds(name, help), labels)
}

// seconds returns the options of a histogram with classic buckets for the text format and native
// ones for scrapers that accept protobuf.
func seconds(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
}

// Since observes the seconds since start.
func Since(h Observer, start time.Time) { h.Observe(time.Since(start).Seconds()) }

// GaugeFunc returns a gauge that calls value at each scrape. It is not registered.
func GaugeFunc(name, help string, labels prometheus.Labels, value func() float64) Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
}

var registering sync.Mutex

// Register registers collectors. Each replaces a registered collector of the same metrics.
func Register(all ...Collector) {
	registering.Lock()
	defer registering.Unlock()
	for _, c := range all {
		prometheus.Unregister(c)
		prometheus.MustRegister(c)
	}
}

// Unregister unregisters collectors.
func Unregister(all ...Collector) {
	for _, c := range all {
		prometheus.Unregister(c)
	}
}

// Bool returns 1 for true and 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
