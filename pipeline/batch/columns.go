package batch

import (
	"encoding/hex"
	"math"
)

// ID is a batch's UUIDv7, as it stands in the Batch-Id header, in the archive
// and on every forwarded record (contract 1.3).
type ID [16]byte

// String gives the canonical 36 characters.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// NoTime stands in From and To where the text was no valid timestamp. It lies
// outside the years 1970–2261 that contract 1.2 allows.
const NoTime = math.MinInt64

// Columns holds measurements column by column; all columns have one length.
type Columns struct {
	Codes   []byte   // detector codes, one after the other
	CodeEnd []uint32 // row i's code ends here in Codes and starts at CodeEnd[i-1] (0 for i = 0)

	TypeText []byte   // the distinct measure type codes, one after the other
	TypeEnd  []uint32 // type t's text ends here in TypeText
	Type     []uint32 // row → type

	From    []int64   // start of the interval, nanoseconds since 1970 UTC
	To      []int64   // its end
	Value   []float64 // the measured value; ±Inf where the number overflows float64
	Quality []float64 // NaN where it is null or absent (JSON has no NaN of its own)
}

// Rows is the number of rows.
func (c *Columns) Rows() int { return len(c.CodeEnd) }

// Types is the number of distinct measure types.
func (c *Columns) Types() int { return len(c.TypeEnd) }

// Code is row i's detector code: a view into Codes.
func (c *Columns) Code(i int) []byte { return view(c.Codes, c.CodeEnd, i) }

// TypeCode is the text of type t: a view into TypeText.
func (c *Columns) TypeCode(t int) []byte { return view(c.TypeText, c.TypeEnd, t) }

// HasQuality tells whether row i has a quality.
func (c *Columns) HasQuality(i int) bool { return !math.IsNaN(c.Quality[i]) }

// Reset empties all columns and keeps their memory.
func (c *Columns) Reset() {
	c.Codes, c.CodeEnd = c.Codes[:0], c.CodeEnd[:0]
	c.TypeText, c.TypeEnd, c.Type = c.TypeText[:0], c.TypeEnd[:0], c.Type[:0]
	c.From, c.To = c.From[:0], c.To[:0]
	c.Value, c.Quality = c.Value[:0], c.Quality[:0]
}

// move copies row src over row dst ≤ src; the caller appends nothing between.
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

// truncate keeps the first n rows.
func (c *Columns) truncate(n int) {
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
