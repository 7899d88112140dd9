// Package clickhouse creates and updates the tables of the archive on a server. The tables are
// defined in numbered SQL files.
//
// # Tables
//
// On a single server: `measurements`, a ReplacingMergeTree(received_at) with the columns, key and
// partitions of contract 4.2, for inserts and queries. With FINAL, a measurement that was sent
// again replaces the earlier one.
//
// In a cluster (Layout.Cluster is set): `measurements_local`, a ReplicatedReplacingMergeTree with
// the same columns on every host, and `measurements`, a Distributed table over it, for inserts and
// queries. FINAL replaces rows within a shard only, so the sharding key (Layout.ShardingKey) puts
// all versions of a measurement on one shard. Each shard computes its derived tables from its own
// rows. The servers' configuration defines the macros {shard} and {replica}. Adding a shard moves
// most detectors to another shard: see deployments/README.md.
//
// # Derived tables
//
// README.md describes them for users. They are not materialized views of the archive: views would
// use more CPU time than the insert itself, and would lack the rows of a block whose insert was
// interrupted between the table and the view. Instead, the daemon records each delivered block as a
// row in `blocks`. Every few seconds it executes the statements of Layout.Derive for all pending
// blocks, and then marks the blocks as derived. Each statement is idempotent, so it can be
// repeated, for example after a crash: `last` keeps a maximum, `by_time` keeps the row with the
// latest received_at for each key, and `hours` is computed again from all rows of the affected
// hours.
//
// Refreshable materialized views cannot determine which rows are new: with several daemons, rows
// are not inserted in the order of received_at. Projections are not an option either, because
// queries with FINAL do not use them.
//
// # Order
//
// The archive is ordered by detector, then time: the history of a detector is one range, and
// adjacent rows compress well. But the rows of one interval are scattered, one place per detector;
// in by_time, they are adjacent. Its detector_code is a String with ZSTD in blocks of 4 MB, in
// which the list of detectors repeats: LowCardinality would take almost 50 times the space, because
// 14,000 detectors exceed its dictionary of 8192 entries. The other columns have small blocks,
// because large ones would slow down reading a 5-minute interval.
//
// hours has a row for each hour, with a column for each quarter of the hour. The view
// `measurements_15m` reads it four times, each time only the requested time range. With arrays
// instead of columns, the view would have to read all hours to find the start of a quarter.
//
// Tables named forecaster_… contain what the forecaster has learned from the archive. Without them,
// it starts learning from scratch. In a cluster, every host has all of their rows.
//
// # Codecs
//
// The codecs of the archive were chosen by measuring 5.5 million rows of real five-minute road
// traffic data (two measure types per detector, random batch IDs, jittered received_at). Bytes per
// row after a merge, 17.9 in total:
//
//	detector_code   LowCardinality 0.01   String 0.27
//	timestamp_*     Delta,ZSTD 0.11       DoubleDelta,ZSTD 0.15
//	value           ZSTD 0.71             Gorilla,ZSTD 0.66   Delta,ZSTD 0.89
//	batch_id        ZSTD(1) 12.3          ZSTD(3) 12.2        LZ4 16.1
//	received_at     Delta,ZSTD 3.8        DoubleDelta,ZSTD 4.7   ZSTD 5.6
//
// If every batch lists all detectors in the same order, a row takes 5.3 bytes across all tables:
// 2.7 in the archive, 1.6 in by_time, 0.9 in hours, 0.2 in last (`make bench BENCH=archive`).
//
// # Settings
//
//   - non_replicated_deduplication_window 10000: the number of parts whose tokens the server
//     remembers. An INSERT uses one entry for each month that it contains; package sinks/clickhouse
//     explains how many are needed.
//   - fsync_after_insert, fsync_part_directory: the daemon deletes rows from its journal once the
//     server has acknowledged them, so acknowledged rows must survive a power failure. Merged parts
//     need no fsync, because the server keeps the source parts for eight minutes
//     (old_parts_lifetime).
//   - The index on received_at lets the sink find the rows of one block without reading the whole
//     month.
//
// # Migrations
//
// Files are applied in numeric order. ClickHouse has no transactions for DDL, so every statement is
// idempotent (IF NOT EXISTS): an interrupted run is simply repeated, and several daemons may
// migrate at the same time. The table schema_migrations lists the applied migrations. If a table
// was dropped, ForgetDropped empties that list, and all migrations are applied again. If only views
// were dropped, those from the first that creates one of them on are.
//
// In a cluster they are applied to each server over its own connection, not with ON CLUSTER. So a
// dead server does not delay the others, and the next run updates a server that is new or has lost
// its disk. Such a server copies its table definitions from another server (see join). Its list of
// applied migrations, schema_migrations_local, is not replicated.
package clickhouse
