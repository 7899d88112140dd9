package measurement

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Item is one measurement as it goes into a batch.
type Item struct {
	// JSON is exactly one valid JSON value. It belongs to the producer and is
	// valid until the next item is asked for.
	JSON []byte
	// Order is the same for all items of a detector (see OrderOf): those keep
	// their sequence on the way.
	Order uint64
	Place Place
	// EndsBatch asks for the batch to be closed after this item, full or not:
	// a generator's interval is over.
	EndsBatch bool
}

// Place says where in the input an item stands, counted from 1.
type Place struct {
	Row  int64 // record of a CSV file, line of NDJSON, element of a JSON array
	Line int64 // line of the file; 0 where the format has none
}

// String names the place for a person.
func (p Place) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d", p.Line)
	}
	return fmt.Sprintf("item %d", p.Row)
}

// RowError says that one row cannot be read as a measurement; the rows after
// it can.
type RowError struct {
	Place Place
	Err   error
}

// Error implements error.
func (e *RowError) Error() string { return e.Place.String() + ": " + e.Err.Error() }

// Unwrap gives the reason.
func (e *RowError) Unwrap() error { return e.Err }

// OrderOf gives Item.Order for a detector code.
func OrderOf[T ~string | ~[]byte](code T) uint64 { return xxhash.Sum64String(string(code)) }
