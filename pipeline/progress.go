package pipeline

import (
	"encoding/binary"
	"errors"

	"trafficd/pipeline/batch"
)

// progress is what a delivery's cursor holds: up to where the store has everything, the sink's state there, and the block
// that is under way, if any. It is written before a block's first attempt, so that a restart repeats the same block.
type progress struct {
	done  batch.Position
	state []byte
	end   batch.Position // of the block under way
	plan  []byte         // nil: none is under way
}

// progressVersion is the first byte of what encode gives. Version 1 did not say which frame it was about.
const progressVersion = 2

var errProgress = errors.New("bad cursor")

func (p progress) planned() bool { return p.plan != nil }

// encode gives what the journal keeps beside done.Frame. The frame is in it nevertheless: the journal moves a consumer that
// was not named for a while to the oldest frame that is left, and leaves it this.
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

// decodeProgress reads a cursor. One that was never saved has no state; and one that the journal has moved begins anew, for
// its rows, its plan and the sink's state are about frames that are gone.
func decodeProgress(frame uint64, b []byte) (progress, error) {
	begin := progress{done: batch.Position{Frame: frame}}
	if len(b) == 0 {
		return begin, nil
	}
	p := begin
	r := batch.NewWireReader(b, errProgress)
	if b[0] == 1 {
		r.Version(1)
	} else {
		r.Version(progressVersion)
		p.done.Frame = r.Uvarint()
	}
	p.done.Row = uint32(r.Uvarint())
	if state := r.Counted(); len(state) > 0 {
		p.state = state
	}
	if r.Byte() == 1 {
		p.end = batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}
		p.plan = append([]byte{}, r.Counted()...)
	}
	err := r.End()
	if moved := p.done.Frame != frame || p.planned() && !p.done.Before(p.end); err == nil && moved {
		return begin, nil
	}
	return p, err
}
