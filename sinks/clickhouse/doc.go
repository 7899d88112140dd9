// Package clickhouse archives accepted measurements: it writes blocks of rows to ClickHouse over
// the native protocol, each row exactly once (promises 1 and 2 of package pipeline).
//
// # Blocks, groups, tokens
//
// Plan takes a block from the front of the offered rows: BlockRows rows, or more if the rows are
// from so many months that parts would be small. The plan identifies the block by its number of
// rows, and by the batch ID, row number and received_at of its first and last rows. No two blocks
// have the same plan: a batch ID may occur again, but received_at strictly increases within a
// daemon.
//
// The server writes one part for each month of an INSERT. Because a block may contain any number of
// months, Deliver divides it into groups of at most maxMonths months and sends one INSERT for each
// group. The division depends only on the block's rows and keeps the order within a month. The
// deduplication token of a group is the plan and the group's number, so a retry repeats the tokens
// of the first attempt, even after a restart, and even if it sends only some rows of a group. The
// server remembers the token for each month separately. It acknowledges an INSERT after fsync (see
// the settings of the table in schemas/clickhouse).
//
// No two groups share a month, and rows of different months cannot replace each other. So groups
// are sent concurrently, in any order. A block is delivered when all of its groups are delivered.
//
// # Blocks in doubt
//
// A block is in doubt if its rows were sent but not acknowledged. After a restart, every planned
// block is in doubt. A token alone is not enough for a safe retry:
//
//   - The server remembers a limited number of tokens, and does not fsync them: after a power
//     failure a part may exist without its token. A retry would duplicate the rows.
//   - The server writes the token before it activates the part. If it is killed in between, the
//     token exists and the rows do not. The server would ignore a retry, losing the rows.
//   - The parts of an INSERT are activated month by month, and a block may consist of several
//     INSERTs. After a failure, the table may contain only some of the block's months.
//
// Therefore every in-doubt block is resolved, however old it is:
//
//  1. Look up which rows are in the table, by (batch_id, batch_index, received_at), among the rows
//     of the block's months that were received in the block's time range.
//  2. If none is missing, the block is done.
//  3. Send the missing rows of each group with the group's token. If the earlier attempt is still
//     running on the server, the first of the two wins, because the server checks the token and
//     activates the part atomically.
//  4. Look up again. If rows are still missing, the server has their token without the rows: send
//     them with a different token and look up again. The number of rounds is limited.
//
// # Vanished rows
//
// Rows that are missing after the last round are deleted or hidden as soon as they are inserted: by
// a row policy for the daemon's user, an operator's TTL or a mutation. They are dead-lettered, and
// the rest of the block counts as delivered. Before each round, an error stops the delivery if the
// user sees no row of the table at all: the rows would only be inserted again. A policy that hides
// some rows leaves up to maxRounds equal copies, of which FINAL and the derived tables show one.
//
// Rows that are older than retention_days when they are inserted count as delivered even if the
// table's TTL has deleted them. A block that is not in doubt is not looked up, so what the server
// deletes or hides after its acknowledgement is not noticed.
//
// These tests count the rows without FINAL, which would hide duplicates: TestFaults (connections
// cut at any byte, a paused server, kill -9 during inserts over 30 months), TestRotatingMonths
// (connections cut between two INSERTs of a block, and one INSERT rejected) and TestArchive/doubt
// (each way in which the token and the rows can disagree).
//
// # Replaced rows
//
// When ReplacingMergeTree merges two rows with the same key, it drops the earlier one, and a lookup
// no longer finds it. What the sink does depends on the row that replaced it:
//
//   - A row of the same block: both rows were in one part, so if the table has the replacement, the
//     dropped row counts as present. Sending the dropped row again could replace the later one,
//     because the items of one batch have the same received_at.
//   - A row of a later block of this daemon: impossible, because blocks are delivered in order.
//   - A row that another daemon received later: the dropped row is sent again, and FINAL and merges
//     drop it again, because received_at decides.
//
// # The deduplication window
//
// Because every retry starts with a lookup, the window only needs to cover the time for which an
// attempt can continue on the server after the daemon has given up on it: write_timeout + 5 s, the
// max_execution_time of the INSERT. The server counts the window in parts:
//
//	window ≥ daemons × parts per second of each × (write_timeout + 5 s)
//
// The defaults, a window of 10000 and a write_timeout of 60 s, allow 150 parts a second. For more,
// raise non_replicated_deduplication_window (in a cluster replicated_deduplication_window).
//
// # Cluster
//
// With cluster set, blocks go to the live servers in turn, and the Distributed table of a server
// sends each row to its shard (schemas/clickhouse). Tokens work as on one server: each shard writes
// them to Keeper atomically with the part.
//
// An insert is acknowledged when quorum replicas of each shard have its rows, by default the
// majority. While fewer are alive, all live replicas suffice, so that a shard of two replicas does
// not stop when one fails. If replicas do not confirm within quorumTimeout, the insert fails, and
// the block is in doubt.
//
// A lookup asks only the live servers: those that responded to the last poll. A row is delivered
// once quorum replicas have it. While fewer have it, the block is retried, but the row is not sent
// again. Rows that no replica has are sent with the first token, so that Keeper drops them if an
// earlier attempt succeeds first. If they are still missing afterwards, the earlier part is on a
// dead replica or on a lost disk. After deadAfter, or immediately if all servers are live, the rows
// are sent with a different token. If the dead replica returns with its disk, the table contains
// the rows twice until a merge. The copies are equal, so FINAL and the derived tables show one.
//
// TestCluster kills a replica with the only copy of a block, deletes its disk, pauses it, and sends
// corrections through two daemons to two shards.
//
// # Permanent rejections
//
// Only errors that a row's value can cause (in a CHECK constraint, or in the expression of a column
// that an operator added) are permanent, and only if no group failed for another reason.
//
// Rows of a rejected block may still be in the table: the rows of other groups or months, or all
// rows if a view on the table raised the error. With the rejection, Deliver therefore returns a
// state that marks the suspect range: all rows up to the end of the rejected block. If a block
// begins in this range, its plan records the range, and the block is in doubt from its first
// attempt, like a block after a restart: only the rows that a lookup does not find are sent. A
// single row is rejected only after a lookup has not found it.
//
// A search (search.go) finds such rows in a rejected group without halving the block: it inserts
// the group, in chunks, into a temporary table with the archive's columns and constraints that
// stores nothing. The error of a violated constraint names a row; for other errors, the search
// halves the chunk. A row is refused only if the temporary table refuses it alone. The group is
// then sent without these rows, with its token. Afterwards a lookup must find all rows of the block
// but the refused ones: those that it does not find are sent like those of an in-doubt block. The
// block is halved if the search fails or finds nothing, if more than maxRefused rows are refused,
// or if the server then still rejects the group.
//
// A materialized view on the table receives each block once unless the view fails: rows that are in
// the table are not sent again for the view.
package clickhouse
