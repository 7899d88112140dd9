package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"

	"trafficd/pipeline/batch"
)

// progress is the state of a delivery's cursor: the position up to which the sink has everything, the sink's state there,
// and the block in progress, if any. It is saved before the first attempt of a block, so that a restart repeats the same
// block.
type progress struct {
	done  batch.Position
	state []byte
	end   batch.Position // of the block in progress
	plan  []byte         // nil: no block is in progress
}

const progressVersion = 2

var errProgress = errors.New("invalid cursor state")

func (p progress) planned() bool { return p.plan != nil }

// encode returns the state that the journal stores with done.Frame. It repeats the frame: the journal moves the cursor of a
// consumer that was not configured for a while to the oldest frame left, but keeps its state.
func (p progress) encode() []byte {
	b := []byte{progressVersion}
	b = binary.AppendUvarint(b, p.done.Frame)
	b = binary.AppendUvarint(b, uint64(p.done.Row))
	b = batch.AppendCounted(b, p.state)
	if !p.planned() {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendUvarint(b, p.end.Frame)
	b = binary.AppendUvarint(b, uint64(p.end.Row))
	return batch.AppendCounted(b, p.plan)
}

// decodeProgress starts anew at frame if the cursor was never saved, or if the journal moved it: then its row, plan and
// state refer to deleted frames.
func decodeProgress(frame uint64, b []byte) (progress, error) {
	start := progress{done: batch.Position{Frame: frame}}
	if len(b) == 0 {
		return start, nil
	}
	r := batch.NewWireReader(b, errProgress)
	r.Version(progressVersion)
	p := progress{done: batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}}
	if state := r.Counted(); len(state) > 0 {
		p.state = state
	}
	if r.Byte() == 1 {
		p.end = batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}
		p.plan = append([]byte{}, r.Counted()...)
	}
	if err := r.End(); err != nil {
		return p, err
	}
	if p.done.Frame != frame {
		return start, nil
	}
	return p, nil
}

// CursorStatus is how far a delivery has come according to its cursor in the journal.
type CursorStatus struct {
	Done  batch.Position // the sink has every row before it
	State []byte         // the sink's state, nil before its first block
	Plan  []byte         // of the block in progress; nil: there is none
	End   batch.Position // of the block in progress
}

// DescribeCursor decodes the cursor of a delivery from journal.CursorInfo, for tools that inspect a journal. A consumer
// without state is at the start of its frame. The error reports a state of another version. CursorStatus.State is a view
// into state.
func DescribeCursor(frame uint64, state []byte) (CursorStatus, error) {
	p, err := decodeProgress(frame, state)
	if err != nil {
		return CursorStatus{}, fmt.Errorf("cannot read a cursor at frame %d: %w", frame, err)
	}
	return CursorStatus{Done: p.done, State: p.state, Plan: p.plan, End: p.end}, nil
}
