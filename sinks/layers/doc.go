// Package layers builds and serves the street forecast layer (contract 2 and 5.3). Map clients
// poll it all day, but it changes only every few minutes. It is therefore built when it changes,
// and requests are served from prebuilt bytes.
//
//	feed ── Put, Remove, Clear ─▶   open ── Publish ─▶ ready ── build ─▶ snapshot ◀── Handle
//	                              not visible       not built  (one at a time)  (immutable)
//
// A feed's updates stay open until it publishes them, and a build includes only published updates,
// so that readers never see part of an update.
//
// A document is the layer for one time zone and one scope (the whole layer, or one horizon). It has
// a body for each format (protobuf or JSON) and encoding:
//
//	street ─┐
//	street ─┼▶ bucket ─▶ part ─▶ piece ─┐
//	street ─┘                           ├▶ document ─▶ bodies, joined from forms of the pieces
//	           bucket ─▶ part ─▶ piece ─┘
//
// Streets are immutable and ordered along a Hilbert curve of the map. A bucket is a square of the
// map or half of one, with a limited number of streets. Its boundaries depend only on the streets,
// and a changed street affects one bucket. A part is the content that a bucket contributes to a
// document during a time interval. Scopes that show a time in this interval share the part: the
// 15-minute horizon will show in a quarter of an hour what the 30-minute horizon shows now.
//
// A piece holds the bytes of a part in each form (format and encoding) that is needed. Pieces are
// compressed separately, so that unchanged ones are not compressed again. Protobuf messages can be
// concatenated. So can deflate blocks that end at a byte boundary and do not refer to anything
// before the piece, and zstd blocks that, in addition, do not inherit match offsets. Each
// compressed form is decoded once to verify this, and stored uncompressed if the check fails. A
// body is a single gzip member or zstd frame, because browsers decode only the first one. The
// CRC-32 of the member is computed from the CRC-32s of the pieces. An ETag is a hash of the hashes
// of the pieces. Bodies are sent piece by piece without copying them.
//
// Documents and forms that clients have requested recently are built in advance. The others are
// built on request, with the same bytes.
//
// A tile or a bounding box consists of the pieces of the buckets in it. Only the buckets that cross
// its edge, at most one in the case of a tile, are filtered and compressed for the request. Clients
// take turns in this. What is made for a request is charged to a quota until it is sent; what the
// layer no longer contains has a limit of its own for each client that is still reading it.
// Changes since a version are derived from the number of the build that last changed each street,
// and from the periods shown at both reference times.
//
// Documents omit streets that have no period to show. Buckets omit streets whose last period has
// ended.
//
// The bytes do not depend on the order, number or time of updates: two replicas with the same
// forecasts serve the same bytes and ETags. The exception is the changes since a version, which may
// contain more streets on one replica than on another.
package layers
