package pipeline

import (
	"context"

	"trafficd/pipeline/journal"
)

// Journal makes accepted frames durable: journal.Journal on disk, or kafkalog.Log in a topic.
type Journal interface {
	// Enqueue queues a frame without waiting for it to be durable; journal.Entry.Wait does that.
	// Frames of a product instance are in the order of the calls.
	Enqueue(e *journal.Entry) error
	// Ready returns an error if Enqueue would fail now.
	Ready() error
	// Last returns the newest frame, or nil if it is unknown. New frames get a later received_at.
	Last() (seq uint64, frame []byte, err error)
}

// Source is the sequence of durable frames that one consumer reads, and the consumer's cursor in
// it: the journal on disk, or one partition of the log in Kafka. TestSources runs the same suite on
// both.
type Source interface {
	// Reader returns a reader that starts at a frame, or at the oldest one after it.
	Reader(frame uint64) Reader
	Cursor() Cursor
	// Bounds returns the oldest frame and the one after the newest.
	Bounds() (oldest, next uint64)
	// Rows returns the number of rows that have become durable since the source was opened, and the
	// frame after them. known is false if the source does not count rows.
	Rows() (n int64, next uint64, known bool)
	// Confirm returns an error if another process may own the cursor by now. It is called before
	// each attempt of a block.
	Confirm() error
}

// Reader reads durable frames in order. It is used by one goroutine. Frame numbers may have gaps.
type Reader interface {
	// Next waits for the next frame and appends it to buf[:0]. After an error the reader does not
	// move.
	Next(ctx context.Context, buf []byte) (seq uint64, frame []byte, err error)
	// TryNext is like Next, but ok is false instead of waiting.
	TryNext(buf []byte) (seq uint64, frame []byte, ok bool, err error)
}

// Cursor is the position of a consumer, which survives restarts. Load may be called from any
// goroutine.
type Cursor interface {
	Load() (frame uint64, state []byte)
	// Save makes a position and its state durable. It fails with journal.ErrClosed if another
	// process owns the cursor.
	Save(frame uint64, state []byte) error
}

// Local returns the source that a consumer of a journal on disk reads.
func Local(j *journal.Journal, consumer string) Source { return local{j, j.Cursor(consumer)} }

type local struct {
	*journal.Journal
	cursor *journal.Cursor
}

func (l local) Reader(frame uint64) Reader { return l.Journal.Reader(frame) }
func (l local) Cursor() Cursor             { return l.cursor }
func (l local) Confirm() error             { return nil }

func (l local) Rows() (n int64, next uint64, known bool) {
	n, next = l.Journal.Rows()
	return n, next, true
}
