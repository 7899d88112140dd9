package registry

import (
	"time"

	"trafficd/pipeline/metrics"
)

var (
	reloads = metrics.NewCounters("trafficd_registry_reloads_total",
		"Checks of the detector lists, by result: loaded, unchanged, unsettled (still being written), refused (not plausible) or failed.", "result")
	reloadsLoaded    = reloads.WithLabelValues("loaded")
	reloadsUnchanged = reloads.WithLabelValues("unchanged")
	reloadsUnsettled = reloads.WithLabelValues("unsettled")
	reloadsRefused   = reloads.WithLabelValues("refused")
	reloadsFailed    = reloads.WithLabelValues("failed")
)

// gauges returns the gauges of one product instance.
func gauges(f *feed) []metrics.Collector {
	gauge := func(name, help string, value func(Status) float64) metrics.Collector {
		return metrics.GaugeFunc("trafficd_registry_"+name, help, map[string]string{"product_instance": f.instance},
			func() float64 { return value(f.status(time.Now())) })
	}
	return []metrics.Collector{
		gauge("detectors", "Detectors in the list in use.", func(s Status) float64 { return float64(s.Detectors) }),
		gauge("age_seconds", "Time since the detector list was last confirmed, in seconds.", func(s Status) float64 { return s.AgeSeconds }),
		gauge("failing", "1 if the last check of the detector list failed, else 0.", func(s Status) float64 { return metrics.Bool(s.Error != "") }),
	}
}
