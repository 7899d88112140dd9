// Package clickhouse creates and updates the tables of the archive on a server. The tables are
// defined in numbered SQL files.
//
// # Tables
//
// On a single server: `measurements`, a ReplacingMergeTree(received_at) with the columns, key and
// partitions of contract 4.2. The daemon inserts into it, and queries read it. With FINAL, a
// measurement that was sent again replaces the earlier one.
//
// In a cluster (Layout.Cluster is set): `measurements_local`, a ReplicatedReplacingMergeTree with
// the same columns on every host, and `measurements`, a Distributed table over it, for inserts and
// queries. FINAL replaces within a shard only, so the sharding key (Layout.ShardingKey) puts all
// versions of a measurement on one shard. The same applies to derived tables, which each shard
// derives from the rows that it stores. The configuration of the servers defines the macros {shard}
// and {replica}. Adding a shard changes the shard of most detectors: see README.md.
//
// # Derived tables
//
// README.md describes them for users. They are not materialized views of the archive. A
// materialized view would add 40 ms (by_time) or 120 ms (last) of CPU to an insert of 98,000 rows,
// which takes 50 ms without it, and would lack the rows of a block whose insert was interrupted
// between the table and the view. Instead, the daemon records each delivered block as a row in
// `blocks`. Every few seconds it executes the statements of Layout.Derive for all pending blocks,
// and then marks the blocks as derived. Each statement can be repeated, for example after a crash:
// `last` keeps a maximum, `by_time` the latest received_at of a key, and `hours` is computed again
// from all rows of the affected hours.
//
// Refreshable materialized views are not used, because they cannot determine which rows are new:
// with several daemons, received_at is not in the order of insertion. Projections are not used,
// because FINAL does not read them.
//
// # Order
//
// The archive is ordered by detector, then time: the history of a detector is one range, and
// adjacent rows compress well (detector_code 0.03 bytes per row, value 2.1). But the rows of an
// interval are in as many places as there are detectors. In by_time they are in one place. In
// by_time, detector_code takes 6.2 bytes per row as LowCardinality, because 14,000 detectors exceed
// the dictionary of 8192 entries. As String it takes 1.0 bytes with ZSTD(1), 0.49 with ZSTD(3, 22)
// and blocks of 1 MB, and 0.13 with blocks of 4 MB, in which the list of detectors repeats. The
// other columns have small blocks: with blocks of 4 MB for all columns, reading 5 minutes takes 18
// ms instead of 12 ms. value takes 2.0 bytes as Float64 with ZSTD and 1.3 as thousandths.
//
// hours has a row for each hour, with a column for each quarter of the hour. The view
// `measurements_15m` reads it four times, each time only the requested time range. With arrays
// instead of columns, as before migration 21, the view would have to read all hours to find the
// start of a quarter. hours takes 0.9 bytes for each row of the archive.
//
// Tables named forecaster_… contain what the forecaster has learned from the archive. Without them,
// the forecaster starts learning from scratch. In a cluster, every host has all of their rows.
//
// # Codecs
//
// The codecs were chosen with 5.5 million rows of real five-minute road traffic (two measure types
// per detector, random batch ids, jittered received_at). Bytes per row after a merge, 17.9 in
// total:
//
//	detector_code   LowCardinality 0.01   String 0.27
//	timestamp_*     Delta,ZSTD 0.11       DoubleDelta,ZSTD 0.15
//	value           ZSTD 0.71             Gorilla,ZSTD 0.66   Delta,ZSTD 0.89
//	batch_id        ZSTD(1) 12.3          ZSTD(3) 12.2        LZ4 16.1
//	received_at     Delta,ZSTD 3.8        DoubleDelta,ZSTD 4.7   ZSTD 5.6
//
// With batches of all detectors in a fixed order (8.0 million rows of `trafficctl generate`):
//
//	batch_index     ZSTD 1.08             Delta,ZSTD 0.07        DoubleDelta,ZSTD 0.18
//	batch_id        ZSTD(1) 0.46          ZSTD(1) in blocks of 1 MB, where the batches of many detectors repeat, 0.08
//	received_at     Delta,ZSTD 0.16       the same in blocks of 1 MB at most 0.05
//	value           ZSTD(1) 2.01          ZSTD(3) 1.96           ZSTD(6) 1.83   in blocks of 1 MB 1.78   Gorilla,ZSTD 2.32   FPC,ZSTD 2.62
//	quality         ZSTD(1) 0.72          ZSTD(3) 0.71           ZSTD(6) 0.43   in blocks of 1 MB 0.40
//
// A row of these batches takes 5.3 bytes in all tables together: 2.7 in the archive, 1.6 in
// by_time, 0.9 in hours, 0.2 in last (`make bench BENCH=archive`).
//
// # Settings
//
//   - non_replicated_deduplication_window 10000: the number of parts that the server remembers by
//     token. An INSERT takes one entry for each of its months; package sinks/clickhouse explains
//     how many are needed. 10000 entries take about 1 MB of memory and of disk.
//   - fsync_after_insert, fsync_part_directory: the daemon releases rows from its journal once the
//     server has acknowledged them, so acknowledged rows must survive a power failure. Merged parts
//     need no fsync, because the server keeps their sources for eight minutes (old_parts_lifetime,
//     pinned to 480 s).
//   - The index on received_at lets the sink find the rows of one block without reading the whole
//     month.
//
// # Migrations
//
// Files are applied in the order of their numbers, which may have gaps. Every statement can be
// repeated (IF NOT EXISTS), because ClickHouse has no transactions for DDL: an interrupted run is
// repeated, and several daemons may migrate at the same time. The table schema_migrations lists the
// applied migrations.
//
// In a cluster they are applied to each server over its own connection, not with ON CLUSTER. So a
// dead server does not delay the others, the cluster does not need a distributed DDL queue, and the
// next run updates a server that is new or has lost its disk. Such a server creates its tables with
// the definitions of another server (join). The table that lists its applied migrations,
// schema_migrations_local, is not replicated.
package clickhouse
