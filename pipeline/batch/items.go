package batch

import (
	"math"
	"slices"
	"sort"

	"trafficd/schemas/contract"
)

// Items is a decoded request body: rows up to the batch limit, with their structural faults.
type Items struct {
	Columns           // one row for each item up to the batch limit
	Count   int       // items in the request, including those past the limit
	Faults  []Fault   // structural faults, ascending by row
	Raw     []RawText // what descriptions quote, ascending by row
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

// First returns the first rule that the item breaks, and the member that breaks it.
func (f *Fault) First() (contract.Code, contract.Field) {
	switch {
	case f.NotObject: // 2
		return contract.InvalidType, contract.FieldItem
	case f.Duplicate != 0: // 3
		return contract.DuplicateField, f.Duplicate.First()
	case f.LinkID: // 4
		return contract.ReservedField, contract.FieldLinkID
	case f.Absent != 0: // 5
		return contract.MissingField, f.Absent.First()
	case f.WrongType != 0: // 6
		return contract.InvalidType, f.WrongType.First()
	}
	return contract.OK, contract.FieldItem
}

// Without returns the faults of the item except those of some members.
func (f Fault) Without(ignored contract.FieldSet) Fault {
	f.LinkID = f.LinkID && !ignored.Has(contract.FieldLinkID)
	f.Duplicate &^= ignored
	f.Absent &^= ignored
	f.WrongType &^= ignored
	return f
}

// RawText is a text of the input that the description of a rejection quotes, truncated to
// contract.EchoLimit, Items.Text[Off:Off+Len]: an invalid timestamp, the JSON value that breaks a
// rule of Fault or, for an absent member, the name of a similar one.
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

// Quote adds a text of field f of the row that is decoded now.
func (it *Items) Quote(row int, f contract.Field, text []byte) {
	off := len(it.Text)
	it.Text = append(it.Text, text[:min(len(text), contract.EchoLimit)]...)
	it.Raw = append(it.Raw, RawText{Row: uint32(row), Field: f, Off: uint32(off), Len: uint32(len(it.Text) - off)})
}

// RawOf returns the text that was added for field f of a row, or nil if there is none.
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

// Rejections is the list of a batch's rejections, ascending by index. An item has one, or several
// if the submission asks for all errors.
type Rejections struct {
	List []Rejection
	text []byte
}

// Add appends a rejection. Indexes must not descend. detail is that of contract.AppendDetail; Add
// copies it.
func (r *Rejections) Add(index int, code contract.Code, field contract.Field, detail []byte) {
	off := uint32(len(r.text))
	r.text = append(r.text, detail[:min(len(detail), contract.DetailLimit)]...)
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

// NoTime marks an invalid timestamp in From or To. No valid timestamp has this value, because
// contract 1.2 allows none before 1970.
const NoTime = math.MinInt64

// Columns holds measurements column by column. CodeEnd, Type, From, To, Value and Quality have one
// entry per row.
type Columns struct {
	Codes   []byte   // concatenated detector codes
	CodeEnd []uint32 // row i's code is Codes[CodeEnd[i-1]:CodeEnd[i]]; the code of row 0 starts at 0

	TypeText []byte   // concatenated distinct measure type codes
	TypeEnd  []uint32 // end of type t's text in TypeText
	Type     []uint32 // row → type

	From    []int64   // start of the interval, nanoseconds since the Unix epoch
	To      []int64   // end of the interval
	Value   []float64 // ±Inf if the number overflows a float64
	Quality []float64 // NaN if null or absent
}

// Rows returns the number of rows.
func (c *Columns) Rows() int { return len(c.CodeEnd) }

// Types returns the number of distinct measure types.
func (c *Columns) Types() int { return len(c.TypeEnd) }

// Code returns the detector code of row i, a view into Codes.
func (c *Columns) Code(i int) []byte { return view(c.Codes, c.CodeEnd, i) }

// TypeCode returns the text of type t, a view into TypeText.
func (c *Columns) TypeCode(t int) []byte { return view(c.TypeText, c.TypeEnd, t) }

// HasQuality reports whether row i has a quality that is not null.
func (c *Columns) HasQuality(i int) bool { return !math.IsNaN(c.Quality[i]) }

// Reset empties all columns. It retains their memory for reuse.
func (c *Columns) Reset() {
	c.Codes, c.CodeEnd = c.Codes[:0], c.CodeEnd[:0]
	c.TypeText, c.TypeEnd, c.Type = c.TypeText[:0], c.TypeEnd[:0], c.Type[:0]
	c.From, c.To = c.From[:0], c.To[:0]
	c.Value, c.Quality = c.Value[:0], c.Quality[:0]
}

// move copies row src to row dst, which must be earlier.
func (c *Columns) move(dst, src int) {
	code := c.Code(src)
	start := uint32(0)
	if dst > 0 {
		start = c.CodeEnd[dst-1]
	}
	c.CodeEnd[dst] = start + uint32(copy(c.Codes[start:], code))
	c.Type[dst] = c.Type[src]
	c.From[dst], c.To[dst] = c.From[src], c.To[src]
	c.Value[dst], c.Quality[dst] = c.Value[src], c.Quality[src]
}

// Extend appends n rows with undefined contents. It does not extend Codes.
func (c *Columns) Extend(n int) {
	c.CodeEnd, c.Type = extend(c.CodeEnd, n), extend(c.Type, n)
	c.From, c.To = extend(c.From, n), extend(c.To, n)
	c.Value, c.Quality = extend(c.Value, n), extend(c.Quality, n)
}

func extend[T any](column []T, n int) []T { return slices.Grow(column, n)[:len(column)+n] }

// Truncate removes all rows but the first n.
func (c *Columns) Truncate(n int) {
	c.CodeEnd, c.Type = c.CodeEnd[:n], c.Type[:n]
	c.From, c.To = c.From[:n], c.To[:n]
	c.Value, c.Quality = c.Value[:n], c.Quality[:n]
	end := uint32(0)
	if n > 0 {
		end = c.CodeEnd[n-1]
	}
	c.Codes = c.Codes[:end]
}

func view(text []byte, ends []uint32, i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = ends[i-1]
	}
	return text[start:ends[i]:ends[i]]
}
