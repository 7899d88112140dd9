package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"

	"trafficd/pipeline/batch"
)

// CursorStatus is the progress of a delivery, which its cursor holds. It is saved before the first
// attempt to deliver a block, so that the same block is repeated after a restart.
type CursorStatus struct {
	Done  batch.Position // all rows before it are delivered or in the dead-letter file
	State []byte         // the sink's state at Done, nil before its first block
	Plan  []byte         // plan of the block in progress, nil if there is none
	End   batch.Position // end of the block in progress
}

const progressVersion = 1

var errProgress = errors.New("invalid cursor state")

// Encode returns the cursor state to save together with Done.Frame. The state repeats the frame,
// because the journal may move a cursor to the oldest frame without changing the state; see
// journal.Cursor.Load.
func (p CursorStatus) Encode() []byte {
	b := []byte{progressVersion}
	b = binary.AppendUvarint(b, p.Done.Frame)
	b = binary.AppendUvarint(b, uint64(p.Done.Row))
	b = batch.AppendCounted(b, p.State)
	if p.Plan == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendUvarint(b, p.End.Frame)
	b = binary.AppendUvarint(b, uint64(p.End.Row))
	return batch.AppendCounted(b, p.Plan)
}

// DescribeCursor decodes a delivery's cursor, given its frame and state from Cursor.Load or a
// durable.CursorInfo. If the cursor was never saved, or the journal moved it because frames were
// deleted, the result is the start of frame, with no state or plan. The result's State aliases
// state.
func DescribeCursor(frame uint64, state []byte) (CursorStatus, error) {
	start := CursorStatus{Done: batch.Position{Frame: frame}}
	if len(state) == 0 {
		return start, nil
	}
	r := batch.NewWireReader(state, errProgress)
	r.Version(progressVersion)
	p := CursorStatus{Done: batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}}
	if s := r.Counted(); len(s) > 0 {
		p.State = s
	}
	if r.Byte() == 1 {
		p.End = batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}
		p.Plan = append([]byte{}, r.Counted()...)
	}
	if err := r.End(); err != nil {
		return CursorStatus{}, fmt.Errorf("cannot read the cursor at frame %d: %w", frame, err)
	}
	if p.Done.Frame != frame {
		return start, nil
	}
	return p, nil
}
