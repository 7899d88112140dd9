// Package pipeline connects sources to sinks. Intake validates batches and makes them durable; a
// Delivery writes durable rows to a store.
//
//	sources/ingest ─▶ Intake ───────────────────────────────────────────────┐
//	 (receives the     │ body: gunzip through a fixed buffer                │
//	  compressed body) │ decode: JSON → columns                             │ 207 or an error
//	                   │ validate: columns × registry snapshot → rejections │
//	                   │ batch.AppendFrame: accepted columns → one frame    │
//	                   ▼                                                    │
//	                journal: one fsync for many batches ── durable ─────────┘   (or kafkalog: a topic that replicas share)
//	                   ├─▶ Delivery ─▶ sinks/clickhouse   archive
//	                   ├─▶ Delivery ─▶ sinks/kafka        topic
//	                   └─▶ IdempotencyStore               responses by Idempotency-Key
//
// Five files to read first, in the order in which a measurement passes through them:
//
//  1. sources/api/handle.go routes the request to its endpoint.
//  2. sources/ingest/endpoint.go receives the body, submits it and responds.
//  3. intake.go decodes and validates the body and appends its frame to the journal.
//  4. deliver.go reads frames and forms blocks of rows.
//  5. sinks/clickhouse/insert.go or sinks/kafka/delivery.go writes a block to its store.
//
// On the way, sources/api checks header, key and limits, sources/internal/upload receives the body
// into the blocks of sources/ingest, pipeline/lib admits clients in turn and decompresses, decode,
// validate and batch turn text into frames, idempotency.go remembers the response, and journal
// makes the frame durable.
//
// # Memory and goroutines
//
// A connection's goroutine receives the whole compressed body. It then waits for its client's turn
// to use one of Config.Workers workers, decodes and validates the body, and encodes the accepted
// rows as a frame of a few hundred KB. A worker is the memory that this takes, such as the columns
// of one batch. It is not held while the goroutine waits for its client or for the disk. All queues
// are bounded: when one is full, clients get 503.
//
// # Deliveries
//
// All sinks share one loop (Delivery.Run in deliver.go). A block is a run of consecutive rows of
// the journal, and may start and end inside a batch. Before the first attempt, the sink's Plan
// chooses the number of rows, and the plan is saved with the cursor. So every attempt, even after a
// crash, sends the same block with the same deduplication token (ClickHouse) or the same producer
// id, epoch and sequences (Kafka).
//
// If the store permanently rejects a block, the loop halves it until a single rejected row is left,
// and writes that row to the dead-letter file. If frames were deleted while a sink was disabled,
// its delivery discards any plan for those frames and starts at the oldest remaining frame.
//
// Intake and Delivery use the journal through the interfaces Journal and Source. Package journal
// implements them on a local disk, package kafkalog in Kafka, with one Delivery per partition.
//
// # Promises, and the tests that try to break them
//
//  1. 207 ⇒ each accepted item reaches both stores or the dead-letter file:
//     TestEachRowArrivesOnceAndInOrder, cmd/dev/chaos. What a store deletes or hides after its
//     acknowledgement, such as rows older than a TTL, has reached it; if the archive notices, it
//     dead-letters the rows: TestArchive/doubt.
//  2. Nothing arrives twice: the same tests, and the sinks' tests against real stores.
//  3. Any other response ⇒ nothing arrives: TestNothingOfAFailedRequestIsStored. Without a
//     response, a retry with the same Idempotency-Key reveals the outcome:
//     TestRetryGetsTheSameResult.
//  4. accepted + rejected = items sent, split exactly as the rules say: TestAgainstTheOracle.
//  5. Memory is bounded: TestHardLimit, sources/ingest, cmd/dev/bench (gzip bombs, 64 clients).
//  6. A slow client does not occupy a worker: sources/ingest.
//  7. A batch sees one registry snapshot: TestConcurrentBatchesSeeOneSnapshotEach.
//  8. SIGTERM drains: cmd/trafficd.
package pipeline
