package forecasts

import "github.com/VictoriaMetrics/metrics"

// Outcomes of checks and of records. The gauges exist only while the feed runs.
var (
	checksPublished = metrics.NewCounter(`trafficd_forecasts_checks_total{result="published"}`)
	checksUnchanged = metrics.NewCounter(`trafficd_forecasts_checks_total{result="unchanged"}`)
	checksUnsettled = metrics.NewCounter(`trafficd_forecasts_checks_total{result="unsettled"}`)
	checksFailed    = metrics.NewCounter(`trafficd_forecasts_checks_total{result="failed"}`)
	checkSeconds    = metrics.NewHistogram(`trafficd_forecasts_check_duration_seconds`)

	recordsTaken   = metrics.NewCounter(`trafficd_forecasts_records_total{result="taken"}`)
	recordsRemoved = metrics.NewCounter(`trafficd_forecasts_records_total{result="removed"}`)
	recordsSkipped = metrics.NewCounter(`trafficd_forecasts_records_total{result="skipped"}`)
	outOfRange     = metrics.NewCounter(`trafficd_forecasts_out_of_range_total`) // of the skipped records
	remarksTotal   = metrics.NewCounter(`trafficd_forecasts_remarks_total`)
)

func addGauges(set *metrics.Set, f *Forecasts) {
	set.NewGauge(`trafficd_forecasts_age_seconds`, func() float64 { return f.Status().AgeSeconds })
	set.NewGauge(`trafficd_forecasts_failing`, func() float64 {
		if f.Status().Error != "" {
			return 1
		}
		return 0
	})
}
