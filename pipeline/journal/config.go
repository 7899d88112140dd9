package journal

import (
	"errors"
	"fmt"
)

// Config is the location and the limits of the journal.
type Config struct {
	// Dir is the folder of the journal, which is locked while open.
	Dir string `setting:"dir"`
	// SegmentBytes is the size at which a segment is sealed. A larger frame gets its own segment.
	SegmentBytes int64 `setting:"segment_bytes"`
	// MaxBytes bounds the size of all segments together. At the limit Enqueue returns ErrFull.
	MaxBytes int64 `setting:"max_bytes"`
	// MinFreeBytes is the disk space that the journal leaves free: a frame that would not, together with those in the queue
	// and the segment that they may need, fails with ErrDiskLow.
	MinFreeBytes int64 `setting:"min_free_bytes"`
	// MaxFrameBytes bounds the payload of a frame. A larger one fails with ErrTooLarge.
	MaxFrameBytes int `setting:"max_frame_bytes"`
	// QueueEntries and QueueBytes bound the entries that are not settled. Past either, Enqueue returns ErrBusy.
	QueueEntries int   `setting:"queue_entries"`
	QueueBytes   int64 `setting:"queue_bytes"`
}

// DefaultConfig returns the defaults. Dir is empty and must be set.
func DefaultConfig() Config {
	return Config{
		SegmentBytes:  64 << 20,
		MaxBytes:      8 << 30,
		MinFreeBytes:  1 << 30,
		MaxFrameBytes: 64 << 20,
		QueueEntries:  1024,
		QueueBytes:    256 << 20,
	}
}

const (
	minSegmentBytes = 16 << 10
	maxSegmentBytes = 1 << 30
	maxSegments     = 4096
	maxQueueEntries = 1 << 16
)

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	var errs []error
	bound := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bound(c.Dir != "", "dir is empty: name the folder that holds the journal")
	bound(c.SegmentBytes >= minSegmentBytes && c.SegmentBytes <= maxSegmentBytes,
		"segment_bytes is %d, want %d to %d: smaller ones hold hardly a commit, larger ones free the disk too late and make recovery read too much",
		c.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	bound(c.MaxFrameBytes >= 1 && c.MaxFrameBytes <= maxPayloadBytes,
		"max_frame_bytes is %d, want 1 to %d: a frame is read into memory whole", c.MaxFrameBytes, maxPayloadBytes)
	bound(c.MaxBytes >= c.leastMaxBytes(),
		"max_bytes is %d, want at least %d: the newest segment is always kept, and the largest frame must fit beside it",
		c.MaxBytes, c.leastMaxBytes())
	bound(c.SegmentBytes <= 0 || c.MaxBytes/c.SegmentBytes <= maxSegments,
		"max_bytes is over %d times segment_bytes: each segment holds a file open; take larger segments", maxSegments)
	bound(c.MinFreeBytes >= 0, "min_free_bytes is %d, want 0 or more: 0 switches the check off", c.MinFreeBytes)
	bound(c.QueueEntries >= 1 && c.QueueEntries <= maxQueueEntries,
		"queue_entries is %d, want 1 to %d: every one is a client that waits for the disk", c.QueueEntries, maxQueueEntries)
	bound(c.QueueBytes >= int64(c.MaxFrameBytes),
		"queue_bytes is %d, want at least max_frame_bytes (%d): the largest frame could never be queued", c.QueueBytes, c.MaxFrameBytes)
	return errors.Join(errs...)
}

func (c Config) leastMaxBytes() int64 {
	return 2 * max(c.SegmentBytes, roomFor(c.MaxFrameBytes))
}
