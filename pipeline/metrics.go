package pipeline

import "trafficd/pipeline/lib/metrics"

var (
	decodeSeconds     = metrics.NewSeconds("trafficd_pipeline_decode_seconds", "Time to decode and validate one batch, in seconds.")
	idempotencyBytes  = metrics.NewGauge("trafficd_pipeline_idempotency_bytes", "Memory used by the idempotency store, in bytes.")
	idempotencyErrors = metrics.NewCounter("trafficd_pipeline_idempotency_errors_total", "Failed attempts to save the idempotency store.")
	deadLetters       = metrics.NewCounters("trafficd_pipeline_dead_letters_total",
		"Rows that a sink permanently rejected and that were written to the dead-letter file.", "sink")
	quarantined = metrics.NewCounters("trafficd_pipeline_quarantined_records_total",
		"Records of the log in Kafka that are not intact frames, and that the sink's delivery skipped and wrote to the dead-letter file.", "sink")
)

func (in *Intake) registerMetrics() {
	metrics.Register(
		metrics.GaugeFunc("trafficd_pipeline_queue_capacity", "Maximum number of batches waiting for a worker.", nil,
			func() float64 { return float64(in.cfg.Queue) }),
		metrics.GaugeFunc("trafficd_pipeline_queue_depth", "Batches waiting for a worker.", nil,
			func() float64 { return float64(in.turns.Depth()) }),
		metrics.GaugeFunc("trafficd_pipeline_clock_wrong",
			"1 while batches are rejected because the clock has jumped ahead or the newest frame in the journal is ahead of it, otherwise 0.", nil,
			func() float64 { return metrics.Bool(in.CheckClock() != nil) }),
	)
}

// ShowDelivery registers the metrics of a sink. status returns the total of its deliveries.
func ShowDelivery(sink string, dead *DeadLetters, status func() Status) {
	deadLetters.WithLabelValues(sink)
	quarantined.WithLabelValues(sink)
	labels := map[string]string{"sink": sink}
	metrics.Register(
		metrics.GaugeFunc("trafficd_pipeline_lag_seconds", "Age of the oldest row that has not been delivered to the sink, in seconds.", labels,
			func() float64 { return status().Lag.Seconds() }),
		metrics.GaugeFunc("trafficd_pipeline_lag_frames", "Frames of the journal that have not been completely delivered to the sink.", labels,
			func() float64 { return float64(status().Frames) }),
		metrics.GaugeFunc("trafficd_pipeline_failing", "1 if the last attempt to write to the sink failed, otherwise 0.", labels,
			func() float64 { return metrics.Bool(status().Trouble != nil) }),
		metrics.GaugeFunc("trafficd_pipeline_lag_rows",
			"Rows of the journal that have not been delivered to the sink; an estimate from the mean number of rows of a frame.", labels,
			func() float64 { return float64(status().Waiting) }),
		metrics.GaugeFunc("trafficd_pipeline_delivered_rows", "Rows delivered to the sink since the start of the process.", labels,
			func() float64 { return float64(status().Rows) }),
		metrics.GaugeFunc("trafficd_pipeline_dead_letter_rows", "Rows of the sink in the dead-letter file.", labels,
			func() float64 { rows, _ := dead.Count(sink); return float64(rows) }),
	)
}
