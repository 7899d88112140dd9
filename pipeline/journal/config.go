package journal

import (
	"cmp"
	"errors"

	"trafficd/pipeline/lib/settings"
)

// Config holds the location and the limits of the journal.
type Config struct {
	// The journal's directory, locked while in use. It must survive restarts and should be on a local
	// disk.
	Dir string `setting:"dir"`
	// maximum size of all segments; at the limit, batches get 503. Raise it to outlast longer outages
	// of a store.
	MaxBytes      int64 `setting:"max_bytes"`
	MinFreeBytes  int64 `setting:"min_free_bytes"`  // disk space that the journal leaves free; with less, batches get 503; 0: none
	MaxFrameBytes int   `setting:"max_frame_bytes"` // maximum size of a frame, which holds the accepted items of a batch

	// SegmentBytes is the size at which a segment is sealed; a larger frame gets its own segment. It is
	// no setting. 0 means a part of MaxBytes.
	SegmentBytes int64 `setting:"-"`
}

// maxQueueEntries and maxQueueBytes limit the frames that wait for the disk, each of which is a
// request that waits for its response. A single frame may be larger. Tests replace maxQueueBytes.
const maxQueueEntries = 1024

var maxQueueBytes int64 = 256 << 20

// DefaultConfig returns the defaults. Dir is empty and must be set.
func DefaultConfig() Config {
	return Config{MaxBytes: 8 << 30, MinFreeBytes: 1 << 30, MaxFrameBytes: 64 << 20}
}

// Validate reports every setting that is out of bounds.
func (c Config) Validate() error {
	return errors.Join(
		settings.Check(c.Dir != "", "dir is empty: name the directory that holds the journal"),
		settings.Within("max_frame_bytes", c.MaxFrameBytes, 1, maxPayloadBytes, "a whole frame is read into memory"),
		settings.AtLeast("max_bytes", c.MaxBytes, 2*max(c.segmentBytes(), roomFor(c.MaxFrameBytes)),
			"the newest segment is always kept, and the largest frame must fit beside it"),
		settings.AtLeast("min_free_bytes", c.MinFreeBytes, 0, "0 disables the check"),
	)
}

// segmentBytes returns SegmentBytes, or else a 128th of MaxBytes, so that disk space is freed in
// small parts. A smaller segment could barely hold a commit, a larger one would slow down recovery.
// But a journal has at most 4,096 segments, because each keeps a file open.
func (c Config) segmentBytes() int64 {
	return cmp.Or(c.SegmentBytes, max(min(max(c.MaxBytes/128, 16<<10), 64<<20), c.MaxBytes/4096))
}
