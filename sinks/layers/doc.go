// Package layers keeps the street forecast layer and serves it (decisions.md 2,
// interface specification 2.4 and 4.2). Map clients poll it all day and it changes
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
//	street ─┼▶ bucket ─▶ part ─┐ identity: the parts, one after the other
//	street ─┘                  ├▶ document ─▶ gzip: the parts' deflate blocks, one member
//	           bucket ─▶ part ─┘ zstd: the whole identity, one frame
//
// Streets are immutable values in the order of (street, fromnode). The order is cut
// into buckets before streets whose number hashes to zero; so where a bucket begins is a
// function of the street alone, every bucket holds about as much however the numbers lie, and
// a change of one street touches one bucket (two where it begins one). A part is a
// bucket's share of a document, and lives until a street of the bucket changes or the
// reference time passes the next end (or beginning) of a period that matters to it.
//
// Messages of protobuf concatenate. Blocks of deflate do as well, if each was
// compressed by itself and ends at a byte: that is what a full flush makes. A
// zstd frame cannot be put together like this: its blocks inherit the last three
// offsets of the block before. So zstd is made anew from the whole document,
// at the fastest level.
//
// A street is left out of a document that has no period of it to show, and out of the
// buckets once its last period has ended.
//
// The checksum of the gzip member is taken while the parts are joined, over all of
// them: at the speed of memory that costs less than the zstd frame by far, so the parts'
// own checksums are neither kept nor combined.
//
// Nothing of the bytes depends on the order or the number of updates, nor on when they
// came: two replicas that know the same forecasts give the same bytes and ETags.
package layers
