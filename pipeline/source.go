package pipeline

import (
	"trafficd/pipeline/journal"
	"trafficd/pipeline/lib/durable"
)

// Journal makes accepted frames durable. It is implemented by journal.Journal (on disk) and
// kafkalog.Log (in a Kafka topic).
type Journal interface {
	// Enqueue queues a frame; durable.Entry.Wait waits until it is durable. Frames of the same product
	// instance are stored in the order of the calls. Either Enqueue or Wait may fail with
	// durable.ErrTooLarge.
	Enqueue(e *durable.Entry) error
	// Ready returns an error if Enqueue would fail now for a frame of the product instance or, if that
	// is empty, for every frame.
	Ready(productInstance string) error
}

// Ordered is a Journal whose frames must have increasing received_at. The readers of other journals
// set received_at.
type Ordered interface {
	Journal
	// Last returns the newest frame, which is nil if there is none.
	Last() (seq uint64, frame []byte, err error)
}

var _ Ordered = (*journal.Journal)(nil)

// Source is a sequence of durable frames with the cursor of one consumer: the journal on disk, or
// one partition of the log in Kafka. TestSources runs the same suite on both.
type Source interface {
	// Reader returns a reader that starts at the given frame or, if that was deleted, at the oldest
	// remaining one.
	Reader(frame uint64) durable.Reader
	Cursor() durable.Cursor
	// Bounds returns the number of the oldest frame and one more than the number of the newest.
	Bounds() (oldest, next uint64)
	// Confirm returns an error if another process may own the cursor. It is called before each
	// attempt to deliver a block.
	Confirm() error
}

// Local returns a Source that reads the journal on disk with the cursor of the given consumer.
func Local(j *journal.Journal, consumer string) Source { return local{j, j.Cursor(consumer)} }

type local struct {
	*journal.Journal
	cursor *journal.Cursor
}

func (l local) Reader(frame uint64) durable.Reader { return l.Journal.Reader(frame) }
func (l local) Cursor() durable.Cursor             { return l.cursor }
func (l local) Confirm() error                     { return nil }
