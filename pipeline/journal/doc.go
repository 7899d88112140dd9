// Package journal makes frames of bytes durable, in order, and keeps them until every consumer has
// moved past them. It does not interpret their contents.
//
//	Enqueue ─▶ queue ─▶ writer: write all waiting frames ─▶ one fdatasync ─▶ visible to readers ─▶ Wait returns nil
//	           bounded                                   │ fails
//	                                                     └─▶ truncate, sync ─▶ Wait returns ErrVoided; new segment
//	                                                              │ fails
//	                                                              └─▶ Wait returns ErrUnknown; ErrFailed until truncated
//
// # Assumptions
//
//   - A synced write persists; any part of an unsynced write may persist, sector by sector, in any
//     order.
//   - Writing part of a block may damage the rest of that block, but no other block. Therefore
//     commits share no blocks.
//   - Rename is atomic. A name is durable once its directory has been synced.
//   - After a failed sync, an unknown part of the data is durable; a later successful sync proves
//     nothing about the rest: Linux marks the pages clean. Therefore data whose sync failed is
//     truncated or written again, never only synced again.
//   - If the previous process died after a failed sync, data that can be read may exist only in
//     memory. Recovery therefore rewrites and syncs what it relies on and cannot prove durable.
//
// # Bytes
//
// A segment file is named after the seq of its first frame, in 20 digits, with the extension .seg.
// All numbers are little-endian.
//
//	block 0      0        8       12       16      24      32          40          48            4092   4096
//	             ├────────┼────────┼────────┼───────┼───────┼───────────┼───────────┼── zeros ────┼──────┤
//	             │ magic  │version │ 0      │ salt  │ first │ prevFirst │ prevBytes │             │ crc  │
//	             │ 8      │ u32    │ u32    │ u64   │ u64   │ u64       │ u64       │             │ u32  │
//
//	then commits, each in whole blocks of 4096 bytes: frames, aligned to 8 bytes, then zeros to the end of
//	the last block
//
//	frame        0        4        8                16       20       24
//	             ├────────┼────────┼────────────────┼────────┼────────┼─── … ────┤
//	             │ mark   │ length │ seq            │ index  │ crc    │ payload  │
//	             │ u32    │ u32    │ u64            │ u32    │ u32    │ length   │
//
// Mark is the low half of the segment's random salt and never zero, so zero bytes are not a frame.
// The checksum (CRC-32C) starts from the salt's high half and covers mark, length, seq, index and
// payload. Therefore neither bytes of another segment nor bytes that a client sent can form a valid
// frame. Index numbers the frames of a commit from 0. A commit is written only when all previous
// ones are durable, so a valid frame proves that the frames before seq-index were durable. This
// distinguishes a torn tail, which may lack any part of the last commit, from damage to
// acknowledged frames.
//
// prevFirst and prevBytes are the first frame and the size of the previous segment: Open detects a
// missing or shortened segment from the first blocks alone. The frames of sealed segments are
// checked when they are read, because reading a full journal takes minutes on a slow disk. Verify
// checks everything.
//
// A cursor file has two slots of 4096 bytes + 1 MiB, written in turn:
//
//	slot         0        8        12       16           24       32       36     40
//	             ├────────┼────────┼────────┼────────────┼────────┼────────┼──────┼─── … ────┤
//	             │ magic  │version │ length │ generation │ seq    │ crc    │ 0    │ state    │
//	             │ 8      │ u32    │ u32    │ u64        │ u64    │ u32    │ u32  │ length   │
//
// The valid slot with the higher generation is current. The file has its full size from the start,
// so that a consumer can move on, and thereby free segments, even on a full disk.
//
// Seqs are contiguous from 1, across segments and restarts. The seq of a voided frame, which no
// reader has seen, is reused.
//
// # Recovery
//
// TestCrashes runs all steps thousands of times on a file system that randomly loses, keeps or
// tears unsynced writes. Each step also has its own tests:
//
//  1. Lock the directory. TestTwoOpensOfOneDirectory
//  2. Remove unfinished files, and sync the directory: names may exist only in memory.
//     TestUnfinishedFilesAreRemoved
//  3. Open all segments; check magic, version (a separate error), header checksum, name.
//     TestAnotherVersion, TestForeignNameOfASegment, TestDamageIsNoTear
//  4. Read the newest segment up to its last valid frame. Bytes after it that are not zero are a
//     torn tail, or the former contents of a reused file; they are logged and truncated
//     (TestTornWrites, TestEveryTruncation). But if a later frame proves that a frame is missing,
//     Open fails with the file and the offset, and writes nothing (TestDamageIsNoTear,
//     TestEveryFlippedByte, TestForgedFrame). Rewrite the last commit, truncate the file after it,
//     sync. TestKill9
//  5. Open the cursors, clear the older slot unless it is valid (TestTornSavesOfTwoProcesses), and
//     rewrite the current slot (TestTornCursor). A cursor past the last frame shows that
//     acknowledged frames are missing, and Open fails (TestCursorPastTheEnd). Create new cursors at
//     the oldest frame. TestNewConsumerStartsAtTheOldestFrame
//  6. Delete the segments before all cursors: a crash may have undone their deletion. Each gets the
//     name of an unfinished file first, and is then kept for reuse or truncated in steps.
//     TestDeletionThatFailsIsRepeated, TestDeletedSegmentsAreReused, TestSpaceIsFreedInSteps
//  7. Compare each segment with what the next one records about it. TestSealedSegments
//  8. Create the first segment if there is none. TestOnTheRealDisk
//
// A frame whose Wait returned ErrVoided cannot reappear: its bytes were truncated, and the
// truncation synced, before Wait returned. A frame whose Wait returned ErrUnknown, or did not
// return, may reappear.
//
// Edit changes frames of a journal that is not open. It replaces whole segments, so that a crash
// leaves each frame as it was or as it should be (TestEditCrashes).
//
// One kind of damage cannot be distinguished from a torn tail: damage to the last commit after it
// was acknowledged, but before another commit or a cursor past it was written.
//
// # Space on the disk
//
// To make commits cheaper, creating a segment reserves its disk space without changing the size of
// the file (fallocate with FALLOC_FL_KEEP_SIZE). Unused space is released before the next segment
// is created. MaxBytes limits the data, not the reserved space. If the space cannot be reserved,
// the segment is not created (TestNoSegmentOnAFullDisk).
//
// New segments overwrite the files of up to four deleted segments, which are kept within MaxBytes
// and while the disk has MinFreeBytes (TestDeletedSegmentsAreReused, TestDiskLowFreesSpares).
// Commits then change no file system metadata. No space is freed either: that would delay commits
// on a disk that is mounted with the option discard. Frames of the former segment are invalid in
// the new one, because the salt differs. They are truncated when the segment is sealed, and by
// Close.
package journal
