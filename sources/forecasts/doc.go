// Package forecasts feeds the street forecast layer (contract 2 and 5.3) from a compacted Kafka
// topic, a watched file or a polled ClickHouse query. It defines what a valid forecast is.
//
// One goroutine loops:
//
//	change or end of interval ─▶ read ─▶ normalise ─▶ Clear, Put or Remove ─▶ Publish
//	                              │         └─ bad record: count, report, skip
//	                              └─ error of the feed: the layer stays unchanged
//
// # Invalid input
//
// A record is one StreetForecast. If it is skipped in a topic, the previous forecast of its street
// remains. A file or a result of a query replaces all streets, so the street is missing. A remark
// reports a defect in a record that is still used.
//
//	time with a fraction of a second      truncated to the second
//	time in a zone other than UTC         converted
//	time without a zone (Z or ±hh:mm), not
//	  a real date, second 60, or year
//	  outside 1970–2261                   remark: period dropped
//	period that is empty or ends before
//	  it starts, in whole seconds         remark: period dropped
//	periods with the same start and end   remark: the last one in the record is kept
//	overlapping or unordered periods      kept, sorted by start, then end
//	speed NaN, infinite, negative or over
//	  max_speed                           remark: period dropped; if speed_valid is false, speed set to 0 instead
//	flow NaN, infinite, negative or over
//	  MaxFlow                             remark: flow set to 0 and flow_valid to false
//	timezone                              cleared: responses use the client's time zone
//	openLRcode not base64                 remark: kept (the contract does not define its encoding)
//	openLRcode not UTF-8 or over 4096 B   record skipped
//	periods, but none usable              record skipped
//	no periods                            accepted: the street has no forecast
//	more than 10,000 periods              record skipped
//	street and fromnode both 0            record skipped: the street identity is missing
//	street or fromnode outside int32      record skipped, also in protobuf, where decoders would truncate it
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
//	content missing many known streets    not used until shrink_confirm has passed
//
// # Data time
//
// A time in the future is replaced by the current time.
//
//	topic        time of the newest valid record, once a poll has reached the end of every partition;
//	             if no record has a time, the time of the first such poll
//	file         its modification time
//	ClickHouse   newest value of the column updated; without it, newest start of a period
//
// # Topics
//
// A topic that was deleted and recreated is read from its start, and replaces the whole layer. It
// is recognised by its ID, which brokers report since Kafka 2.8, or because it ends before the
// offset already reached. The layer stays unchanged until the new topic has been read to its end.
// If an unclean leader election removes records, this is not noticed if their offsets are reused
// before the next poll.
//
// Records of a transaction are used only after it has been committed. An open transaction delays
// the records after it in its partition: its first record counts as the end of the partition. If no
// other records are in the topic, the first layer waits for it. Readers see each publication as a
// whole; see type cut.
package forecasts
