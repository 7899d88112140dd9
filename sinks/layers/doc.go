// Package layers builds and serves the street forecast layer (contract 2, 5.3 and 4.2). Map clients
// poll it all day and it changes every few minutes, so it is built when it changes and served as
// finished bytes.
//
//	feed ── Put, Remove, Replace ─▶ open ── Publish ─▶ ready ── build ─▶ snapshot ◀── Handle
//	                              not visible       not built  (one at a time)  (immutable)
//
// Updates of a feed stay open until it publishes them, and a build takes published updates only, so
// that readers never see half of an update.
//
// A document is the layer for one time zone, one scope (the whole layer, or one horizon) and one
// format (protobuf or JSON), in three encodings. The snapshot holds every document that a client can
// ask for:
//
//	street ─┐
//	street ─┼▶ bucket ─▶ part ─▶ piece ─┐
//	street ─┘                           ├▶ page ─┐
//	           bucket ─▶ part ─▶ piece ─┘        ├▶ document ─▶ one body for each encoding
//	                                  … ─▶ page ─┘
//
// Streets are immutable and ordered by (street, fromnode). Buckets start at streets whose number
// hashes to zero, so that the boundaries depend on the streets alone, a changed street touches one
// bucket, and an added or removed street touches few. A part is a bucket's share of a document. It
// is valid until a street of the bucket changes, or until the reference time passes the next start
// or end of a period that matters to it.
//
// The piece is the part's bytes, encoded separately, so that unchanged parts are not compressed
// again. Protobuf messages can be concatenated. So can deflate blocks that refer to nothing before
// the piece and end at a byte boundary, and zstd blocks that also inherit no repeated offset. Each
// piece's zstd form is decoded once to prove this, and stored uncompressed if it fails. A body
// is one gzip member or one zstd frame, because browsers read no further. The CRC-32 of the member
// is combined from those of the pages; an ETag is a hash of the pieces' hashes.
//
// A page is a run of pieces in contiguous memory. A document reuses the unchanged pages of its
// predecessor, so that a small change copies little. Bodies are sent page by page without a copy.
//
// A document leaves out streets that have no period to show; the buckets leave out streets whose last
// period has ended.
//
// The bytes do not depend on the order, number or time of updates: two replicas with the same
// forecasts serve the same bytes and ETags.
package layers
