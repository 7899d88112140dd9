// Package forecasts feeds the street forecast layer (contract 2 and 5.3) from a compacted Kafka
// topic, a watched file or a polled ClickHouse query. It also validates and normalises them.
//
// One goroutine loops:
//
//	change or end of interval ─▶ read ─▶ normalise ─▶ Clear, Put or Remove ─▶ Publish
//	                              │         └─ bad record: count, report, skip
//	                              └─ feed error: the layer stays unchanged
//
// # Invalid input
//
// A record is one StreetForecast. Contract 2 lists the defects for which a record is skipped or
// corrected. A remark reports a defect in a record that is still used. In addition:
//
//	overlapping or unordered periods   kept, sorted by start, then end
//	openLRcode that is not base64      remark: kept, because the contract does not define its encoding
//	no periods                         accepted: the street has no forecast
//	empty value in a topic             record skipped; only a null value (tombstone) removes a street
//	unknown fields or members          ignored
//	truncated file or query result     not used: the last valid content remains until its periods end;
//	  or without a valid record          protobuf and NDJSON that end between two records look complete
//	duplicate street in a file         the last forecast is kept
//	street in two partitions           the record with the later timestamp is kept; if equal, the one in the
//	                                     higher partition
//	batch over 256 MiB, decompressed   reading of the partition stops; the readiness check reports it
//	topic larger than max_bytes        records of new streets are skipped, to bound memory
//	record at which the daemon panics  skipped, counted and reported like an invalid one
//
// kafka-go decompresses all batches of a response before it returns any. A response has at most
// fetchBytes, or one larger batch, but nothing limits the sum of its batches after decompression.
// Producers of the topic could exhaust the daemon's memory, so they must be trusted.
//
// # Topics
//
// A publication is a transaction on one partition, and is read to its end before it is shown. If it
// is in several partitions, each may be shown without the others. Records without a transaction are
// shown at the end of the poll that reads them.
//
// A topic that was deleted and recreated is read from its beginning, and then replaces the whole
// layer. It is recognised by its ID, which brokers have reported since Kafka 2.8, or because it
// ends before the offset already reached. The layer stays unchanged until the new topic has been
// read to its end. If an unclean leader election loses records and their offsets are reused before
// the next poll, the loss is not detected.
//
// An open transaction delays the records after it in its partition: its first record counts as the
// end of the partition. If the topic has no other records, the first layer is not published until
// the transaction ends.
package forecasts
