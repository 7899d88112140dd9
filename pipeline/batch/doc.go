// Package batch defines the data that all stages, sources and sinks exchange: measurements in
// columns, decoded items with their rejections, submissions and results, the set of known
// detectors, frames as the journal stores them, and the blocks of rows that sinks deliver. Sources
// and sinks know each other only through it.
//
// Columns are slices that keep their capacity: the owner of a value may Reset and refill it. Byte
// views (Code, TypeCode, Echo) point into the owner's buffers and are valid until its next Reset.
package batch
