// Package batch defines the data that the stages, sources and sinks exchange: measurements in
// columns, decoded items with their rejections, submissions and results, the set of known
// detectors, the frames that the journal stores, and the blocks of rows that sinks deliver.
//
// Reset keeps the capacity of the columns, so that the owner of a value can refill it without
// allocating. The bytes that Code, TypeCode and Detail return are views into the value's buffers
// and valid until its next Reset.
package batch
