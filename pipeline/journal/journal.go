package journal

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"trafficd/pipeline/lib/durable"
	"trafficd/pipeline/lib/metrics"
)

// Errors that Open, Enqueue, Ready and Wait return or wrap, beside those of package durable.
var (
	// ErrDiskLow means that the frame would leave less than Config.MinFreeBytes on the disk.
	ErrDiskLow = errors.New("the journal's disk is low on space; free some, or lower min_free_bytes and restart trafficd")
	// ErrFailed means that a write or a sync failed or the directory is gone, and that no new
	// segment has been created since. The journal retries once a second.
	ErrFailed = errors.New("the journal cannot write to its disk")
	// ErrLocked means that another process has the directory open. The error of Open names the
	// directory and the process.
	ErrLocked = errors.New("the directory is locked")
)

// Journal is an append-only sequence of frames in segment files, with a cursor for each consumer.
// It is safe for concurrent use.
type Journal struct {
	cfg     Config
	fs      FS
	log     zerolog.Logger
	lock    io.Closer
	cursors map[string]*Cursor // fixed after Open

	committed func(start time.Time, entries []*durable.Entry, err error) // see WithCommitHook; may be nil

	mu       sync.Mutex
	segments []*segment // ascending; never empty after Open; the last one is written to
	bytes    int64      // sum of the segments' ends
	next     uint64     // seq for the next Enqueue
	durable  uint64     // newest durable frame, 0 if there is none
	queue    queue
	rejected int64     // bytes needed by the last frame that failed with ErrFull; 0 after a deletion
	free     int64     // free bytes on the disk, measured after each commit and once a second
	diskLow  bool      // whether free space is low, as last logged
	failure  error     // why the journal has failed, or nil; set only by the writer goroutine
	waiting  []*Reader // readers blocked in Reader.wait; each commit wakes them
	spares   []string  // files of deleted segments, for reuse
	closed   bool

	name       string              // see WithName
	counters   counters            // set by Open
	collectors []metrics.Collector // registered by Open

	collecting sync.Mutex // held while deleting segments
	writer     writer

	wake      chan struct{} // capacity 1: something is queued
	stop      chan struct{} // closed by Close
	done      chan struct{} // closed by run
	closeOnce sync.Once
	closeErr  error
}

// Option configures Open, Inspect, Verify and Frames.
type Option func(*Journal)

// WithFS sets the file system. The default is the operating system's.
func WithFS(fs FS) Option { return func(j *Journal) { j.fs = fs } }

// WithLogger sets the logger. The default logs nothing.
func WithLogger(log zerolog.Logger) Option { return func(j *Journal) { j.log = log } }

// WithCommitHook sets a function that the writer calls after each commit, before the entries are
// settled. start is the time at which the commit began. The hook must not keep the entries. Wait
// returns only after the hook has returned.
func WithCommitHook(hook func(start time.Time, entries []*durable.Entry, err error)) Option {
	return func(j *Journal) { j.committed = hook }
}

// WithName sets the value of the label journal of the metrics. The default is "measurements".
func WithName(name string) Option { return func(j *Journal) { j.name = name } }

const lockName = "LOCK"

// Open locks the directory, recovers its contents (doc.go lists the steps) and starts the writer,
// which Close stops. Segments are kept until the cursors of all consumers have passed them. A new
// consumer starts at the oldest frame.
func Open(cfg Config, consumers []string, opts ...Option) (*Journal, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cannot open the journal: %w", err)
	}
	j := newJournal(cfg, opts)
	j.counters = newCounters(j.name)
	if err := j.fs.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("cannot create directory %s: %w", cfg.Dir, err)
	}
	var err error
	if j.lock, err = j.fs.Lock(filepath.Join(cfg.Dir, lockName)); err != nil {
		return nil, fmt.Errorf("cannot lock journal directory %s: %w; each daemon needs its own directory", cfg.Dir, err)
	}
	if err := j.recover(consumers); err != nil {
		if isCorrupt(err) {
			err = fmt.Errorf("%w; otherwise run trafficctl journal verify %s, which says how to save the intact frames", err, cfg.Dir)
		}
		return nil, errors.Join(fmt.Errorf("cannot recover the journal: %w", err), j.closeFiles())
	}
	j.updateFree()
	j.collectors = j.gauges()
	metrics.Register(j.collectors...)
	go j.run()
	return j, nil
}

// Close rejects new entries, makes the queued entries durable, stops the writer and closes the
// files. Waiting readers get ErrClosed. It returns an error if the journal has failed or a file
// could not be closed.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		metrics.Unregister(j.collectors...)
		j.mu.Lock()
		j.closed = true
		j.wakeReaders()
		j.mu.Unlock()
		close(j.stop)
		<-j.done
		j.collecting.Lock() // wait for a Save that is deleting; it stops at the next segment
		defer j.collecting.Unlock()
		j.closeErr = errors.Join(j.failure, j.closeFiles())
	})
	return j.closeErr
}

// Ready returns the error that Enqueue would return now, for any product instance, with details for
// operators: ErrFailed (with the cause), ErrFull and ErrDiskLow (with the directory and its sizes),
// ErrClosed or nil. It does not return ErrBusy, which lasts only until the next commit.
func (j *Journal) Ready(string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.readyFor(max(j.rejected, roomFor(0)))
	switch err {
	case ErrFailed:
		return fmt.Errorf("%w: %w", err, j.failure)
	case durable.ErrFull:
		return fmt.Errorf("%w: the segments in %s have %d bytes, max_bytes is %d; raise it to outlast longer outages",
			err, j.cfg.Dir, j.bytes, j.cfg.MaxBytes)
	case ErrDiskLow:
		return lowError(j.cfg.Dir, j.free, j.cfg)
	}
	return err
}

// readyFor returns an error if a frame that needs room bytes cannot be queued. The caller must hold
// mu.
func (j *Journal) readyFor(room int64) error {
	switch {
	case j.closed:
		return durable.ErrClosed
	case j.failure != nil:
		return ErrFailed
	case j.bytes+j.queue.room+room > j.cfg.MaxBytes:
		return durable.ErrFull
	case j.low(room):
		return ErrDiskLow
	}
	return nil
}

// NearlyLow returns an error if ErrDiskLow is near: less than twice MinFreeBytes is free.
func (j *Journal) NearlyLow() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.free >= 2*j.cfg.MinFreeBytes || j.low(roomFor(0)) {
		return nil
	}
	return fmt.Errorf("the journal's disk will soon be low on space: %s has %d bytes free; with less than min_free_bytes, %d, "+
		"batches are rejected; free some", j.cfg.Dir, j.free, j.cfg.MinFreeBytes)
}

// lowError returns ErrDiskLow with details about a directory.
func lowError(dir string, free int64, cfg Config) error {
	return fmt.Errorf("%w: %s has %d bytes free, min_free_bytes is %d, and a new segment takes %d",
		ErrDiskLow, dir, free, cfg.MinFreeBytes, cfg.SegmentBytes)
}

// low reports whether a frame that needs room bytes could leave less than MinFreeBytes on the disk.
// The caller must hold mu.
func (j *Journal) low(room int64) bool {
	need := j.queue.room + room
	if j.newest().end+need > j.cfg.SegmentBytes {
		need += j.cfg.SegmentBytes // a new segment reserves its whole size
	}
	return j.cfg.MinFreeBytes > 0 && j.free-need < j.cfg.MinFreeBytes
}

// Bounds returns the seq of the oldest frame and the seq that follows the newest durable frame.
// They are equal if there are no frames.
func (j *Journal) Bounds() (oldest, next uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.segments[0].first, j.durable + 1
}

// Last returns a copy of the newest durable frame, which is never deleted. seq is 0 if the journal
// has never had a frame.
func (j *Journal) Last() (seq uint64, frame []byte, err error) {
	_, next := j.Bounds()
	if next == 1 {
		return 0, nil, nil
	}
	seq, frame, _, err = j.Reader(next - 1).TryNext(nil)
	return seq, frame, err
}

// Cursor returns the cursor of a consumer, or nil if the name was not passed to Open.
func (j *Journal) Cursor(name string) *Cursor { return j.cursors[name] }

// collect deletes the segments that no consumer needs, oldest first. It makes each deletion durable
// before the next, so that a crash leaves no gap. It logs failures; the next Save tries again.
func (j *Journal) collect() {
	j.collecting.Lock()
	defer j.collecting.Unlock()
	for s := j.nextDisposable(); s != nil; s = j.nextDisposable() {
		temp := s.path + tempSuffix // Open removes such files
		err := j.fs.Rename(s.path, temp)
		renamed := err == nil
		if err != nil { // the disk has no space for the new name, or an earlier attempt has renamed the file
			err = j.fs.Remove(s.path)
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = j.fs.SyncDir(j.cfg.Dir)
		}
		if err != nil {
			j.counters.removeErrors.Inc()
			j.log.Warn().Err(err).Str("file", s.path).Msg("cannot delete a segment; will retry")
			return
		}
		j.mu.Lock()
		j.segments = append(j.segments[:0], j.segments[1:]...)
		j.bytes -= s.end
		j.rejected = 0
		j.mu.Unlock()
		_ = s.close() // waits for the readers of the file
		if !renamed || s.end > j.cfg.SegmentBytes || !j.keep(temp) {
			j.removeSpare(temp)
		}
	}
}

func (j *Journal) removeSpare(path string) {
	if err := removeInSteps(j.fs, path); err != nil {
		j.counters.removeErrors.Inc()
		j.log.Warn().Err(err).Str("file", path).Msg("cannot free the space of a deleted segment; the next start will free it")
	}
}

// maxSpares is about the number of segments that are written under full load between two saves of
// a cursor.
const maxSpares = 4

// keep adds the file of a deleted segment to the spares and reports whether there was room for it.
func (j *Journal) keep(path string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := len(j.spares)
	if n >= maxSpares || j.diskLow || j.bytes+int64(n+1)*j.cfg.SegmentBytes > j.cfg.MaxBytes {
		return false
	}
	j.spares = append(j.spares, path)
	return true
}

// removeStep is small enough that freeing that many bytes delays commits by at most a few
// milliseconds, even on a file system that is mounted with the option discard.
const removeStep = 8 << 20

// removeInSteps removes a file if it exists, freeing removeStep bytes at a time.
func removeInSteps(fs FS, path string) error {
	file, err := fs.Open(path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	size, err := file.Size()
	for err == nil && size > removeStep {
		size -= removeStep
		if err = file.Truncate(size); err == nil {
			err = file.Sync()
		}
	}
	return errors.Join(err, file.Close(), fs.Remove(path))
}

// nextDisposable returns the oldest segment if all cursors have passed it and a newer segment has
// frames, or else nil. Without cursors, or after Close, it returns nil, too.
func (j *Journal) nextDisposable() *segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || len(j.segments) < 2 || len(j.cursors) == 0 {
		return nil
	}
	after := j.segments[1].first
	for _, c := range j.cursors {
		if c.seq.Load() < after {
			return nil
		}
	}
	if after > j.durable {
		return nil
	}
	return j.segments[0]
}

func (j *Journal) newest() *segment { return j.segments[len(j.segments)-1] }

func newJournal(cfg Config, opts []Option) *Journal {
	cfg.SegmentBytes = cfg.segmentBytes()
	j := &Journal{
		cfg: cfg, fs: osFS{}, log: zerolog.Nop(), cursors: map[string]*Cursor{}, name: "measurements",
		free: math.MaxInt64, // until it is measured
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for _, o := range opts {
		o(j)
	}
	return j
}

func (j *Journal) closeFiles() error {
	var errs []error
	for _, c := range j.cursors {
		errs = append(errs, c.close())
	}
	for _, s := range j.segments {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, j.lock.Close())...)
}
