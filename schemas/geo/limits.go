package geo

import (
	"errors"
	"fmt"
)

// Limits bound what is read. With the zero value nothing can be read.
type Limits struct {
	// Points of one geometry. Each ring, line and member counts as one more, because empty ones
	// take memory too.
	Points int
	// Depth of nested collections; 1 allows collections without collections in them.
	Depth int
	// DropMeasures makes readers drop the M of WKT and WKB, with any value. Otherwise an M is an
	// error.
	DropMeasures bool
}

// errMeasures means that a geometry has an M and Limits do not drop it.
var errMeasures = errors.New("measures (M) are not supported, only x, y and z")

// DefaultLimits returns limits for a service on an open network.
func DefaultLimits() Limits { return Limits{Points: 1_000_000, Depth: 32} }

// Validate returns an error if the limits cannot be used.
func (l Limits) Validate() error {
	const maxDepth = 1000 // the readers are recursive
	switch {
	case l.Points < 1:
		return fmt.Errorf("limit of %d points: must be at least 1", l.Points)
	case l.Depth < 1 || l.Depth > maxDepth:
		return fmt.Errorf("limit of %d for the depth of collections: must be between 1 and %d", l.Depth, maxDepth)
	}
	return nil
}

// ErrTooLarge means that a geometry exceeds the Limits.
var ErrTooLarge = errors.New("geometry is too large")
