// Package layers builds and serves the street forecast layer (contract 2, 5.3 and 4.2). Map clients
// poll it all day and it changes every few minutes, so it is built when it changes and served as
// finished bytes.
//
//	feed ── Put, Remove, Clear ─▶   open ── Publish ─▶ ready ── build ─▶ snapshot ◀── Handle
//	                              not visible       not built  (one at a time)  (immutable)
//
// Updates of a feed stay open until it publishes them, and a build takes published updates only, so
// that readers never see half of an update.
//
// A document is the layer for one time zone and one scope (the whole layer, or one horizon). It has
// a body for each format (protobuf or JSON) and encoding:
//
//	street ─┐
//	street ─┼▶ bucket ─▶ part ─▶ piece ─┐
//	street ─┘                           ├▶ document ─▶ bodies, each of the pieces' forms
//	           bucket ─▶ part ─▶ piece ─┘
//
// Streets are immutable and ordered along a Hilbert curve of the map. A bucket is a square of the
// map or half of one, with a limited number of streets. The boundaries depend on the streets alone,
// and a changed street touches one bucket. A part is a bucket's share of documents: what it shows
// of the periods. It belongs to every scope that looks at a time at which the part is valid: a
// horizon shows now what the next longer one showed a quarter of an hour ago.
//
// The piece has the part's bytes in each form, compressed separately, so that unchanged pieces are
// not compressed again. Protobuf messages can be concatenated. So can deflate blocks that refer to
// nothing before the piece and end at a byte boundary, and zstd blocks that also inherit no
// repeated offset. Each form is decoded once to prove this, and stored uncompressed if it fails. A
// body is one gzip member or one zstd frame, because browsers read no further. The CRC-32 of the
// member is combined from those of the pieces; an ETag is a hash of the pieces' hashes. Bodies are
// sent piece by piece without a copy.
//
// Documents are built, and forms made, in advance if clients have recently asked for them,
// otherwise on request; the bytes are the same.
//
// A tile or another area consists of the pieces of the buckets in it; only streets of buckets at
// its edge, at most one for a tile, are compressed for the request. Changes since a version are
// derived from the number of the build that last changed each street, and from the periods that
// both reference times show.
//
// A document leaves out streets that have no period to show; the buckets leave out streets whose
// last period has ended.
//
// The bytes do not depend on the order, number or time of updates: two replicas with the same
// forecasts serve the same bytes and ETags. Only changes since a version may have more streets on
// one replica than on another.
package layers
