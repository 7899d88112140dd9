// Package pipeline is what happens between the sources and the sinks: the stages that a batch goes through until it is
// durable, and the deliveries that take what is durable to the stores.
//
//	sources/ingest ─▶ Intake ───────────────────────────────────────────────┐
//	 (a complete       │ body: gunzip through fixed blocks                  │
//	  compressed       │ decode: JSON → columns                             │ 207, or the refusal
//	  body)            │ validate: columns × registry snapshot → rejections │
//	                   │ batch.AppendFrame: accepted columns → one frame    │
//	                   ▼                                                    │
//	                journal: one fsync for many batches ── durable ─────────┘
//	                   ├─▶ Delivery ─▶ sinks/clickhouse   archive
//	                   ├─▶ Delivery ─▶ sinks/kafka        forward
//	                   └─▶ Answers: what an Idempotency-Key gets again
//
// One measurement is followed in five files: sources/ingest/endpoint.go, intake.go (with decode and
// validate behind it), deliver.go, sinks/clickhouse/insert.go, sinks/kafka/delivery.go.
//
// # Memory and goroutines
//
// A body waits compressed on its own connection; Config.Workers goroutines decode, each with the columns of one batch; a batch
// leaves them as a frame of a few hundred KB. A worker never waits for a client nor for the disk: a
// connection's goroutine does both. All channels are bounded; a full one is a 503.
//
// # Deliveries
//
// Both sinks are driven by one loop (deliver.go). A block is a run of rows of the journal, cut by the sink's Plan before
// the first attempt and written into the cursor together with the plan, so that every attempt, after whatever
// crash, is the same block with the same token (ClickHouse) or the same producer, epoch and sequences (Kafka).
// Blocks may begin and end inside a batch: so a sink bounds them by what its store takes in one piece, and
// a refused block is halved down to the row that is at fault, which goes to the dead-letter file. A sink that was switched off
// for so long that frames were deleted before it had them begins anew at the oldest one: what its cursor says is about
// frames that are gone.
//
// # Promises, and the tests that try to break them
//
//  1. 207 ⇒ each accepted item reaches both stores or the dead-letter file: TestEachRowArrivesOnceAndInOrder, cmd/chaos.
//  2. Nothing arrives twice: the same, and the sinks' tests on real stores.
//  3. Another answer than 207 ⇒ nothing arrives: TestNothingOfARefusedRequestIsKept; the Idempotency-Key settles the
//     rest: TestTheSameBatchAgain.
//  4. accepted + rejected = items sent, by the rules: TestAgainstTheOracle.
//  5. Memory is bounded: TestHardLimit, sources/ingest; `trafficctl bench` prints it for bombs and for 64 clients.
//  6. A slow client holds no worker: sources/ingest.
//  7. A batch sees one registry snapshot: TestConcurrentBatchesSeeOneSnapshotEach.
//  8. SIGTERM drains: cmd/trafficd.
//
// # Where this differs from the first design
//
// A sink's block is a range of rows, not of whole frames, for the reasons above. What an Idempotency-Key gets again lives in a
// small journal of its own, copied from the main one by a third consumer: frames with columns would otherwise have to stay for the
// whole window. received_at is given when the frame is queued, not when the body came, so that it rises in the order of
// the journal.
package pipeline
