// Package layers keeps the street forecast layer and serves it (contract 2,
// contract 5.3 and 4.2). Map clients poll it all day and it changes
// every few minutes, so it is built when it changes and served as finished bytes.
//
//	feed ── Put, Remove, Replace ─▶ open ── Publish ─▶ ready ── build ─▶ snapshot ◀── Serve
//	                              not seen          not built  (one at a time)  (immutable)
//
// What a feed puts is open until it publishes; a build takes published changes
// only, so that a reader sees one whole layer, never half of an update.
//
// A document is the layer for one time zone, one scope (everything, or one horizon)
// and one format (protobuf, JSON), in three encodings. All documents that a
// client can ask for are in the snapshot:
//
//	street ─┐
//	street ─┼▶ bucket ─▶ part ─▶ piece ─┐
//	street ─┘                           ├▶ page ─┐
//	           bucket ─▶ part ─▶ piece ─┘        ├▶ document ─▶ body, one for each encoding
//	                                  … ─▶ page ─┘
//
// Streets are immutable values in the order of (street, fromnode). The order is cut into
// buckets before streets whose number hashes to zero, so that the cuts are a function
// of the streets alone and a change of one street touches one bucket, a street more or less
// a few. A part is a bucket's share of a document, and lives until a street of the bucket
// changes or the reference time passes the next end (or beginning) of a period that matters
// to it.
//
// Its bytes are the piece, in each encoding by itself, so that what did not change is not
// compressed again. Messages of protobuf concatenate. So do blocks of deflate, if they look
// back no further than the piece and end at a byte: that is what a full flush makes. So
// do blocks of zstd, under conditions that compressor.zstdBlocks names. The bodies are
// one gzip member and one zstd frame: browsers read no further. The member's checksum is
// combined from those of the pages, and a body's ETag is a hash of the pieces' hashes.
//
// A page is a run of pieces in one stretch of memory. A document takes over the pages of the
// one before in which nothing has changed, so that a small change copies little and
// needs little memory; it is sent stretch by stretch, without a copy.
//
// A street is left out of a document that has no period of it to show, and out of the
// buckets once its last period has ended.
//
// Nothing of the bytes depends on the order or the number of updates, nor on when they
// came: two replicas that know the same forecasts give the same bytes and ETags.
package layers
