package pipeline

import (
	"fmt"

	"trafficd/pipeline/batch"
)

// Standing is how far a delivery has come, as its cursor in the journal says.
type Standing struct {
	Done  batch.Position // the store has every row before it
	State []byte         // the sink's own, nil before its first block
	Plan  []byte         // of the block under way, which ends before End; nil: none is
	End   batch.Position
}

// DescribeCursor reads what a delivery saved: the cursor's frame and state, as journal.CursorInfo has them. It is for tools
// that look at a journal from outside. Consumers that keep no state of their own stand at the start of their frame. The error
// says that another version wrote the state. Standing.State is a view into state.
func DescribeCursor(frame uint64, state []byte) (Standing, error) {
	p, err := decodeProgress(frame, state)
	if err != nil {
		return Standing{}, fmt.Errorf("cannot read a cursor at frame %d: %w", frame, err)
	}
	return Standing{Done: p.done, State: p.state, Plan: p.plan, End: p.end}, nil
}
