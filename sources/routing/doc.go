// Package routing implements the routing web service XRouteWSService (contract 3, 5.4), which
// converts geometries over SOAP 1.1. Package xroute has the envelopes and types, and package geo
// the coordinates.
//
//	Admit    quotas, Content-Type, Content-Encoding          before any byte of the body
//	Handle   receive ─▶ read ─▶ operate ─▶ write ─▶ send
//	                    └─ one of `concurrency` ─┘           watchJob waits outside of it
//
// Errors before the body is complete, and invalid gzip, are reported as on all other paths. After
// that, the response is SOAP: a result, or a fault with an exception. Details of internal errors
// are only in the log, under the transactionId of the fault.
//
// Quotas (sources/internal/admission) apply to requests in progress, watches, and the memory of
// bodies and responses. The memory of a response is reserved before the response is created.
//
// Jobs: startConvertGeometries reads the coordinates of the geometries, a worker converts them in
// place, and fetchConvertGeometries writes them in the requested encodings. So the memory of a job
// is known before it is accepted, and does not grow. Jobs exist in memory only. Settings limit
// their number, size and age. At a limit, no job can be started; accepted jobs are never dropped
// early.
package routing
