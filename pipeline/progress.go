package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"

	"trafficd/pipeline/batch"
)

// CursorStatus is the state of a delivery's cursor in the journal. It is saved before the first
// attempt of a block, so that a restart repeats the same block.
type CursorStatus struct {
	Done  batch.Position // the sink has every row before it
	State []byte         // the sink's state there, nil before its first block
	Plan  []byte         // of the block in progress; nil if there is none
	End   batch.Position // of the block in progress
}

const progressVersion = 2

var errProgress = errors.New("invalid cursor state")

// encode returns the state that the journal stores with Done.Frame. It repeats the frame: the
// journal moves the cursor of a consumer that was not configured for a while to the oldest
// remaining frame, but keeps its state.
func (p CursorStatus) encode() []byte {
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

// DescribeCursor decodes the cursor of a delivery, for example from journal.CursorInfo. It returns
// the start of frame if the cursor was never saved, or if the journal moved it because the frames
// that its row, plan and state refer to were deleted. It returns an error if another version wrote
// the state. CursorStatus.State is a view into state.
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
		return CursorStatus{}, fmt.Errorf("cannot read a cursor at frame %d: %w", frame, err)
	}
	if p.Done.Frame != frame {
		return start, nil
	}
	return p, nil
}
