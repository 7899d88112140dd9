// Package measurement defines measurements to be sent to the daemon as JSON (contract 5.1).
// Packages feed and generate produce items, and package send consumes them; these packages do not
// import each other.
package measurement

import (
	"fmt"
	"time"

	"github.com/go-faster/jx"
)

// Names of the members of a measurement (contract 5.1).
const (
	DetectorCode    = "detectorCode"
	MeasureTypeCode = "measureTypeCode"
	TimestampFrom   = "timestampFrom"
	TimestampTo     = "timestampTo"
	Value           = "value"
	Quality         = "quality"
)

// Fields holds the members of a measurement. The byte slices hold JSON text without quotes.
type Fields struct {
	Detector string // any valid UTF-8
	Type     string // any valid UTF-8
	From, To []byte // see AppendTime
	Value    []byte // a JSON number
	Quality  []byte // a JSON number, or empty

	writer jx.Writer // a field, to avoid an allocation
}

// AppendJSON appends the measurement as a JSON object.
func (f *Fields) AppendJSON(dst []byte) []byte {
	w := &f.writer
	w.Buf = append(dst, `{"detectorCode":`...)
	w.Str(f.Detector)
	w.RawStr(`,"measureTypeCode":`)
	w.Str(f.Type)
	w.RawStr(`,"timestampFrom":"`)
	w.Raw(f.From)
	w.RawStr(`","timestampTo":"`)
	w.Raw(f.To)
	w.RawStr(`","value":`)
	w.Raw(f.Value)
	if len(f.Quality) > 0 {
		w.RawStr(`,"quality":`)
		w.Raw(f.Quality)
	}
	return append(w.Buf, '}')
}

// AppendTime appends t in UTC as RFC 3339, with a fraction only if it has one.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339Nano)
}

// Item is a measurement to be added to a batch.
type Item struct {
	// JSON is one valid JSON value. It is valid until the next item.
	JSON     []byte
	Detector string // detector code; items with the same code stay in order
	Position Position
	// StartsBatch reports whether to close all open batches before this item. Package generate sets it
	// at the start of an interval.
	StartsBatch bool
}

// Position is the position of an item in the input, counted from 1.
type Position struct {
	Row  int64 // record of a CSV file, non-blank line of NDJSON, element of a JSON array
	Line int64 // line of the file; 0 if the format has none
}

// String implements fmt.Stringer.
func (p Position) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d", p.Line)
	}
	return fmt.Sprintf("item %d", p.Row)
}

// RowError reports a row that cannot be read as a measurement. Reading can continue after it.
type RowError struct {
	Position Position
	Err      error
}

// Error implements error.
func (e *RowError) Error() string { return e.Position.String() + ": " + e.Err.Error() }
