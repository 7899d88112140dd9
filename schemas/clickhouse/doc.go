// Package clickhouse holds the archive's tables as numbered SQL files, and
// brings a server up to them.
//
// # Tables
//
// One server: `measurements`, a ReplacingMergeTree(received_at) with the
// columns, key and partitions of contract 4. The daemon inserts into it
// and everybody reads it; with FINAL a measurement that was sent again hides
// its earlier self.
//
// A cluster (Layout.Cluster is set): the same columns as
// `measurements_local`, a ReplicatedReplacingMergeTree on every host, and
// `measurements`, a Distributed table over it. The daemon inserts into the
// local table of the shard that it is connected to; everybody reads
// `measurements`. FINAL replaces within a shard only, so the traffic of one
// product instance has to stay on one shard. The servers' configuration gives
// the macros {shard} and {replica}.
//
// # Codecs
//
// Chosen on 5.5 M rows of real five-minute road traffic (two measure types a
// detector, random batch ids, jittered received_at), bytes a row after a
// merge, in all 17.9:
//
//	detector_code   LowCardinality 0.01   String 0.27
//	timestamp_*     Delta,ZSTD 0.11       DoubleDelta,ZSTD 0.15
//	value           ZSTD 0.71             Gorilla,ZSTD 0.66   Delta,ZSTD 0.89
//	batch_id        ZSTD(1) 12.3          ZSTD(3) 12.2        LZ4 16.1
//	received_at     Delta,ZSTD 3.8        DoubleDelta,ZSTD 4.7   ZSTD 5.6
//
// # Settings
//
//   - non_replicated_deduplication_window 10000: how many parts the server
//     remembers by token. An INSERT takes one place for each month that it
//     touches; see package sinks/clickhouse for how many are needed. 10000
//     entries are about 1 MB of memory and of disk.
//   - fsync_after_insert, fsync_part_directory: the daemon lets its journal go
//     once the server has acknowledged, so the acknowledgement has to survive
//     a power cut. Merged parts need no fsync: the server keeps their sources
//     for eight minutes (old_parts_lifetime).
//   - the index on received_at lets the sink find the rows of one block
//     without reading the month; it is not part of the rows.
//
// # Migrations
//
// Files are applied in the order of their numbers, and each says only what can
// be said twice (IF NOT EXISTS): ClickHouse has no transactions over DDL, so
// a run that was cut off is simply run again, and several daemons may run at
// once. What was applied stands in the table schema_migrations.
package clickhouse
