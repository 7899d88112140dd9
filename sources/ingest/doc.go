// Package ingest is the endpoint for detector measurements (contract 1): it receives a compressed
// body on the connection's goroutine, passes the complete body to the pipeline, and responds
// with an IngestResult.
//
//	Admit    readiness, headers, Idempotency-Key       before any byte of the body
//	Handle   receive ─▶ Pipeline.Submit ─▶ respond     only receive waits for a slow client
//
// Memory. Bodies and compressed responses are kept in blocks of 64 KiB, which are charged to the
// client's quota (pipeline/lib/admission). An uncompressed response is rendered while it is
// written, and only its list of rejections is charged. A Content-Length alone reserves no memory.
package ingest
