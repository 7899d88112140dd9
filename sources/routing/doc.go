// Package routing implements the routing web service XRouteWSService (contract 3 and 5.4), which
// converts geometries over SOAP 1.1. Package xroute contains the envelopes and types; package geo
// reads, converts and writes the geometries.
//
//	Admit    Content-Type, Content-Encoding                  before any byte of the body
//	Handle   receive ─▶ read ─▶ operate ─▶ write ─▶ send
//	                    └─ one of `concurrency` ─┘           watchJob waits outside it
//
// Errors that occur before the body is complete, invalid gzip and exceeded quotas are reported as
// on all other paths. Every other response is SOAP: a result or a fault. Details of internal errors
// are only logged, with the transactionId of the fault as trace_id.
//
// Quotas (pipeline/lib/admission) apply to requests in progress, watches, and the memory of
// bodies and responses. The memory of a response is reserved before the response is created.
//
// Jobs: startConvertGeometries reads the coordinates of the geometries, a worker converts them in
// place, and fetchConvertGeometries writes them in the requested encodings. The memory of a job is
// therefore known before the job is accepted, and does not grow. Jobs exist only in memory.
// Settings limit their number, size and age. At a limit, new jobs are rejected; accepted jobs are
// never dropped early.
package routing
