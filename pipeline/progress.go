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

const progressVersion = 1

var errProgress = errors.New("bad cursor")

func (p progress) planned() bool { return p.plan != nil }

// encode gives everything but done.Frame, which the journal keeps itself.
func (p progress) encode() []byte {
	b := []byte{progressVersion}
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

// decodeProgress reads a cursor; one that was never saved has no state.
func decodeProgress(frame uint64, b []byte) (progress, error) {
	p := progress{done: batch.Position{Frame: frame}}
	if len(b) == 0 {
		return p, nil
	}
	r := batch.Unpack(b, errProgress)
	r.Version(progressVersion)
	p.done.Row = uint32(r.Uvarint())
	if state := r.Counted(); len(state) > 0 {
		p.state = state
	}
	if r.Byte() == 1 {
		p.end = batch.Position{Frame: r.Uvarint(), Row: uint32(r.Uvarint())}
		p.plan = append([]byte{}, r.Counted()...)
	}
	return p, r.End()
}
