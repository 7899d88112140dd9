// Package measurement defines what package feed reads from the input and package send sends to the
// daemon. These packages do not import each other.
package measurement

import "fmt"

// Item is a measurement to be added to a batch.
type Item struct {
	// JSON is one valid JSON value. It is valid until the next item.
	JSON     []byte
	Detector string // detector code; items with the same code stay in order
	Position Position
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
