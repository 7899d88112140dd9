// Package kafkalog is a journal in a Kafka topic: replicas that share it keep no essential data on
// their own disks. It implements pipeline.Journal, and pipeline.Source for each partition.
//
//	Enqueue ─▶ queue of the partition ─▶ one produce request at a time, with all that waits, acks=all ─▶ Wait returns
//	                                                              │
//	         trafficd.log ◀───────────────────────────────────────┘   one record per batch, keyed by product instance
//	              │
//	              ├─ group trafficd.clickhouse ─▶ one pipeline.Delivery for each assigned partition
//	              └─ group trafficd.kafka      ─▶ likewise
//
// The key is the product instance, not the client: all measurements of a detector are in one
// partition, so they are delivered in order, and a correction wins whichever client and replica it
// came through. Therefore the number of partitions must not change while frames wait, and is a
// setting that the topic must agree with.
//
// # Writing
//
// kafka-go has no idempotent producer, and none is needed. A request without a response is repeated
// until ProduceTimeout after its oldest frame was queued, and may have stored its frames several
// times; readers drop the second frame with the same Batch-Id, which every frame has. A frame whose
// last attempt has no response settles with journal.ErrUnknown (the client gets no response and
// retries with its Idempotency-Key), one that no attempt can have stored with journal.ErrVoided
// (503). Nothing is sent after ProduceTimeout, so a replica that wakes up after a pause does not
// add old frames.
//
// # Reading: a function of the log
//
// What a reader returns for an offset depends only on the log before it, so each owner of a
// partition reads the same:
//
//   - The time of a frame is the highest received_at up to it. A row is dropped if an earlier frame
//     has it with the same Batch-Id and index, and that frame's time is at most the idempotency
//     window before. Normally that is all rows or none; if the registries of two replicas differed,
//     each row that was accepted in a 207 arrives once.
//   - received_at of a frame with rows is raised to at least 1 ns after that of the previous one.
//     So the version of a replacement in the archive follows the log, whatever the clocks of the
//     replicas say. A clock that is ahead raises received_at of later frames to its own; brokers
//     refuse records that are more than message.timestamp.after.max.ms ahead.
//
// An owner takes the last received_at from the cursor, and the Batch-Ids from the log: the first
// record with a timestamp of the window's start and everything after it (ListOffsets). That is
// exact, as the running maximum passes a time at the first record with that timestamp. It reads the
// window once, at about the speed of the brokers' disks, and keeps it while the process runs, even
// if the partition moves away and returns.
//
// # Ownership
//
// The cursor of a delivery, with its plan and the sink's state, is the metadata of the group's
// offset commit, compressed, at most offset.metadata.max.bytes (4 KiB) of the brokers. A plan is
// committed before the first attempt of its block. The group coordinator refuses commits of former
// generations, so all owners agree on the block in progress: a new owner repeats the same rows with
// the same plan, and the sink finds out what an earlier owner stored. A commit without a response
// may still be on its way, and would undo later ones: the owner then leaves the generation, which
// fences it.
//
// A former owner that wakes up after minutes changes nothing:
//
//   - It cannot move the cursor, and so never begins another block. Confirm commits again before an
//     attempt if the last commit is older than half a session.
//   - If it was paused between that and the end of an attempt, the attempt continues with the block
//     that the next owner inherited and has finished by now. ClickHouse drops it by its
//     deduplication token, which the server keeps for the last 10,000 parts; if there were more in
//     the meantime, the rows exist twice until a merge, and FINAL shows them once, because they are
//     equal. Kafka drops it as a duplicate: the bytes, the producer id, the epoch and the sequence
//     are those of the plan, the next owner continues under another producer id, and brokers
//     remember a producer for producer.id.expiration.ms (a day) after received_at of its last
//     record.
//
// # What is not covered
//
//   - The topic of offset commits, __consumer_offsets, needs as many replicas as this one. If the
//     commits are lost, deliveries start at the oldest frame. Brokers delete the commits of a group
//     without members after offsets.retention.minutes: it must not be shorter than the retention of
//     the log.
//   - If brokers forget a producer while its block is in doubt, and its former and next owner look
//     the block up at the same moment, both may send it.
//   - Frames are deleted by the topic's retention, delivered or not. Batches are refused
//     (journal.ErrFull) while a group is behind by more than four fifths of it.
package kafkalog
