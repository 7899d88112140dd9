// Package routing is the routing web service XRouteWSService (contract 3,
// contract 5.4, 3.1, 7.3): SOAP 1.1 over HTTP around the conversion of
// geometries. Envelopes and types are package xroute's, coordinates package geo's.
//
//	Before   admission, Content-Type, Content-Encoding       nothing of the body is awaited
//	Serve    receive ─▶ read ─▶ operate ─▶ write ─▶ send
//	                    └─ one of `concurrency` ─┘           watchJob waits outside of it
//
// An error before the body is complete, or in its gzip, is a refusal like those of
// every other path. From then on there is an answer in SOAP: a response, or a
// fault with an exception in it. What is not the client's business is in the
// log only, under the transactionId that the fault names.
//
// Shares. Of the places, of the memory for bodies and answers, and of the watches a client
// may have as much as it leaves free to others (shares.go). An answer's memory is
// reserved before the answer is made.
//
// Jobs. startConvertGeometries reads the geometries in the request, as coordinates; a
// worker converts them in place, and fetchConvertGeometries writes them in the
// encodings that were asked for. So it is known how much memory a job holds before it is
// taken, and that does not grow. Jobs live in memory only. Their number, size
// and age are bounded by settings; when there is no room the start is refused, and
// nothing that was taken is dropped before its time.
package routing
