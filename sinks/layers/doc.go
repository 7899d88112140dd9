// Package layers builds and serves the street forecast layer (contract 2 and 5.3). Map clients poll
// it all day, but it changes only every few minutes. It is therefore built when it changes, and
// requests are served from prebuilt bytes.
//
//	feed ── Put, Remove, Clear ─▶   open ── Publish ─▶ ready ── build ─▶ snapshot ◀── Handle
//	                              not visible       not built  (one at a time)  (immutable)
//
// A document is the layer in one time zone and view: the whole layer, or one horizon. It has a body
// in each format (protobuf, JSON) and encoding (identity, gzip) that clients have requested
// recently.
//
// Streets are grouped into cells: squares of the map with up to a few hundred streets. What a view
// shows of a cell is a piece of the document. A changed street affects one cell, so the pieces of
// all others are kept. A piece is serialised and compressed on its own, the way pigz works: deflate
// blocks that end at a byte boundary and refer to nothing before them can be joined. A body is a
// list of such pieces, between the header and the checksum of one gzip member. It is sent without
// being copied. Tiles and bounding boxes are bodies too; only cells that cross the edge are
// filtered and compressed for the request.
//
// An ETag is a hash of the content, which depends on nothing but the forecasts, the time zone, the
// view and the minute. So all replicas send the same bytes with the same ETag.
//
// The builder numbers its builds, and notes for each street the build that last changed what a view
// shows of it. The changes since a version are the streets with a higher number.
//
// A build of 100,000 streets takes a few seconds of CPU time. Meanwhile, the last layer is served.
package layers
