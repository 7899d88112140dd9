// Package ingest is the endpoint for detector measurements (contract 1): it receives a compressed
// body on the client's own connection, hands the complete body to the pipeline, and renders the
// outcome as IngestResult.
//
//	Admit    readiness, headers, Idempotency-Key       before any byte of the body
//	Handle   receive ─▶ Pipeline.Submit ─▶ answer      only receive waits for a slow client
//
// Memory. Bodies and compressed responses are kept in blocks of 64 KiB that count towards the quota
// of their client (sources/internal/admission). An uncompressed response is rendered while it is
// written, and only its list of rejections counts. A declared length alone takes no memory.
package ingest
