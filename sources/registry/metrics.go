package registry

import (
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Outcomes of checks. New adds the gauges of each product instance, which the configuration names.
var (
	reloadsLoaded    = metrics.NewCounter(`trafficd_registry_reloads_total{result="loaded"}`)
	reloadsUnchanged = metrics.NewCounter(`trafficd_registry_reloads_total{result="unchanged"}`)
	reloadsUnsettled = metrics.NewCounter(`trafficd_registry_reloads_total{result="unsettled"}`)
	reloadsRefused   = metrics.NewCounter(`trafficd_registry_reloads_total{result="refused"}`)
	reloadsFailed    = metrics.NewCounter(`trafficd_registry_reloads_total{result="failed"}`)
)

func addGauges(set *metrics.Set, f *feed) {
	gauge := func(name string, value func(Status) float64) {
		set.NewGauge(fmt.Sprintf("trafficd_registry_%s{product_instance=%q}", name, f.instance),
			func() float64 { return value(f.status(time.Now())) })
	}
	gauge("detectors", func(s Status) float64 { return float64(s.Detectors) })
	gauge("age_seconds", func(s Status) float64 { return s.AgeSeconds })
	gauge("failing", func(s Status) float64 {
		if s.Error != "" {
			return 1
		}
		return 0
	})
}
