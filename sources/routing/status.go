package routing

import "trafficd/schemas/xroute"

// status is where a job stands (contract 5.4, contract 3):
//
//	start ─▶ QUEUING ─▶ RUNNING ─▶ SUCCEEDED   some piece was successful, or there was none
//	            │          ├─────▶ FAILED      no piece was
//	            ├──────────┴─────▶ STOPPING    by stopJob; what was done by then can be fetched
//	            └─ from all ─────▶ DELETED     by deleteJob
//
// UNKNOWN is an id that is not the client's, was fetched, or has expired.
type status = xroute.JobStatus

const (
	queuing   = xroute.StatusQueuing
	running   = xroute.StatusRunning
	stopping  = xroute.StatusStopping
	succeeded = xroute.StatusSucceeded
	failed    = xroute.StatusFailed
	deleted   = xroute.StatusDeleted
	unknown   = xroute.StatusUnknown
)
