// Package geometry converts a stream of geometries from one encoding to another,
// and their coordinates from one format to another.
//
// A record is one geometry: a line, a placemark, or a whole file of raw WKB.
// What cannot be converted is reported with its place, and the stream goes on
// behind it. Memory is bounded by the largest record and by a batch.
//
// Who converts the coordinates is a Converter: Offline here, or a client of the
// routing service.
package geometry
