// Package registry keeps, for each product instance, the set of detector codes that measurements
// may contain (contract 1.4).
//
// A feed provides the list of one product instance, or a list shared by many product instances. Its
// source is a watched file, or a polled HTTP service or ClickHouse query. Each feed has one
// goroutine, which loops:
//
//	change or end of interval ─▶ read ─▶ guard ─▶ replace the whole list
//	                              │        └─ empty, or too many detectors missing: keep the last good list
//	                              └─ failed, or still being written: keep the last good list
//
// Readers see the list as an immutable set behind an atomic pointer. An invalid list never replaces
// a valid one; it sets trafficd_registry_failing and is reported in Status until it is fixed. For a
// shared list, the guard protects each product instance's list, and the set of product instances.
package registry
