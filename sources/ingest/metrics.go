package ingest

import (
	"errors"
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

var (
	batches       = counters("trafficd_ingest_batches_total") // by outcome; CodeNone: answered 207
	unanswered    = metrics.NewCounter("trafficd_ingest_batches_unanswered_total")
	itemsAccepted = metrics.NewCounter("trafficd_ingest_items_accepted_total")
	itemsRejected = counters("trafficd_ingest_items_rejected_total")

	bodyBytes      = metrics.NewCounter("trafficd_ingest_body_bytes_total") // compressed, as received
	receiveSeconds = metrics.NewHistogram("trafficd_ingest_receive_seconds")
	aborted        = metrics.NewCounter("trafficd_ingest_aborted_total") // the client went away within the body

	admissionRequests      = metrics.NewGauge("trafficd_ingest_admission_requests", nil)
	admissionRequestsLimit = metrics.NewGauge("trafficd_ingest_admission_requests_limit", nil)
	admissionBytes         = metrics.NewGauge("trafficd_ingest_admission_bytes", nil)
	admissionBytesLimit    = metrics.NewGauge("trafficd_ingest_admission_bytes_limit", nil)
)

// counters makes one counter for each code.
func counters(name string) (all [contract.CodeCount]*metrics.Counter) {
	for code := range all {
		all[code] = metrics.NewCounter(fmt.Sprintf("%s{code=%q}", name, contract.Code(code)))
	}
	return all
}

// counted counts a batch that got no 207, and gives its error back.
func counted[E error](err E) E {
	var apiErr *contract.APIError
	switch {
	case errors.As(err, &apiErr):
		batches[apiErr.Code].Inc()
	case errors.Is(err, batch.ErrNoAnswer):
		unanswered.Inc()
	default:
		batches[contract.InternalError].Inc()
	}
	return err
}
