// Package durable declares what the journals on disk and in Kafka have in common: the entries that
// they make durable, the errors that they return, and how their frames are read.
package durable

import (
	"context"
	"errors"
	"fmt"
)

// Errors that journals and their readers return or wrap.
var (
	// ErrFull means that a consumer is so far behind that no frame can be added.
	ErrFull = errors.New("the journal is full because a consumer is behind; check its store")
	// ErrBusy means that too many frames or bytes wait. It lasts until the next of them settle.
	ErrBusy = errors.New("the journal's queue is full because the journal is slower than the clients")
	// ErrTooLarge means that the frame exceeds the maximum size.
	ErrTooLarge = errors.New("the frame exceeds max_frame_bytes")
	// ErrClosed means that the journal is closed, or that another process may own the cursor.
	ErrClosed = errors.New("the journal is closed")
	// ErrVoided means that the frame is not in the journal and will not be after a restart.
	ErrVoided = errors.New("the frame could not be made durable and was voided")
	// ErrUnknown means that the frame may or may not be in the journal.
	ErrUnknown = errors.New("the frame could be neither made durable nor voided")
)

// Entry is a frame to write. It can be reused after Wait returns, without further allocations.
type Entry struct {
	// Data is the payload. It must not be changed from a successful Enqueue until Wait returns.
	Data []byte
	// Seq is the frame's number in the journal on disk, which Enqueue sets. Numbers are contiguous
	// from 1. Seq is valid only if Wait returns nil; the seqs of voided frames are reused.
	Seq uint64

	outcome chan error // capacity 1, so that the writer never waits for the caller of Wait
}

// Wait returns the outcome of the entry. It must be called exactly once after each successful
// Enqueue. If it returns nil, the frame is durable. See ErrVoided and ErrUnknown for failures.
func (e *Entry) Wait() error { return <-e.outcome }

// Open prepares e for Wait. An implementation of Enqueue must call Open, and later Settle exactly
// once.
func (e *Entry) Open() {
	if e.outcome == nil {
		e.outcome = make(chan error, 1)
	}
}

// Settle makes Wait return err.
func (e *Entry) Settle(err error) { e.outcome <- err }

// Reader reads durable frames in order. It is not safe for concurrent use. Frame numbers may have
// gaps.
type Reader interface {
	// Next waits for the next frame and returns it, appended to buf[:0]. With a *RecordError it returns
	// the number of the record, and the next call continues after it. After any other error, the next
	// call tries the same frame again.
	Next(ctx context.Context, buf []byte) (seq uint64, frame []byte, err error)
	// TryNext is like Next but does not wait: ok is false if the next frame is not durable yet, or with
	// an error other than a *RecordError.
	TryNext(buf []byte) (seq uint64, frame []byte, ok bool, err error)
}

// RecordError reports a record of a topic that is not an intact frame, so that it can never be
// read: another program wrote it, or it was changed.
type RecordError struct {
	Topic     string
	Partition int
	Offset    int64
	Data      []byte // value of the record
	Reason    error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("the record at offset %d of partition %d of topic %q is not an intact frame: %v",
		e.Offset, e.Partition, e.Topic, e.Reason)
}

// Cursor is the durable position of a consumer.
type Cursor interface {
	// Load returns the saved position and state. It is safe for concurrent use.
	Load() (frame uint64, state []byte)
	// Save makes a position and a state durable. It fails with ErrClosed if another process may own
	// the cursor.
	Save(frame uint64, state []byte) error
}

// CursorInfo describes a saved cursor. Err is not nil if it could not be read.
type CursorInfo struct {
	Name       string
	Seq        uint64 // first frame that the consumer still needs
	Generation uint64 // number of saves; 0 if unknown
	State      []byte
	Err        error
}

// Frame is a frame as it is stored.
type Frame struct {
	Seq     uint64
	Segment string // the file or partition
	Offset  int64  // end of the previous frame in the file, or offset in the partition
	Data    []byte // valid until the next frame is read
}
