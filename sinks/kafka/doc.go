// Package kafka is the forward: it delivers accepted rows to a Kafka topic,
// each exactly once, one record per row (contract 4).
//
//	Plan     which rows go out together, under which producer id, epoch and
//	         sequences; the deliver loop makes that durable before anything is sent
//	Deliver  one record batch per partition, sent until every partition has
//	         acknowledged with acks=all
//
// A reader finds the way of a row in sink.go, plan.go, delivery.go (rounds of
// attempts), batch.go and record.go (the bytes), verdict.go (what a broker's
// answer means) and resolve.go (the read-back).
//
// # Exactly once
//
// The bytes of a record batch are a function of the plan and its rows, and
// carry producer id, epoch and sequence: a broker that knows the producer
// takes a repeat as a duplicate. Four rules cover what that leaves open.
//
//  1. A broker takes any sequence from a producer that it has forgotten, and a
//     restarted daemon does not know how far it had come. So a plan inherited
//     from an earlier process, and an attempt without an answer, are first looked
//     up in the topic, the latter if the attempt or its rows' received_at (from
//     which brokers count) lie longer back than resolve_after: the partition
//     is read from the last acknowledged offset up to its end, and rows are
//     known by their headers (batch-id, index). The read-back is the authority:
//     what it finds is done, only what is missing is sent.
//  2. Where the broker refuses the sequence or the epoch (45, 47, 59), the same
//     look-up comes first; what is missing then goes out under the next epoch of
//     the same producer id, with sequence 0. That is again a function of the
//     plan: a process that dies in between walks the same way, and an attempt
//     of its predecessor that arrives late is a duplicate or is fenced.
//  3. Sequences go on only after plain acknowledgements in one process. After
//     a restart, a look-up or a refusal the next plan takes a new producer id.
//     So no number is ever used for two different record batches, which a
//     broker would take for a duplicate and drop: not with a restored volume,
//     not with two daemons on copies of one.
//  4. Rows that may lie in the topic although their block was not delivered
//     (see Refusals) are counted in the state as suspect. Plans over them
//     begin with the look-up.
//
// What remains: a request that still lies in a broker's socket, or in its log
// beyond what all replicas in sync have, while the look-up finds nothing, if
// that broker forgets the producer before the next attempt; and a
// block that the daemon delivers to another cluster than it was planned for,
// if it is killed once more in that moment (the new producer id of such a
// block is not in its plan).
//
// # Refusals
//
// A broker refuses a record batch as a whole (message too large, invalid
// record) and may have taken the others of the block. Deliver goes on until
// each partition of the block is either acknowledged or refused for good with
// no attempt in doubt, and only then returns a *batch.PermanentError together
// with a state that says that the block's rows are suspect. The loop has to
// keep that state in place of the former one. When it then plans parts of the
// block, the look-up finds what was taken, so for the loop it is as if
// nothing of the block had been applied. After MESSAGE_TOO_LARGE plans of
// this process also get half the batch_bytes, so that one setting of the
// topic does not cost a refusal for each block. A row that is refused when
// it is alone is refused for ever.
//
// # Memory
//
// parallel_requests × (batch_bytes + its compressed form), 12 bytes for each row
// of a block, and during a look-up one answer of a broker and the names of one
// partition's rows.
package kafka
