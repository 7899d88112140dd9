package batch

import (
	"math"
	"slices"
)

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
