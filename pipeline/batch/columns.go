package batch

import (
	"math"
	"slices"
)

// NoTime marks an invalid timestamp in From and To. It lies outside the years 1970–2261 that
// contract 1.2 allows.
const NoTime = math.MinInt64

// Columns holds measurements column by column; all columns have the same length.
type Columns struct {
	Codes   []byte   // concatenated detector codes
	CodeEnd []uint32 // end of row i's code in Codes; it starts at CodeEnd[i-1], or 0

	TypeText []byte   // concatenated distinct measure type codes
	TypeEnd  []uint32 // end of type t's text in TypeText
	Type     []uint32 // row → type

	From    []int64   // start of the interval, nanoseconds since 1970 UTC
	To      []int64   // its end
	Value   []float64 // ±Inf if the number overflows float64
	Quality []float64 // NaN if null or absent
}

// Rows returns the number of rows.
func (c *Columns) Rows() int { return len(c.CodeEnd) }

// Types returns the number of distinct measure types.
func (c *Columns) Types() int { return len(c.TypeEnd) }

// Code returns row i's detector code, a view into Codes.
func (c *Columns) Code(i int) []byte { return view(c.Codes, c.CodeEnd, i) }

// TypeCode returns the text of type t, a view into TypeText.
func (c *Columns) TypeCode(t int) []byte { return view(c.TypeText, c.TypeEnd, t) }

// HasQuality reports whether row i has a quality.
func (c *Columns) HasQuality(i int) bool { return !math.IsNaN(c.Quality[i]) }

// Reset empties all columns and keeps their memory.
func (c *Columns) Reset() {
	c.Codes, c.CodeEnd = c.Codes[:0], c.CodeEnd[:0]
	c.TypeText, c.TypeEnd, c.Type = c.TypeText[:0], c.TypeEnd[:0], c.Type[:0]
	c.From, c.To = c.From[:0], c.To[:0]
	c.Value, c.Quality = c.Value[:0], c.Quality[:0]
}

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

// Extend appends n rows whose contents are undefined, but not to Codes.
func (c *Columns) Extend(n int) {
	c.CodeEnd, c.Type = extend(c.CodeEnd, n), extend(c.Type, n)
	c.From, c.To = extend(c.From, n), extend(c.To, n)
	c.Value, c.Quality = extend(c.Value, n), extend(c.Quality, n)
}

func extend[T any](column []T, n int) []T { return slices.Grow(column, n)[:len(column)+n] }

// Truncate keeps the first n rows.
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
