package measurement

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Item is one measurement as it goes into a batch.
type Item struct {
	// JSON is one valid JSON value. It is valid until the next item.
	JSON []byte
	// Order is equal for all items of a detector (see OrderOf), whose order is preserved.
	Order uint64
	Place Place
	// EndsBatch closes the batch after this item: a generator's interval is complete.
	EndsBatch bool
}

// Place is the position of an item in the input, counted from 1.
type Place struct {
	Row  int64 // record of a CSV file, line of NDJSON, element of a JSON array
	Line int64 // line of the file; 0 if the format has none
}

// String implements fmt.Stringer.
func (p Place) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d", p.Line)
	}
	return fmt.Sprintf("item %d", p.Row)
}

// RowError reports a row that cannot be read as a measurement. Later rows can be.
type RowError struct {
	Place Place
	Err   error
}

// Error implements error.
func (e *RowError) Error() string { return e.Place.String() + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *RowError) Unwrap() error { return e.Err }

// OrderOf returns Item.Order for a detector code.
func OrderOf[T ~string | ~[]byte](code T) uint64 { return xxhash.Sum64String(string(code)) }
