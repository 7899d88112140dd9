// Package registry keeps, for each product instance, the set of detector codes that a measurement
// may name (contract 1.4).
//
// A feed is where the list of one product instance comes from, or a shared list of many: a file
// that is watched, an HTTP service that is polled, or a ClickHouse query that is polled. Each feed
// has one goroutine, which loops:
//
//	change or end of interval ─▶ read ─▶ guard ─▶ swap in whole
//	                              │        └─ empty, or much is missing: keep the last good list
//	                              └─ failed, or still being written: keep the last good list
//
// Readers use the list as an immutable set behind an atomic pointer. A list that cannot be used
// never replaces a good one; it sets trafficd_registry_failing and is reported in Status until it
// is fixed. The guard protects each list of a shared one, and the set of its product instances.
package registry
