package batch

// Position is a position in the sequence of accepted rows: that of row Row of frame Frame.
type Position struct {
	Frame uint64
	Row   uint32
}

// Before reports whether p precedes q.
func (p Position) Before(q Position) bool {
	return p.Frame < q.Frame || p.Frame == q.Frame && p.Row < q.Row
}

// Span is a run of consecutive rows of one batch: From ≤ row < To.
type Span struct {
	*Batch
	Frame    uint64 // the batch's frame in the journal
	From, To int
}

// Block is a run of consecutive accepted rows of one or more batches, in journal order, which a
// sink delivers in one attempt. The batches belong to the delivery loop; a sink may read them only
// during the call.
type Block []Span

// Rows returns the number of rows in all spans.
func (b Block) Rows() int {
	n := 0
	for _, s := range b {
		n += s.To - s.From
	}
	return n
}

// End returns the position after the last row of a non-empty block.
func (b Block) End() Position {
	last := b[len(b)-1]
	if last.To == last.Rows() {
		return Position{Frame: last.Frame + 1}
	}
	return Position{Frame: last.Frame, Row: uint32(last.To)}
}

// Head returns a block of the first n rows, or of all if there are fewer. The batches are shared
// with b, which is not changed.
func (b Block) Head(n int) Block {
	for i, s := range b {
		if n < s.To-s.From {
			head := append(Block(nil), b[:i]...)
			if n > 0 {
				s.To = s.From + n
				head = append(head, s)
			}
			return head
		}
		n -= s.To - s.From
	}
	return b
}
