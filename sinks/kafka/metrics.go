package kafka

import (
	"fmt"

	"trafficd/pipeline/metrics"
)

var (
	recordsTotal   = metrics.NewCounter("trafficd_kafka_records_total", "Records acknowledged by all in-sync replicas, each counted once.")
	bytesTotal     = metrics.NewCounter("trafficd_kafka_bytes_total", "Record batches sent, compressed, in bytes.")
	requestsTotal  = metrics.NewCounter("trafficd_kafka_requests_total", "Produce requests sent.")
	produceSeconds = metrics.NewSeconds("trafficd_kafka_produce_seconds", "Time of one produce request, in seconds.")

	resolvedTotal = metrics.NewCounters("trafficd_kafka_resolved_total",
		"In-doubt records that were looked up in the topic, by result: found or missing.", "result")
	foundTotal   = resolvedTotal.WithLabelValues("found")
	missingTotal = resolvedTotal.WithLabelValues("missing")

	errorsVec = metrics.NewCounters("trafficd_kafka_errors_total",
		"Failed record batches by class of the error, and failures to plan a block (plan) or to look up an in-doubt one (look_up).", "class")
	errorsTotal       = errorCounters() // by outcome
	planErrorsTotal   = errorsVec.WithLabelValues("plan")
	lookUpErrorsTotal = errorsVec.WithLabelValues("look_up")
)

// errorCounters returns a counter for each outcome but acknowledged.
func errorCounters() (c [outcomes]metrics.Counter) {
	for v := retry; v < outcomes; v++ {
		c[v] = errorsVec.WithLabelValues(fmt.Sprint(v))
	}
	return c
}
