// Package kafka delivers accepted measurements to a Kafka topic, each exactly once, one record per
// row (contract 4).
//
//	Plan     which rows are sent together, under which producer ID, epoch and sequences;
//	         the delivery loop makes the plan durable before anything is sent
//	Deliver  one record batch per partition, sent until every partition has
//	         acknowledged with acks=all
//
// A row passes through the files in this order: sink.go, plan.go, delivery.go (attempts), batch.go
// and record.go (encoding), outcome.go (the meaning of responses) and resolve.go (lookups).
//
// # Exactly once
//
// The bytes of a record batch are a function of the plan and its rows, and include producer ID,
// epoch and sequence: a broker that remembers the producer recognises a duplicate. Four rules cover
// all other cases.
//
//  1. A broker that has forgotten a producer accepts any sequence from it, and a restarted daemon
//     does not know which rows were sent. Therefore the rows of a plan from an earlier process are
//     looked up in the topic first, and so are the rows of an attempt without a response if the
//     attempt, or the rows' received_at (which brokers use to expire producers), is older than
//     resolve_after. A lookup reads the partition from the last acknowledged offset, or from its
//     start if the topic was recreated, to its end and recognises rows by their headers (batch-id,
//     index). Only rows that it does not find are sent.
//  2. If the broker rejects the sequence or the epoch (45, 47, 59), the rows are looked up, and the
//     missing ones are sent under the next epoch of the same producer ID, with sequence 0. These
//     bytes are again a function of the plan: after a crash, the next process repeats the same
//     steps, and a late request from its predecessor is a duplicate or is fenced.
//  3. Sequences continue only within one process and only after plain acknowledgements. After a
//     restart, a lookup or a rejection, the next plan gets a new producer ID. Therefore no sequence
//     number is used for two different record batches, even if a volume is restored or two daemons
//     run on copies of it. A broker would drop the second batch as a duplicate.
//  4. The state counts suspect rows, which may be in the topic although their block was not
//     delivered (see below). The delivery of a block with suspect rows begins with a lookup.
//
// If the topic is recreated with fewer partitions, or the daemon is pointed at a different cluster,
// a planned block is divided among the existing partitions, under a new producer ID. All partitions
// are first searched for its rows, because an earlier attempt may have used other partitions. If
// the topic still has the same ID, the broker that reports fewer partitions does not know the
// latest ones yet, and the delivery waits. With create_topic, a deleted topic is created again,
// even while a block is planned for it.
//
// Duplicates remain possible in two cases:
//
//   - A lookup misses a request that is still in a broker's socket, or in the broker's log but not
//     yet on all in-sync replicas, and the broker forgets the producer before the next attempt.
//   - A block is delivered to a cluster other than the one it was planned for, and the daemon is
//     killed again during the delivery: the new producer ID of the block is not in its plan.
//
// # Permanent rejections
//
// A broker rejects a record batch as a whole (message too large, invalid record) and may have
// accepted other record batches of the block. Deliver continues until each partition of the block
// is either acknowledged or permanently rejected with no attempt in doubt, and only then returns a
// *batch.PermanentError, with a state that marks the block's rows as suspect. When the delivery
// loop then plans parts of the block, the lookup finds the accepted rows. After MESSAGE_TOO_LARGE,
// this process also halves the batch_bytes of later plans, so that the broker accepts them.
//
// # Memory
//
// The sink needs ParallelRequests × (batch_bytes + the size of the compressed record batch), 12
// bytes per row of a block and, during a lookup, memory for one response and the IDs of one
// partition's rows.
package kafka
