// Package registry keeps, for each product instance, the set of detector codes
// that a measurement may name (contract 1.4).
//
// A feed is where the list of one product instance comes from: a file that is
// watched, an HTTP service that is polled, or a ClickHouse query that is
// polled. Each feed is one goroutine that goes round:
//
//	something changed, or time is up ─▶ read ─▶ guard ─▶ swap in whole
//	                                     │        └─ empty, or much is gone: keep the last good list
//	                                     └─ fails, or is half-written: keep the last good list
//
// Readers take the list as an immutable set behind an atomic pointer; a list
// that is not as it should be never replaces one that was, raises
// trafficd_registry_failing and stands in Status until it is mended.
package registry
