// Package forecasts feeds the street forecast layer (contract 2 and 5.3) from a compacted Kafka
// topic, a watched file or a polled ClickHouse query. It defines what a valid forecast is.
//
// One goroutine loops:
//
//	change, or interval over ─▶ read ─▶ normalise ─▶ Clear, Put or Remove ─▶ Publish
//	                             │         └─ bad record: count, report, skip
//	                             └─ the feed fails: the layer stays unchanged
//
// # Invalid input
//
// A record is one StreetForecast. If it is skipped, the previous forecast of its street remains. A
// remark is a defect of a record that is used nevertheless.
//
//	time with a fraction of a second      truncated to the second
//	time in another zone than UTC         converted
//	time without a zone (Z or ±hh:mm), not
//	  a real date, second 60, year not
//	  1970–2261                           remark: period dropped
//	period that is empty or ends before
//	  it starts, in whole seconds         remark: period dropped
//	periods with the same start and end   remark: the last one in the record is kept
//	overlapping or unordered periods      kept, sorted by start, then end
//	speed NaN, infinite, negative or over
//	  max_speed                           remark: period dropped; with speed_valid false the speed becomes 0 instead
//	flow NaN, infinite, negative or over
//	  MaxFlow                             remark: flow becomes 0 and flow_valid false
//	timezone                              cleared: responses have the time zone of the client
//	openLRcode not base64                 remark: kept (the contract does not define its encoding)
//	openLRcode not UTF-8 or over 4096 B   record skipped
//	periods, but none usable              record skipped
//	no periods                            accepted: the street has no forecast
//	more than 10,000 periods              record skipped
//	street and fromnode both 0            record skipped: the street identity is missing
//	street or fromnode outside int32      record skipped, also in protobuf, whose decoders truncate
//	value that is not a StreetForecast    record skipped
//	key that is not street:fromnode in
//	  plain decimal digits                record skipped: compaction would never remove it
//	key that does not match its value     record skipped
//	null value (tombstone)                the street is removed; an empty value is a bad record
//	unknown fields or members             ignored
//	file or result without a valid record,
//	  or truncated                        not used: the last valid content remains until its periods end
//	protobuf or NDJSON truncated between
//	  two records                         used, because it looks complete: write to a temporary file and rename it
//	duplicate street in a file            the last forecast is kept
//	rows of a query with the same street  all are used: each row is a period
//	street in two partitions of a topic   the record with the later timestamp is kept; if equal, the one in the higher partition
//	batch over 256 MiB, decompressed      reading of the partition stops; readiness reports it
//	topic larger than max_bytes           records of new streets are skipped, to bound memory
//	content that lacks many streets       not used until shrink_confirm has passed
//
// # Time of the data
//
// A time in the future counts as now.
//
//	topic        time of the newest valid record, once a poll has reached the end of every partition;
//	             time of the first such poll if no record has one
//	file         its modification time
//	ClickHouse   newest value of the column updated; without it, newest start of a period
//
// # Topics
//
// A topic that was deleted and recreated is read from its start, and replaces everything. It is
// recognized by its identifier, which brokers report since Kafka 2.8, or because it ends before the
// offset that was reached. The layer stays unchanged until the new topic has been read to its end.
// The removal of records by an unclean leader election is not noticed if their offsets are reused
// before the next poll.
//
// Records of a transaction are used when it is committed, never when it is aborted. An open
// transaction delays the records after it in its partition, and counts as the end of the partition.
// Readers see each publication as a whole; see type cut.
package forecasts
