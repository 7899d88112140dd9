// Package kafka delivers accepted measurements to a Kafka topic, each exactly once, one record per
// row (contract 4).
//
//	Plan     which rows are sent together, under which producer id, epoch and sequences;
//	         the delivery loop makes the plan durable before anything is sent
//	Deliver  one record batch per partition, sent until every partition has
//	         acknowledged with acks=all
//
// A row passes through sink.go, plan.go, delivery.go (rounds of attempts), batch.go and record.go
// (the bytes), outcome.go (what a broker's answer means) and resolve.go (the read-back).
//
// # Exactly once
//
// The bytes of a record batch are a function of the plan and its rows, and include producer id,
// epoch and sequence: a broker that knows the producer recognises a duplicate. Four rules cover the
// rest.
//
//  1. A broker that has forgotten a producer accepts any sequence from it, and a restarted daemon
//     does not know how far it got. Therefore a plan inherited from an earlier process is
//     looked up in the topic first. So is an attempt without an answer if the attempt, or its rows'
//     received_at (from which brokers count), is older than resolve_after. A look-up reads the
//     partition from the last acknowledged offset to its end and recognises rows by their headers
//     (batch-id, index). It is authoritative: only rows that it does not find are sent.
//  2. If the broker refuses the sequence or the epoch (45, 47, 59), the same look-up comes first;
//     what is missing is sent under the next epoch of the same producer id, with sequence 0. That
//     is again a function of the plan: a process that is killed in between repeats the same steps,
//     and a late attempt of its predecessor is a duplicate or is fenced.
//  3. Sequences continue only after plain acknowledgements in one process. After a restart, a
//     look-up or a refusal the next plan gets a new producer id. So no sequence number is used for
//     two different record batches, of which a broker would drop the second, even if a volume was
//     restored or two daemons run on copies of it.
//  4. Rows that may be in the topic although their block was not delivered (see Refusals) are
//     counted in the state as suspect. Plans that contain them begin with the look-up.
//
// If the topic is recreated with fewer partitions, or the daemon is pointed at another cluster,
// a planned block is divided among the partitions that exist, under a new producer id. All
// partitions are searched for its rows first, as those of an earlier attempt may be in other ones.
//
// Duplicates remain possible in two cases: a request that is still in a broker's socket, or in its
// log but not on all in-sync replicas, while the look-up finds nothing, if that broker forgets the
// producer before the next attempt; and a block delivered to another cluster than it was planned
// for, if the daemon is killed again at that moment (the new producer id of such a block is not in
// its plan).
//
// # Refusals
//
// A broker refuses a record batch as a whole (message too large, invalid record) and may have
// accepted the others of the block. Deliver continues until each partition of the block is either
// acknowledged or permanently refused with no attempt in doubt, and only then returns a
// *batch.PermanentError, with a state that marks the block's rows as suspect. When the loop then
// plans parts of the block, the look-up finds what was accepted. After MESSAGE_TOO_LARGE, this
// process also halves the batch_bytes of later plans, so that one setting of the topic does not
// cost a refusal per block. A row that is refused on its own is refused permanently.
//
// Memory: parallel_requests × (batch_bytes + its compressed form), 12 bytes per row of a block, and
// during a look-up one answer of a broker and the names of one partition's rows.
package kafka
