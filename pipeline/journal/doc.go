// Package journal makes frames of bytes durable, in order, and keeps them until every consumer has moved past them. It
// knows nothing of what is in them.
//
//	Enqueue ─▶ queue ─▶ one writer: all that waits ─▶ write ─▶ one fdatasync ─▶ readers see it ─▶ Wait returns
//	           bounded                                   │ fails
//	                                                     └─▶ cut it off again, sync ─▶ ErrVoided ─▶ new segment
//	                                                                      │ fails
//	                                                                      └─▶ ErrUnknown, ErrFailed until it can be cut off
//
// # Assumptions
//
//   - A write that was synced stays; one that was not may be there in any part, sector by sector, in any order.
//   - A write of a block does not harm the blocks beside it. Nothing is assumed of the rest of its own block: commits share none.
//   - Rename is atomic. A name is durable when its folder was synced.
//   - A sync that fails has brought an unknown part to the disk, and a later one that succeeds says nothing of that part:
//     Linux then takes the pages for clean. What failed is cut off or written again, never just synced again.
//   - What is read from a file may exist in memory only, if the process before us died after such a sync. So recovery writes
//     again, and syncs, what it builds on and cannot prove durable.
//
// # Bytes
//
// A segment file is named after its first frame, in 20 digits, with the ending .seg. All numbers are little-endian.
//
//	block 0      0        8       12       16      24      32          40          48            4092   4096
//	             ├────────┼────────┼────────┼───────┼───────┼───────────┼───────────┼── zeros ────┼──────┤
//	             │ magic  │version │ 0      │ salt  │ first │ prevFirst │ prevBytes │             │ crc  │
//	             │ 8      │ u32    │ u32    │ u64   │ u64   │ u64       │ u64       │             │ u32  │
//
//	then commits, each in whole blocks of 4096 bytes; a commit is frames, each at a multiple of 8, and zeros to the end of its
//	last block
//
//	frame        0        4        8                16       20       24
//	             ├────────┼────────┼────────────────┼────────┼────────┼─── … ────┤
//	             │ mark   │ length │ seq            │ index  │ crc    │ payload  │
//	             │ u32    │ u32    │ u64            │ u32    │ u32    │ length   │
//
// Mark is the low half of the segment's random salt and never zero; zero bytes are no frame. The checksum (CRC-32C) starts
// from the salt's high half and covers mark, length, seq, index and payload: bytes of another segment are no frames here,
// nor are bytes that a client made up. Index counts the frames of a commit from 0. A commit is written only when all before
// it is durable, so a whole frame proves that the frames below seq-index were durable. That tells a torn tail, which may
// have lost any part of its own commit, from damage to what was promised.
//
// prevFirst and prevBytes are the first frame and the size of the segment before; so a lost or shortened segment is found
// by reading one block of each. The frames of sealed segments are checked when they are read, not all of them at Open:
// a full journal would take minutes on a slow disk while nothing is accepted. Verify checks everything.
//
// A cursor file has two slots of 4096 bytes + 1 MiB, written in turn:
//
//	slot         0        8        12       16           24       32       36     40
//	             ├────────┼────────┼────────┼────────────┼────────┼────────┼──────┼─── … ────┤
//	             │ magic  │version │ length │ generation │ seq    │ crc    │ 0    │ state    │
//	             │ 8      │ u32    │ u32    │ u64        │ u64    │ u32    │ u32  │ length   │
//
// The whole slot with the higher generation counts. The file is written full of zeros when it is made, so that a Save takes
// no new space: a consumer can always move on, and so free segments, on a full disk.
//
// Seqs are dense from 1, over segments and restarts. The seq of a voided frame is given to a later one; no reader ever saw
// the first.
//
// # Recovery
//
// TestCrashes runs all of it some thousand times, against a file system that loses, keeps and tears what was not synced.
// Beside it:
//
//  1. Lock the folder. TestTwoOpensOfOneFolder
//  2. Remove files that were never finished, and sync the folder: names may be there in memory only.
//     TestUnfinishedFilesAreRemoved
//  3. Open all segments: magic, version (an error of its own), checksum of the first block, name. TestAnotherVersion,
//     TestForeignNameOfASegment, TestDamageIsNoTear
//  4. Read the newest segment to its last whole frame. Zeros behind it are no matter. Other bytes are a torn tail, which is
//     cut and logged (TestTornWrites, TestEveryTruncation), unless a later frame proves that they were durable: then Open
//     fails, names file and offset, and writes nothing (TestDamageIsNoTear, TestEveryFlippedByte, TestForgedFrame). Write the last
//     commit again, cut the file behind it, sync. TestKill9
//  5. Open the cursors and write the slot that counts again (TestTornCursor). One that stands past the last frame
//     shows that promised frames are missing, and Open fails (TestCursorPastTheEnd). Create those that are new, at the oldest
//     frame. TestNewConsumerStartsAtTheOldestFrame
//  6. Delete the segments below all cursors: a deletion may have been lost. TestDeletionThatFailsIsRepeated
//  7. Compare each segment with what the next one says of it. TestSealedSegments
//  8. Begin the first segment if there is none. TestOnTheRealDisk
//
// A frame that was answered ErrVoided cannot come back: its bytes were cut off, and the smaller size synced, before the
// answer. One that was answered ErrUnknown, or never answered, may.
//
// One case cannot be told from a torn tail: the very last commit, acknowledged, then damaged by the disk before the next one or
// a cursor past it was written.
//
// # Space on the disk
//
// A segment's space is reserved when it is begun, behind the end of the file (fallocate that keeps the size): so the size
// still says where the data end. What is left of it is given back before the next segment is begun. MaxBytes counts the data,
// not the reserve. Where there is no space for it the disk counts as full (TestNoSegmentOnAFullDisk). Measured on ext4 with 430 kB
// frames (write and fdatasync, median of 140): appending 0.32–0.35 ms and 0.17 ms
// of CPU, reserved 0.30–0.32 ms and 0.13 ms. Overwriting blocks written before takes 0.20 ms and 0.09 ms, but would need a pool of old
// files; that is not done.
//
// # Why not
//
//   - hashicorp/raft-wal (v0.4.0): the nearest relative, and the source of many rules here. It is one log with one reader's truncation,
//     its metadata are in a BoltDB beside it, reads check no checksum, and a final commit that is broken is dropped without a
//     word. It has no way to void a frame whose sync failed. Its authors call it experimental.
//   - tidwall/wal (v1.2.1): no checksums; a segment is read into memory whole; a torn tail makes Open fail for good; every
//     caller pays for a sync of its own.
//   - pebble's record package (v1.1.5): framing only. Segments, retention, cursors and the sync are its caller's, and a broken
//     chunk is skipped to the next block, which is right for a database that has the data elsewhere.
package journal
