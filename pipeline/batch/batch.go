package batch

// Batch is what was accepted of one request: the rows that go to the archive
// and to the topic (contract 4).
type Batch struct {
	ID              ID
	ProductInstance string
	ReceivedAt      int64 // nanoseconds since 1970 UTC; never runs backwards on a replica
	Columns
	Index []uint32 // row → position in the request's measurements, ascending
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.ID, b.ProductInstance, b.ReceivedAt = ID{}, "", 0
	b.Columns.Reset()
	b.Index = b.Index[:0]
}

// Accept turns decoded items into the accepted batch by dropping the rejected
// rows. It swaps the columns of it and b, so that it is spent afterwards.
func (b *Batch) Accept(it *Items, r *Rejections) {
	b.Columns, it.Columns = it.Columns, b.Columns
	b.Index = b.Index[:0]
	n, next := 0, 0
	for row := range b.Rows() {
		if next < len(r.List) && r.List[next].Index == uint32(row) {
			next++
			continue
		}
		if n != row {
			b.move(n, row)
		}
		b.Index = append(b.Index, uint32(row))
		n++
	}
	b.truncate(n)
}

// Position is a place in the stream of accepted rows: row Row of frame Frame.
// Positions are ordered by frame, then by row.
type Position struct {
	Frame uint64
	Row   uint32
}

// Before tells whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.Frame < q.Frame || p.Frame == q.Frame && p.Row < q.Row
}

// Span is a run of consecutive rows of one batch: From ≤ row < To.
type Span struct {
	*Batch
	Frame    uint64 // the batch's place in the journal
	From, To int
}

// Block is a run of consecutive accepted rows over one or several batches, in
// the order of the journal: what a sink delivers in one attempt. The batches
// belong to the deliver loop; a sink may read them only during the call.
type Block []Span

// Rows is the number of rows in all spans.
func (b Block) Rows() int {
	n := 0
	for _, s := range b {
		n += s.To - s.From
	}
	return n
}

// End is the position after the last row of a block that is not empty.
func (b Block) End() Position {
	last := b[len(b)-1]
	if last.To == last.Rows() {
		return Position{Frame: last.Frame + 1}
	}
	return Position{Frame: last.Frame, Row: uint32(last.To)}
}

// Head gives the first n rows as a block that shares b's memory, but may
// shorten the last span that it takes: b itself stays whole.
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
