package pipeline

import (
	"trafficd/pipeline/journal"
	"trafficd/pipeline/metrics"
)

var (
	decodeSeconds     = metrics.NewSeconds("trafficd_pipeline_decode_seconds", "Time to decode and validate one batch, in seconds.")
	idempotencyBytes  = metrics.NewGauge("trafficd_pipeline_idempotency_bytes", "Memory of the idempotency store, in bytes.")
	idempotencyErrors = metrics.NewCounter("trafficd_pipeline_idempotency_errors_total", "Failed attempts to save the idempotency store.")
	deadLetters       = metrics.NewCounters("trafficd_pipeline_dead_letters_total",
		"Rows that a sink refused for good and that were written to the dead-letter file.", "sink")
)

func (in *Intake) show() {
	metrics.Show(
		metrics.GaugeFunc("trafficd_pipeline_queue_capacity", "Batches that can wait for a worker.", nil,
			func() float64 { return float64(in.cfg.Queue) }),
		metrics.GaugeFunc("trafficd_pipeline_queue_depth", "Batches that wait for a worker.", nil,
			func() float64 { return float64(in.jobs.depth()) }),
	)
}

func (d *Delivery) show(j *journal.Journal) {
	deadLetters.WithLabelValues(d.name)
	sink := map[string]string{"sink": d.name}
	metrics.Show(
		metrics.GaugeFunc("trafficd_pipeline_lag_seconds", "Age of the oldest row that was not delivered to the sink, in seconds.", sink,
			func() float64 { return d.Status().Lag.Seconds() }),
		metrics.GaugeFunc("trafficd_pipeline_lag_frames", "Frames of the journal that were not delivered to the sink in full.", sink,
			func() float64 {
				_, next := j.Bounds()
				return float64(next - min(d.reached.Load(), next))
			}),
		metrics.GaugeFunc("trafficd_pipeline_failing", "1 if the last attempt to write to the sink failed, else 0.", sink,
			func() float64 { return metrics.Bool(d.Status().Trouble != nil) }),
		metrics.GaugeFunc("trafficd_pipeline_lag_rows", "Rows of the journal that were not delivered to the sink.", sink,
			func() float64 { return float64(d.backlog.rows()) }),
		metrics.GaugeFunc("trafficd_pipeline_delivered_rows", "Rows delivered to the sink since the start of the process.", sink,
			func() float64 { return float64(d.rows.Load()) }),
	)
}
