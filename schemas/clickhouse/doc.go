// Package clickhouse contains the tables of the archive as numbered SQL files, and creates or
// updates them on a server.
//
// # Tables
//
// One server: `measurements`, a ReplacingMergeTree(received_at) with the columns, key and
// partitions of contract 4.2. The daemon inserts into it, and queries read it. With FINAL, a
// measurement that was sent again replaces its earlier self.
//
// A cluster (Layout.Cluster is set): the same columns as `measurements_local`, a
// ReplicatedReplacingMergeTree on every host, and `measurements`, a Distributed table over it. The
// daemon inserts into the local table of the shard that it is connected to; queries read
// `measurements`. FINAL replaces within a shard only, so all measurements of a product instance
// must be on one shard. The configuration of the servers defines the macros {shard} and {replica}.
//
// # Codecs
//
// They were chosen on 5.5 million rows of real five-minute road traffic (two measure types per
// detector, random batch ids, jittered received_at). Bytes per row after a merge, 17.9 in total:
//
//	detector_code   LowCardinality 0.01   String 0.27
//	timestamp_*     Delta,ZSTD 0.11       DoubleDelta,ZSTD 0.15
//	value           ZSTD 0.71             Gorilla,ZSTD 0.66   Delta,ZSTD 0.89
//	batch_id        ZSTD(1) 12.3          ZSTD(3) 12.2        LZ4 16.1
//	received_at     Delta,ZSTD 3.8        DoubleDelta,ZSTD 4.7   ZSTD 5.6
//
// # Settings
//
//   - non_replicated_deduplication_window 10000: the number of parts that the server remembers by token. An
//     INSERT takes one place for each month in it; package sinks/clickhouse says how many are needed. 10000
//     entries take about 1 MB of memory and of disk.
//   - fsync_after_insert, fsync_part_directory: the daemon releases its journal once the server has
//     acknowledged, so the acknowledgement must survive a power failure. Merged parts need no fsync, because
//     the server keeps their sources for eight minutes (old_parts_lifetime).
//   - The index on received_at lets the sink find the rows of one block without reading the whole month. It
//     is not part of the rows.
//
// # Migrations
//
// Files are applied in the order of their numbers. Every statement can be repeated (IF NOT EXISTS),
// because ClickHouse has no transactions over DDL: an interrupted run is simply repeated, and
// several daemons may run at once. The table schema_migrations lists what was applied.
package clickhouse
