package ingest

import (
	"errors"
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
	"trafficd/sources/internal/admission"
)

var (
	batches       = counters("trafficd_ingest_batches_total") // by outcome; OK: answered 207
	unanswered    = metrics.NewCounter("trafficd_ingest_batches_unanswered_total")
	itemsAccepted = metrics.NewCounter("trafficd_ingest_items_accepted_total")
	itemsRejected = counters("trafficd_ingest_items_rejected_total")

	bodyBytes      = metrics.NewCounter("trafficd_ingest_body_bytes_total") // compressed, as received
	receiveSeconds = metrics.NewHistogram("trafficd_ingest_receive_seconds")
	aborted        = metrics.NewCounter("trafficd_ingest_aborted_total") // the client went away within the body
)

// What all clients share.
var (
	places = admission.Resource{
		Noun: "requests under way", Advice: "wait for the answers to some of them, then try again",
		Full:  "too many requests are under way: try again in a moment",
		Used:  metrics.NewGauge("trafficd_ingest_admission_requests", nil),
		Limit: metrics.NewGauge("trafficd_ingest_admission_requests_limit", nil),
	}
	memory = admission.Resource{
		Noun: "bytes of requests and answers", Advice: "read the pending answers, then try again",
		Full:  "the memory for requests is full: try again in a moment",
		Used:  metrics.NewGauge("trafficd_ingest_admission_bytes", nil),
		Limit: metrics.NewGauge("trafficd_ingest_admission_bytes_limit", nil),
	}
)

// counters returns one counter for each code.
func counters(name string) (all [contract.CodeCount]*metrics.Counter) {
	for code := range all {
		all[code] = metrics.NewCounter(fmt.Sprintf("%s{code=%q}", name, contract.Code(code)))
	}
	return all
}

// countError counts a batch without a 207.
func countError(err error) {
	var apiErr *contract.APIError
	switch {
	case errors.As(err, &apiErr):
		batches[apiErr.Code].Inc()
	case errors.Is(err, batch.ErrNoAnswer):
		unanswered.Inc()
	default:
		batches[contract.InternalError].Inc()
	}
}
