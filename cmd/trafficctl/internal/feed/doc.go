// Package feed reads files of measurements: CSV, JSON and NDJSON, plain or
// packed with gzip, xz or zstd, from a file or a pipe.
//
//	file ─▶ meter ─▶ unpack ─▶ allowance ─▶ csv | json | ndjson ─▶ assembler ─▶ items
//	        bytes read          row ≤ 1 MiB   cells of a row         mapping, clock, numbers
//
// Memory does not depend on the length of the input: one row at a time is
// held, and a row longer than MaxRow ends the reading with an error.
//
// JSON and NDJSON without a mapping are passed on as they are, so that the
// daemon judges what the integrator wrote and not what this tool made of it.
// With a mapping, and for CSV always, an item is built anew from its cells.
package feed
