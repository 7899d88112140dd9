package routing

// status is where a job stands (interface specification 2.5, decisions.md 3):
//
//	start ─▶ QUEUING ─▶ RUNNING ─▶ SUCCEEDED   some piece was successful, or there was none
//	            │          ├─────▶ FAILED      no piece was
//	            ├──────────┴─────▶ STOPPING    by stopJob; what was done by then can be fetched
//	            └─ from all ─────▶ DELETED     by deleteJob
//
// UNKNOWN is an id that is not the client's, was fetched, or has expired.
type status string

const (
	queuing   status = "QUEUING"
	running   status = "RUNNING"
	stopping  status = "STOPPING"
	succeeded status = "SUCCEEDED"
	failed    status = "FAILED"
	deleted   status = "DELETED"
	unknown   status = "UNKNOWN"
)
