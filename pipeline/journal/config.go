package journal

import (
	"errors"

	"trafficd/pipeline/lib/settings"
)

// Config holds the location and the limits of the journal.
type Config struct {
	// The journal's directory, locked while in use. It must survive restarts and should be on a local
	// disk.
	Dir          string `setting:"dir"`
	SegmentBytes int64  `setting:"segment_bytes"` // size at which a segment is sealed; a larger frame gets its own segment
	// maximum size of all segments; at the limit, batches get 503. Raise it to outlast longer outages
	// of a store.
	MaxBytes      int64 `setting:"max_bytes"`
	MinFreeBytes  int64 `setting:"min_free_bytes"`  // disk space that the journal leaves free; with less, batches get 503; 0: none
	MaxFrameBytes int   `setting:"max_frame_bytes"` // maximum size of a frame, which holds the accepted items of a batch
	QueueEntries  int   `setting:"queue_entries"`   // maximum number of frames that wait for the disk; at the limit, batches get 503
	QueueBytes    int64 `setting:"queue_bytes"`     // maximum size of the frames that wait for the disk; at the limit, batches get 503
}

// DefaultConfig returns the defaults. Dir is empty and must be set.
func DefaultConfig() Config {
	return Config{
		SegmentBytes: 64 << 20, MaxBytes: 8 << 30, MinFreeBytes: 1 << 30,
		MaxFrameBytes: 64 << 20, QueueEntries: 1024, QueueBytes: 256 << 20,
	}
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	const maxSegments = 4096
	return errors.Join(
		settings.Check(c.Dir != "", "dir is empty: name the directory that holds the journal"),
		settings.Within("segment_bytes", c.SegmentBytes, 16<<10, 1<<30,
			"smaller segments can barely hold a commit; larger ones free disk space too late and slow down recovery"),
		settings.Within("max_frame_bytes", c.MaxFrameBytes, 1, maxPayloadBytes, "a whole frame is read into memory"),
		settings.AtLeast("max_bytes", c.MaxBytes, c.leastMaxBytes(),
			"the newest segment is always kept, and the largest frame must fit beside it"),
		settings.Check(c.SegmentBytes <= 0 || c.MaxBytes/c.SegmentBytes <= maxSegments,
			"max_bytes is over %d times segment_bytes: each segment keeps a file open; use larger segments", maxSegments),
		settings.AtLeast("min_free_bytes", c.MinFreeBytes, 0, "0 disables the check"),
		settings.Within("queue_entries", c.QueueEntries, 1, 1<<16, "each entry is a request that waits for the disk"),
		settings.AtLeast("queue_bytes", c.QueueBytes, int64(c.MaxFrameBytes), "a frame of max_frame_bytes could never be queued"),
	)
}

func (c Config) leastMaxBytes() int64 {
	return 2 * max(c.SegmentBytes, roomFor(c.MaxFrameBytes))
}
