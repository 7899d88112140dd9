// Package ingest is the endpoint that takes detector measurements (
// contract 1, contract 1): it receives a compressed body on the
// client's own connection, hands the complete body to the pipeline, and
// renders the outcome as IngestResult.
//
//	Before   admission, headers, Idempotency-Key       nothing of the body is awaited
//	Serve    receive ─▶ Pipeline.Submit ─▶ answer      a slow client is waited for in receive only
//
// Memory. Bodies and compressed answers stand in blocks of 64 KiB that are counted by
// the admission when they are taken; a plain answer is rendered while it is written, and
// its list of rejections is counted. Nothing is taken for a length that is only declared.
package ingest
