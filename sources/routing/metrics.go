package routing

import (
	"errors"
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
	"trafficd/sources/internal/admission"
)

var (
	requests       = requestCounters()
	requestSeconds = operationHistograms()                               // without the receiving and the sending; with the waiting of watchJob
	apiErrors      = apiErrorCounters()                                  // requests without a response or a fault
	points         = metrics.NewCounter("trafficd_routing_points_total") // converted; parts of geometries count as one each
	panics         = metrics.NewCounter("trafficd_routing_panics_total")

	bodyBytes      = metrics.NewCounter("trafficd_routing_body_bytes_total") // as received
	receiveSeconds = metrics.NewHistogram("trafficd_routing_receive_seconds")
	aborted        = metrics.NewCounter("trafficd_routing_aborted_total") // the client went away within the body

	jobsStarted   = metrics.NewCounter("trafficd_routing_jobs_started_total")
	jobsRejected  = metrics.NewCounter("trafficd_routing_jobs_rejected_total") // a limit was reached
	jobsEnded     = endCounters()
	jobsExpired   = metrics.NewCounter("trafficd_routing_jobs_expired_total") // before they were fetched
	jobsKept      = metrics.NewGauge("trafficd_routing_jobs", nil)            // of whatever status
	jobsLimit     = metrics.NewGauge("trafficd_routing_jobs_limit", nil)
	jobBytes      = metrics.NewGauge("trafficd_routing_job_bytes", nil)
	jobBytesLimit = metrics.NewGauge("trafficd_routing_job_bytes_limit", nil)
)

// operations are those of the WSDL, and none for a request that could not be read.
var operations = []string{"none", "convertGeometry", "startConvertGeometries", "fetchConvertGeometries", "watchJob", "stopJob", "deleteJob"}

// outcomes returns all outcomes of a request.
func outcomes() []string {
	all := []string{"OK"}
	for _, c := range []*class{illegal, notSet, unforeseen, version, mustUnderstand} {
		all = append(all, c.name)
	}
	for _, code := range []xroute.ErrorCode{
		xroute.CodeInvalidWKT, xroute.CodeInvalidWKB, xroute.CodeInvalidKML, xroute.CodePlacemarkNotFound,
		xroute.CodeGeometryObject, xroute.CodeCoordinateFormat, xroute.CodeGeometryEncoding,
	} {
		all = append(all, string(code))
	}
	return all
}

func requestCounters() map[string]map[string]*metrics.Counter {
	all := map[string]map[string]*metrics.Counter{}
	for _, operation := range operations {
		all[operation] = map[string]*metrics.Counter{}
		for _, outcome := range outcomes() {
			all[operation][outcome] = metrics.NewCounter(fmt.Sprintf("trafficd_routing_requests_total{operation=%q,outcome=%q}", operation, outcome))
		}
	}
	return all
}

func operationHistograms() map[string]*metrics.Histogram {
	all := map[string]*metrics.Histogram{}
	for _, operation := range operations {
		all[operation] = metrics.NewHistogram(fmt.Sprintf("trafficd_routing_request_seconds{operation=%q}", operation))
	}
	return all
}

func apiErrorCounters() (all [contract.CodeCount]*metrics.Counter) {
	for code := contract.OK + 1; code < contract.BatchLimitExceeded; code++ {
		all[code] = metrics.NewCounter(fmt.Sprintf("trafficd_routing_errors_total{code=%q}", code))
	}
	return all
}

// countError counts a request that gets neither a response nor a fault.
func countError(err error) {
	code := contract.InternalError
	var apiErr *contract.APIError
	if errors.As(err, &apiErr) {
		code = apiErr.Code
	}
	apiErrors[code].Inc()
}

// endCounters returns a counter for each status that a job can end with.
func endCounters() map[status]*metrics.Counter {
	all := map[status]*metrics.Counter{}
	for _, s := range []status{succeeded, failed, deleted} {
		all[s] = metrics.NewCounter(fmt.Sprintf("trafficd_routing_jobs_ended_total{status=%q}", s))
	}
	return all
}

// What all clients share.
var (
	places = admission.Resource{
		Noun: "requests under way", Advice: "wait for the answers to some of them, then try again",
		Full:  "too many requests are under way: try again in a moment",
		Used:  metrics.NewGauge("trafficd_routing_admission_requests", nil),
		Limit: metrics.NewGauge("trafficd_routing_admission_requests_limit", nil),
	}
	memory = admission.Resource{
		Noun: "bytes of requests and answers", Advice: "read the pending answers, then try again",
		Full:  "the memory for requests is full: try again in a moment",
		Used:  metrics.NewGauge("trafficd_routing_admission_bytes", nil),
		Limit: metrics.NewGauge("trafficd_routing_admission_bytes_limit", nil),
	}
	watches = admission.Resource{
		Noun: "watches of jobs", Advice: "wait for the answers to some of them, then try again",
		Full:  "too many requests watch jobs: try again in a moment",
		Used:  metrics.NewGauge("trafficd_routing_watches", nil),
		Limit: metrics.NewGauge("trafficd_routing_watches_limit", nil),
	}
)
