// Package clickhouse is the archive: it writes blocks of accepted rows to
// ClickHouse, each row once (promises 1 and 2), over the native protocol.
//
// # One block, one INSERT, one token
//
// Plan cuts a block off the offered rows: at most block_rows rows in at most
// max_partitions months. The plan is the block's name, made of its number of
// rows and of the batch id and row of its first and its last one; these never
// come again. It is the INSERT's deduplication token as well. Settings of the
// statement see to it that the server makes one block of it, neither joined
// nor cut; the server then writes one part for each month, and remembers the
// token for each month on its own. Acknowledged means fsynced (settings of
// the table, see schemas/clickhouse).
//
// # Doubt
//
// A block is in doubt once its rows were on their way and no acknowledgement
// came: the connection broke, time ran out, the server raised an error, or the
// daemon was started anew and does not know. A token alone does not settle it:
//
//   - The server remembers a number of tokens only, and does not fsync them: a
//     power cut may leave a part and take its token. The repeat would double
//     the rows.
//   - The server writes the token down before it puts the part in its place.
//     If it is killed in between, the token stays and the rows do not. The
//     repeat would be swallowed, and the rows lost.
//   - A block over several months is put in place month by month, and may be
//     cut off in the middle.
//
// So a block in doubt is resolved, at every age:
//
//  1. Look which rows are in the table, by (batch_id, batch_index), among the
//     rows of the block's months that were received in the block's time.
//  2. None missing: done.
//  3. Send the missing ones with the block's token. If the earlier attempt is
//     still at work in the server, the token holds for whoever comes first;
//     the check and the part's appearance are one step there.
//  4. Look again. What is missing now was swallowed by a token without rows:
//     send it with the token and a suffix, and look again; some rounds at most.
//
// TestFaults (connections cut at any byte, a server that stands still, kill -9
// in inserts over 30 months) and TestArchive/doubt (each way in which token
// and rows can disagree) count the rows as inserted, without FINAL.
//
// # What a merge replaces
//
// ReplacingMergeTree drops a row when a later one with the same key is merged
// with it. To the look such a row is missing. There are three cases:
//
//   - Replaced by a row of the same block. Both were in one part, so the other
//     one is there; the row counts as there and is not sent. This matters: two
//     items of one batch have the same received_at, and the earlier one, sent
//     again, would come to stand above the later one.
//   - Replaced by a later block of this daemon: cannot be, the next block is
//     delivered after this one. (A daemon that lost its cursors repeats old
//     blocks. Then the next case holds.)
//   - Replaced by a row that another replica, or this one, received later: the
//     row is sent again, and loses again under FINAL and in merges, since
//     received_at decides.
//
// # The deduplication window
//
// As a repeat looks first, the window has to last only as long as an attempt
// can go on in the server after the daemon gave it up: about write_timeout + 5 s,
// at which the server is told to end the statement. It is counted in parts:
//
//	window ≥ daemons × blocks per second of each × months per block × (write_timeout + 5 s)
//
// With the defaults of 10000 and 65 s that is enough for 150 parts a second:
// 75 daemons that each write one block a second over two months, or 3 that
// write one over 50. Beyond that set non_replicated_deduplication_window (in
// a cluster replicated_deduplication_window) higher.
//
// # Cluster
//
// With cluster set, rows go into the local table of the replica that answers
// first, never through the Distributed one; all addresses have to be replicas
// of one shard. Keeper notes a token and its part in one step, so there is no
// token without rows, and one round is enough. Before a look the replica
// catches up (SYSTEM SYNC REPLICA … LIGHTWEIGHT, which has to be granted).
// quorum asks for more replicas before the acknowledgement; a block in doubt
// that the look finds is not waited for again.
//
// # Final refusals
//
// classify alone decides, over a table of the server's error codes. Only codes
// that a row's value can cause (a CHECK constraint, the expression of a column
// that an operator added) are final, and only after a look that found nothing
// of the block: a view behind the table may raise the same codes after the
// rows were written.
//
// # Limits
//
// A materialized view on the table gets each block once as long as it does not
// fail: a block whose rows are in the table is not sent again for a view.
package clickhouse
