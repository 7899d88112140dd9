package pipeline

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/pipeline/journal"
)

var (
	decodeSeconds     = metrics.NewHistogram("trafficd_pipeline_decode_seconds")
	idempotencyBytes  = metrics.NewGauge("trafficd_pipeline_idempotency_bytes", nil)
	idempotencyErrors = metrics.NewCounter("trafficd_pipeline_idempotency_errors_total")
)

// export publishes the depth of the workers' queue.
func (in *Intake) export() {
	metrics.GetOrCreateGauge("trafficd_pipeline_queue_capacity", nil).Set(float64(cap(in.jobs)))
	metrics.GetOrCreateGauge("trafficd_pipeline_queue_depth", func() float64 { return float64(len(in.jobs)) })
}

func deadLetters(sink string) *metrics.Counter {
	return metrics.GetOrCreateCounter(fmt.Sprintf("trafficd_pipeline_dead_letters_total{sink=%q}", sink))
}

// export publishes the lag of the delivery. If a process creates several deliveries of the same name, as tests do, the
// gauges show the first one.
func (d *Delivery) export(j *journal.Journal) {
	label := fmt.Sprintf("{sink=%q}", d.name)
	metrics.GetOrCreateGauge("trafficd_pipeline_lag_seconds"+label, func() float64 { return d.Status().Lag.Seconds() })
	metrics.GetOrCreateGauge("trafficd_pipeline_lag_frames"+label, func() float64 {
		_, next := j.Bounds()
		return float64(next - min(d.reached.Load(), next))
	})
	metrics.GetOrCreateGauge("trafficd_pipeline_delivered_rows"+label, func() float64 { return float64(d.rows.Load()) })
	deadLetters(d.name).Add(0)
}
