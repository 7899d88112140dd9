package forecasts

import (
	"trafficd/pipeline/lib/feedloop"
	"trafficd/pipeline/lib/metrics"
)

var (
	checks       = feedloop.NewResults("trafficd_forecasts_checks_total", "Checks of the forecast feed", "published")
	checkSeconds = metrics.NewSeconds("trafficd_forecasts_check_duration_seconds", "Duration of a check of the forecast feed, in seconds.")

	records = metrics.NewCounters("trafficd_forecasts_records_total",
		"Records of the forecast feed, by result: taken, removed (tombstone) or skipped (invalid).", "result")
	recordsTaken   = records.WithLabelValues("taken")
	recordsRemoved = records.WithLabelValues("removed")
	recordsSkipped = records.WithLabelValues("skipped")
	outOfRange     = metrics.NewCounter("trafficd_forecasts_out_of_range_total",
		"Skipped records whose street or fromnode is not a 32-bit integer.")
	panics = metrics.NewCounter("trafficd_forecasts_panics_total",
		"Forecast records that were skipped because they made the daemon panic.")
	remarksTotal = metrics.NewCounter("trafficd_forecasts_remarks_total", "Defects in forecast records that were used nevertheless.")
)

// gauges returns the gauges of a feed, which are registered only while the feed runs.
func gauges(f *Forecasts) []metrics.Collector {
	return []metrics.Collector{
		metrics.GaugeFunc("trafficd_forecasts_age_seconds", "Age of the newest forecasts of the feed, in seconds.", nil,
			func() float64 { return f.Status().AgeSeconds }),
		metrics.GaugeFunc("trafficd_forecasts_failing", "1 if the last check of the forecast feed failed, else 0.", nil,
			func() float64 { return metrics.Bool(f.Status().Error != "") }),
	}
}
