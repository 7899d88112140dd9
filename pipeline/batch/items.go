package batch

import (
	"sort"

	"trafficd/schemas/contract"
)

// Items is a decoded request body: rows up to the batch limit, with their structural faults.
type Items struct {
	Columns           // one row for each item up to the batch limit
	Count   int       // items in the request, including those past the limit
	Faults  []Fault   // structural faults, ascending by row
	Raw     []RawText // invalid timestamps, ascending by row
	Text    []byte    // the text of Raw
}

// Fault holds the structural faults of an item (contract 1.2, rules 2–6). Validation decides which
// of them is reported.
type Fault struct {
	Row       uint32
	NotObject bool              // the item is not an object, and has no other fault
	LinkID    bool              // linkId is present and not null
	Duplicate contract.FieldSet // duplicate members
	Absent    contract.FieldSet // required members that are missing or null
	WrongType contract.FieldSet // members of the wrong JSON type
}

// RawText is the text of an invalid timestamp, truncated to contract.EchoLimit:
// Items.Text[Off:Off+Len].
type RawText struct {
	Row      uint32
	Field    contract.Field
	Off, Len uint32
}

// Reset removes all items. It retains their memory for reuse.
func (it *Items) Reset() {
	it.Columns.Reset()
	it.Count = 0
	it.Faults, it.Raw, it.Text = it.Faults[:0], it.Raw[:0], it.Text[:0]
}

// RawOf returns the text of a row's invalid timestamp in field f, or nil if it has none.
func (it *Items) RawOf(row int, f contract.Field) []byte {
	first := sort.Search(len(it.Raw), func(i int) bool { return it.Raw[i].Row >= uint32(row) })
	for _, r := range it.Raw[first:] {
		if r.Row != uint32(row) {
			break
		}
		if r.Field == f {
			return it.Text[r.Off : r.Off+r.Len]
		}
	}
	return nil
}

// Rejection records the first rule that an item breaks (contract 1.2).
type Rejection struct {
	Index uint32 // position in measurements
	Code  contract.Code
	Field contract.Field
	off   uint32 // start of the detail in Rejections.text
	size  uint32 // length of the detail
}

const rejectionSize = 16

// Rejections is the list of a batch's rejections, ascending by index.
type Rejections struct {
	List []Rejection
	text []byte
}

// Add appends a rejection. Indexes must be ascending. detail is the invalid input or the allowed
// range; Add keeps its first contract.EchoLimit bytes for the description.
func (r *Rejections) Add(index int, code contract.Code, field contract.Field, detail []byte) {
	off := uint32(len(r.text))
	r.text = append(r.text, detail[:min(len(detail), contract.EchoLimit)]...)
	r.List = append(r.List, Rejection{Index: uint32(index), Code: code, Field: field, off: off, size: uint32(len(r.text)) - off})
}

// Detail returns the detail that was added with rejection x.
func (r *Rejections) Detail(x Rejection) []byte { return r.text[x.off : x.off+x.size] }

// Len returns the number of rejections.
func (r *Rejections) Len() int { return len(r.List) }

// Size returns the memory that the list uses, in bytes.
func (r *Rejections) Size() int { return rejectionSize*len(r.List) + len(r.text) }

// Reset empties the list. It retains the memory for reuse.
func (r *Rejections) Reset() { r.List, r.text = r.List[:0], r.text[:0] }
