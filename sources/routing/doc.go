// Package routing implements the routing web service XRouteWSService (contract 3, 5.4), which
// converts geometries over SOAP 1.1. Package xroute has the envelopes and types, and package geo
// the coordinates.
//
//	Admit    quotas, Content-Type, Content-Encoding          before any byte of the body
//	Handle   receive ─▶ read ─▶ operate ─▶ write ─▶ send
//	                    └─ one of `concurrency` ─┘           watchJob waits outside of it
//
// Errors before the body is complete, and invalid gzip, are reported as on all other paths.
// Otherwise the response is SOAP: a result, or a fault with an exception. Details of internal
// errors are only in the log, under the transactionId of the fault.
//
// Quotas (sources/internal/admission). A client may use as many slots and watches, and as much
// memory for bodies and responses, as it leaves free for others. The memory of a response
// is reserved before the response is created.
//
// Jobs. startConvertGeometries reads the geometries of the request as coordinates; a worker
// converts them in place, and fetchConvertGeometries writes them in the requested encodings. So the
// memory of a job is known before it is accepted, and does not grow. Jobs exist in memory only.
// Settings limit their number, size and age. If a limit is reached, the start fails; accepted jobs
// are never dropped early.
package routing
