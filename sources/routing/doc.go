// Package routing is the routing web service XRouteWSService (contract 3, 5.4): SOAP 1.1 over HTTP
// for the conversion of geometries. Package xroute has the envelopes and types, package geo the
// coordinates.
//
//	Admit    quotas, Content-Type, Content-Encoding          before any byte of the body
//	Handle   receive ─▶ read ─▶ operate ─▶ write ─▶ send
//	                    └─ one of `concurrency` ─┘           watchJob waits outside of it
//
// Errors before the body is complete, and invalid gzip, are answered as on all other paths. After
// that the answer is SOAP: a response, or a fault with an exception. Internal errors are only in
// the log, under the transactionId of the fault.
//
// Quotas (sources/internal/admission). A client may have as much of the places, of the memory for
// bodies and answers, and of the watches as it leaves free for others. The memory of an answer is
// reserved before the answer is made.
//
// Jobs. startConvertGeometries reads the geometries of the request as coordinates; a worker
// converts them in place, and fetchConvertGeometries writes them in the requested encodings. So the
// memory of a job is known before it is accepted, and does not grow. Jobs exist in memory only.
// Settings limit their number, size and age. If a limit is reached, the start fails; accepted jobs
// are never dropped early.
package routing
