package batch

import "trafficd/schemas/contract"

// Items is what decoding makes of a request body: the rows up to the batch
// limit, and what was structurally wrong with some of them.
type Items struct {
	Columns         // one row for each of the first min(Count, limit) items
	Count   int     // items in the request, those past the limit included
	Faults  []Fault // structural faults, ascending by row; few or none
	Raw     []RawText
	Text    []byte // what Raw points into
}

// Fault holds the structural findings on one item. Which rule it breaks first
// is for validation to say (contract 1.2, rules 2–6).
type Fault struct {
	Row       uint32
	NoObject  bool              // the item is no object; nothing else is set
	LinkID    bool              // linkId is there and not null
	Twice     contract.FieldSet // members that stand more than once
	Absent    contract.FieldSet // required members that are missing or null
	WrongType contract.FieldSet // members that are there, not null, and of another JSON type
}

// RawText keeps up to EchoLimit bytes of a timestamp that is none, so that the
// rejection can repeat it.
type RawText struct {
	Row      uint32
	Field    contract.Field
	Off, Len uint32
}

// Reset empties the items and keeps their memory.
func (it *Items) Reset() {
	it.Columns.Reset()
	it.Count = 0
	it.Faults, it.Raw, it.Text = it.Faults[:0], it.Raw[:0], it.Text[:0]
}

// RawOf is the kept text of a bad timestamp, nil if there is none.
func (it *Items) RawOf(row int, f contract.Field) []byte {
	lo, hi := 0, len(it.Raw)
	for lo < hi { // ascending by row
		mid := (lo + hi) / 2
		if it.Raw[mid].Row < uint32(row) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for ; lo < len(it.Raw) && it.Raw[lo].Row == uint32(row); lo++ {
		if r := it.Raw[lo]; r.Field == f {
			return it.Text[r.Off : r.Off+r.Len]
		}
	}
	return nil
}

// Rejection is the outcome of one invalid item: the first rule that it breaks
// (contract 1.2).
type Rejection struct {
	Index uint32 // position in measurements
	Code  contract.Code
	Field contract.Field
	off   uint32
	size  uint32
}

// rejectionSize is the memory of one, in bytes.
const rejectionSize = 16

// Rejections is the list of a batch, ascending by index.
type Rejections struct {
	List []Rejection
	text []byte
}

// Add appends a rejection; echo, cut to contract.EchoLimit, is what of the input its
// description repeats (nil for nothing). Indexes have to come in ascending order.
func (r *Rejections) Add(index int, code contract.Code, field contract.Field, echo []byte) {
	off := uint32(len(r.text))
	r.text = append(r.text, echo[:min(len(echo), contract.EchoLimit)]...)
	r.List = append(r.List, Rejection{Index: uint32(index), Code: code, Field: field, off: off, size: uint32(len(r.text)) - off})
}

// Echo is the input that rejection x of this list repeats, cut to EchoLimit.
func (r *Rejections) Echo(x Rejection) []byte { return r.text[x.off : x.off+x.size] }

// Len is the number of rejections.
func (r *Rejections) Len() int { return len(r.List) }

// Size is how many bytes of memory the list takes.
func (r *Rejections) Size() int { return rejectionSize*len(r.List) + len(r.text) }

// Reset empties the list and keeps its memory.
func (r *Rejections) Reset() { r.List, r.text = r.List[:0], r.text[:0] }
