// Package send carries measurements to the daemon over HTTP (
// contract 1, contract 1).
//
//	items ─▶ fill ─▶ lane 0 … n ─▶ gzip, POST, again while it helps ─▶ ledger
//	         batches   in order       one Idempotency-Key a batch       counts, rejected items
//
// Order. Each detector belongs to one lane (a hash of its code) and a lane has
// one batch under way at a time, so the measurements of a detector arrive in
// the order of the input. A lane's batch is closed when it is full, not when
// the input moves on to another detector; lanes may queue a few batches, so
// that input sorted by detector keeps several lanes busy. Without order there
// is one queue that all workers take from.
//
// Memory is bounded by a fixed set of batches that go round: fill takes a free
// one, a worker gives it back once it is answered.
package send
