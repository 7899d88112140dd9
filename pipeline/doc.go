// Package pipeline connects the sources and the sinks: the stages that a batch passes through until
// it is durable, and the deliveries that take durable rows to the stores.
//
//	sources/ingest ─▶ Intake ───────────────────────────────────────────────┐
//	 (a complete       │ body: gunzip through a fixed buffer                │
//	  compressed       │ decode: JSON → columns                             │ 207 or an error
//	  body)            │ validate: columns × registry snapshot → rejections │
//	                   │ batch.AppendFrame: accepted columns → one frame    │
//	                   ▼                                                    │
//	                journal: one fsync for many batches ── durable ─────────┘   or kafkalog: a topic that replicas share
//	                   ├─▶ Delivery ─▶ sinks/clickhouse   archive
//	                   ├─▶ Delivery ─▶ sinks/kafka        topic
//	                   └─▶ IdempotencyStore               results by Idempotency-Key
//
// The control flow of one measurement is in five files: sources/api/handle.go,
// sources/ingest/endpoint.go, intake.go, deliver.go and, for each store, sinks/clickhouse/insert.go
// or sinks/kafka/delivery.go.
//
// # Memory and goroutines
//
// The goroutine of a connection receives a body completely, still compressed. Config.Workers
// goroutines decode bodies, each with the columns of one batch in memory, and encode each batch
// into a frame of a few hundred KB. Workers never wait for a client or the disk; the connection's
// goroutine does. All channels are bounded; when one is full, clients get 503.
//
// # Deliveries
//
// One loop drives all sinks (deliver.go). A block is a run of rows of the journal. The sink's Plan
// determines it before the first attempt, and the cursor stores the plan, so that every attempt,
// even after a crash, sends the same block with the same deduplication token (ClickHouse) or the
// same producer id, epoch and sequences (Kafka).
//
// Blocks may start and end inside a batch: the sink limits them to what its store takes at once,
// and a rejected block is halved down to the rejected row, which goes to the dead-letter file. If a
// sink was disabled for so long that frames were deleted before it received them, its delivery
// starts again at the oldest remaining frame, because its plan refers to deleted frames.
//
// The stages use the journal through the interfaces Journal and Source. Package journal implements
// them on a local disk, and package kafkalog in Kafka, with one Delivery per partition.
//
// # Promises, and the tests that try to break them
//
//  1. 207 ⇒ each accepted item reaches both stores or the dead-letter file:
//     TestEachRowArrivesOnceAndInOrder, cmd/chaos.
//  2. Nothing arrives twice: the same, and the sinks' tests on real stores.
//  3. Any other response ⇒ nothing arrives: TestNothingOfAFailedRequestIsStored. If there is
//     no response at all, a retry with the same Idempotency-Key reveals the outcome:
//     TestRetryGetsTheSameResult.
//  4. accepted + rejected = items sent, according to the rules: TestAgainstTheOracle.
//  5. Memory is bounded: TestHardLimit, sources/ingest, cmd/bench (gzip bombs, 64 clients).
//  6. A slow client occupies no worker: sources/ingest.
//  7. A batch sees one registry snapshot: TestConcurrentBatchesSeeOneSnapshotEach.
//  8. SIGTERM drains: cmd/trafficd.
package pipeline
