// Package kafkalog implements a journal in a Kafka topic that replicas share, so that none of them
// keeps essential data on its own disk. It implements pipeline.Journal, and pipeline.Source for
// each partition.
//
//	Enqueue ─▶ queue of the partition ─▶ one produce request for the waiting frames, acks=all ─▶ Wait returns
//	                                                              │
//	         trafficd.log ◀───────────────────────────────────────┘   one record per batch, keyed by product instance
//	              │
//	              ├─ group trafficd.clickhouse ─▶ one pipeline.Delivery for each assigned partition
//	              └─ group trafficd.kafka      ─▶ the same
//
// The key is the product instance, not the client: all measurements of a detector are in one
// partition and delivered in order, so a correction wins regardless of the client and the replica
// it came through. Therefore the number of partitions must not change while frames are undelivered.
// It is a setting, and a topic with a different number is rejected.
//
// # Writing
//
// A failed request is retried until produceTimeout has passed since its oldest frame was queued.
// Retries may store a frame several times; readers drop the duplicates by their Batch-Id, so no
// idempotent producer is needed. If all attempts fail, the frames settle with durable.ErrVoided
// (the client gets 503) or, if an attempt may have stored them, with durable.ErrUnknown (the client
// gets no response and retries with its Idempotency-Key). Nothing is sent after produceTimeout, so
// a replica that resumes after a pause does not add old frames. A frame that exceeds
// max.message.bytes settles with durable.ErrTooLarge at once: other frames of its partition must
// not wait for it.
//
// # Reading: a function of the log
//
// What a reader returns for an offset depends only on the log up to that offset, so every owner of
// a partition reads the same frames:
//
//   - The time of a frame is the highest received_at up to and including that frame. A row is
//     dropped if an earlier frame has a row with the same Batch-Id and index, and the times of the
//     two frames differ by at most the idempotency window. Normally all rows of a frame are
//     dropped, or none. If the registries of two replicas differ, each row accepted in a 207 still
//     arrives once.
//   - The received_at of a frame with rows is raised to at least 1 ns after that of the previous
//     such frame. So the archive orders versions of a measurement as the log does, whatever the
//     replicas' clocks say. If a clock is ahead, the received_at of later frames is ahead, too;
//     brokers reject records that are more than message.timestamp.after.max.ms ahead.
//
// A record that is not an intact frame is skipped, and has no effect on the frames after it; the
// delivery writes it to the dead-letter file. A header of each record has the version and a
// checksum of its frame (headerOf). So an intact frame of a newer version is recognised: the
// partition waits until the replica is upgraded.
//
// A new owner of a partition reads the last received_at from the cursor and the Batch-Ids of the
// idempotency window from the log, starting with the first record whose timestamp is in the window
// (ListOffsets). All later frames are in the window, because times never decrease. It keeps the
// Batch-Ids while the process runs, even if the partition moves away and returns.
//
// # Ownership
//
// A delivery's cursor, with its plan and the sink's state, is stored as the metadata of the group's
// offset commit. Compressed, it must not exceed the brokers' offset.metadata.max.bytes (4 KiB by
// default). A plan is committed before the first attempt to deliver its block. The group
// coordinator rejects commits from former generations, so all owners agree on the block in
// progress: a new owner repeats the same rows with the same plan, and the sink finds out what an
// earlier owner stored. A commit without a response may arrive late and overwrite later ones.
// Therefore its sender leaves the group, and the coordinator rejects the late commit.
//
// A former owner that resumes after a pause of minutes does no harm:
//
//   - It cannot move the cursor, so it cannot begin another block. If the last commit is older than
//     half the session timeout, Confirm commits again before an attempt.
//   - If it was paused during an attempt, the attempt repeats a block that the next owner has since
//     finished. ClickHouse drops the block by its deduplication token. The server remembers the
//     tokens of the last 10,000 parts; if there were more, the rows exist twice until a merge, and
//     FINAL returns them once, because they are equal. Kafka drops the block as a duplicate: its
//     producer ID, epoch and sequences are those of the plan, the next owner continues with a
//     different producer ID, and brokers remember a producer for producer.id.expiration.ms (a day).
//
// # What is not covered
//
//   - The topic of offset commits, __consumer_offsets, needs the same replication factor as this
//     one. If the commits are lost, deliveries start again at the oldest frame. Brokers delete the
//     commits of a group without members after offsets.retention.minutes, which must not be less
//     than the retention of the log.
//   - If brokers forget a producer while its block is in doubt, and the former and the next owner
//     look the block up at the same moment, both may send it.
//   - The topic's retention deletes frames whether or not they are delivered. The batches of
//     a partition are rejected (durable.ErrFull) while a group is behind in it by more than four
//     fifths of the retention. The last
//     fifth keeps the Batch-Ids of the idempotency window before the oldest undelivered frame.
package kafkalog
