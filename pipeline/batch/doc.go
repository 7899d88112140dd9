// Package batch holds the nouns that every stage and every adapter shares: a
// batch of measurements in columns, its rejections, the refusal of a whole
// request, the set of detectors, the block of rows that a sink delivers.
//
// It is the leaf of the tree: sources and sinks know each other only through
// it, and it imports nothing of ours.
//
// Memory. Columns are slices that keep their capacity; whoever owns a value
// may Reset and fill it again. Byte views (Code, TypeCode, Rejection text)
// point into the owner's buffers and are valid until its next Reset.
package batch
