package kafka

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"
)

var (
	recordsTotal   = metrics.NewCounter(`trafficd_kafka_records_total`)  // acknowledged, each once
	bytesTotal     = metrics.NewCounter(`trafficd_kafka_bytes_total`)    // of record batches sent, compressed
	requestsTotal  = metrics.NewCounter(`trafficd_kafka_requests_total`) // produce requests
	produceSeconds = metrics.NewHistogram(`trafficd_kafka_produce_seconds`)
	foundTotal     = metrics.NewCounter(`trafficd_kafka_resolved_total{result="found"}`) // rows in doubt
	missingTotal   = metrics.NewCounter(`trafficd_kafka_resolved_total{result="missing"}`)

	errorsTotal       = errorCounters() // by outcome
	planErrorsTotal   = metrics.NewCounter(`trafficd_kafka_errors_total{class="plan"}`)
	lookUpErrorsTotal = metrics.NewCounter(`trafficd_kafka_errors_total{class="look_up"}`)
)

// errorCounters returns a counter for each outcome but acknowledged.
func errorCounters() (c [outcomes]*metrics.Counter) {
	for v := retry; v < outcomes; v++ {
		c[v] = metrics.NewCounter(fmt.Sprintf(`trafficd_kafka_errors_total{class=%q}`, v))
	}
	return c
}
