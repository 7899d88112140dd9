// Package forecasts feeds the street forecast layer (contract 2,
// contract 5.3) from a compacted Kafka topic, a watched file or a polled
// ClickHouse query. It says what a good forecast is; the layer, which takes
// them, is handed in.
//
// One goroutine goes round:
//
//	something changed, or time is up ─▶ read ─▶ normalise ─▶ Put, Remove or Replace ─▶ Publish
//	                                     │         └─ a bad record: count, report, skip
//	                                     └─ the feed fails: the layer stays as it is
//
// # What becomes of input that is not as it should be
//
// A record is one StreetForecast. A skipped one leaves the earlier forecast of
// its street in place. A remark is counted and reported like a skipped record,
// but the rest of the record is taken.
//
//	time with a fraction of a second      cut down to the second
//	time in another zone than UTC         converted; the layer has seconds and Z only
//	time without a zone (Z or ±hh:mm), no
//	  real date, second 60, year not
//	  1970–2261                           remark: the period is left out
//	period that is empty or ends before
//	  it starts, in whole seconds         remark: the period is left out
//	two periods with the same start, end  remark: the later in the record counts
//	periods that overlap, or out of order stay, sorted by start, then end
//	speed NaN, infinite, below 0 or over
//	  MaxSpeed                            remark: the period is left out; where speed_valid is false the speed becomes 0 instead
//	flow NaN, infinite, below 0 or over
//	  MaxFlow                             remark: flow becomes 0 and flow_valid false (it is reserved: it costs no speed)
//	timezone                              emptied: it is that of the client who asks
//	openLRcode that is no base64          remark: it stays as it is (its encoding is not specified), and so does the street
//	openLRcode that is no UTF-8, or over
//	  4096 bytes                          record skipped: no protobuf could carry it, or nobody wants to
//	periods, but not one usable           record skipped
//	no period at all                      taken: nothing is forecast for the street
//	more than 10,000 periods              record skipped
//	street and fromnode both 0            record skipped: what a message without identity looks like
//	street or fromnode outside int32      record skipped, in protobuf too, where decoders would cut the number
//	value that is no StreetForecast       record skipped
//	key that is not street:fromnode in
//	  plain decimal digits                record skipped; compaction would not find its predecessor
//	key that names another street than
//	  its value                           record skipped
//	null value (tombstone)                the street is removed; an empty value is none, it is a bad record
//	unknown fields or members             ignored
//	file or answer without one good
//	  record, or cut off                  not taken: the last good one stays; forecasts that have ended leave by themselves
//	protobuf or NDJSON cut off between
//	  two records                         taken, since it cannot be told: write beside the file, then rename
//	street twice in a file or an answer   the later one counts; rows of a query are periods, all of them count
//	street in two partitions of a topic   the record with the later timestamp counts, of two with the same that in the higher partition
//	batch over 256 MiB, decompressed      the partition is not read any further, and readiness says so
//	topic that holds more than MaxBytes   record of a street that is new skipped, so that memory is bounded
//
// # When a feed has confirmed its data
//
//	topic        when a poll begins that reaches the end of every partition
//	file         at the time of its last modification: looking at a file that nobody writes confirms nothing
//	ClickHouse   at each answer with a good record
//
// A topic that is deleted and made anew is read from its start, and replaces all, as
// soon as it is seen: by its identifier (brokers from 2.8 on have one), or because
// it ends before the place that was read up to. Until it has been read to its
// end the layer stays as it is. Where an unclean election takes records back, and
// others have their offsets before the next poll, those are not seen.
//
// What is in a transaction is taken when it is committed, never when it was
// aborted. One that is open holds back what follows it in its partition, and counts as
// the partition's end.
package forecasts
