package batch

// Position identifies a row in the sequence of accepted rows: row Row of frame Frame.
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
// sink delivers in one attempt. The delivery loop owns the batches; a sink may read them only until
// it returns.
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

// Head returns a block of the first n rows, or b if it has no more. The result shares its batches
// with b, which does not change.
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
