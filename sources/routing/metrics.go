package routing

import (
	"errors"

	"trafficd/pipeline/lib/admission"
	"trafficd/pipeline/lib/metrics"
	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

var (
	requests = metrics.NewCounters("trafficd_routing_requests_total",
		"SOAP requests that got a result (outcome OK) or a fault, by operation and outcome.", "operation", "outcome")
	requestSeconds = metrics.NewSecondsBy("trafficd_routing_request_seconds",
		"Time to process a SOAP request, including the wait of watchJob and excluding receiving and sending, in seconds.", "operation")
	apiErrors = metrics.NewCounters("trafficd_routing_errors_total",
		"Requests to the routing service that got neither a result nor a fault, by code.", "code")
	points = metrics.NewCounter("trafficd_routing_points_total",
		"Points converted. Each geometry, ring, line and member of a collection counts as one more.")
	panics = metrics.NewCounter("trafficd_routing_panics_total", "Panics in requests and job items of the routing service.")

	bodyBytes      = metrics.NewCounter("trafficd_routing_body_bytes_total", "Bytes of SOAP bodies received, before decompression.")
	receiveSeconds = metrics.NewSeconds("trafficd_routing_receive_seconds", "Time to receive the body of a SOAP request, in seconds.")
	aborted        = metrics.NewCounter("trafficd_routing_aborted_total", "SOAP requests whose client disconnected before the body's end.")

	jobsStarted   = metrics.NewCounter("trafficd_routing_jobs_started_total", "Conversion jobs started.")
	jobsRejected  = metrics.NewCounter("trafficd_routing_jobs_rejected_total", "Conversion jobs rejected because a limit was reached.")
	jobsEnded     = metrics.NewCounters("trafficd_routing_jobs_ended_total", "Conversion jobs that have ended, by final status.", "status")
	jobsExpired   = metrics.NewCounter("trafficd_routing_jobs_expired_total", "Ended conversion jobs that expired before they were fetched.")
	jobsKept      = metrics.NewGauge("trafficd_routing_jobs", "Conversion jobs of any status in memory.")
	jobsLimit     = metrics.NewGauge("trafficd_routing_jobs_limit", "Maximum number of conversion jobs in memory.")
	jobBytes      = metrics.NewGauge("trafficd_routing_job_bytes", "Memory used by all conversion jobs, in bytes.")
	jobBytesLimit = metrics.NewGauge("trafficd_routing_job_bytes_limit", "Maximum memory used by all conversion jobs, in bytes.")
)

// outcomeOK is the outcome of requests that got a result.
var outcomeOK = contract.OK.String()

func init() {
	for _, operation := range xroute.Operations() {
		requests.WithLabelValues(operation, outcomeOK)
		requestSeconds.WithLabelValues(operation)
	}
	for _, s := range []status{succeeded, failed, deleted} {
		jobsEnded.WithLabelValues(string(s))
	}
}

// countError counts a request that gets neither a result nor a fault.
func countError(err error) {
	code := contract.InternalError
	if apiErr, ok := errors.AsType[*contract.APIError](err); ok {
		code = apiErr.Code
	}
	apiErrors.WithLabelValues(code.String()).Inc()
}

// The resources that all clients share.
var (
	slots   = admission.Requests("trafficd_routing", "SOAP requests")
	memory  = admission.Memory("trafficd_routing", "SOAP requests")
	watches = admission.Resource{
		Noun: "watches of jobs", Advice: "wait for responses, then try again",
		Full:  "too many requests watch jobs: try again in a moment",
		Used:  metrics.NewGauge("trafficd_routing_watches", "Requests that watch a job."),
		Limit: metrics.NewGauge("trafficd_routing_watches_limit", "Maximum number of requests that watch a job."),
	}
)
