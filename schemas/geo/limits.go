package geo

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twpayne/go-geom"
)

// Limits bound what is read. With the zero value nothing can be read.
type Limits struct {
	// Points of one geometry. Each ring, line and member counts as one more, because empty ones take
	// memory too.
	Points int
	// Depth of nested collections; 1 allows collections without collections in them.
	Depth int
	// DropMeasures makes readers drop the M of WKT and WKB, whatever its value. Otherwise it is refused.
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

// budget is what has been used of the limits.
type budget struct {
	limits      Limits
	used, depth int
}

// take counts n points or parts.
func (b *budget) take(n int) error {
	if n > b.limits.Points-b.used {
		return fmt.Errorf("%w: more than %d points and parts", ErrTooLarge, b.limits.Points)
	}
	b.used += n
	return nil
}

// enter counts a collection; leave must be called at its end.
func (b *budget) enter() error {
	b.depth++
	if b.depth > b.limits.Depth {
		return fmt.Errorf("%w: collections deeper than %d", ErrTooLarge, b.limits.Depth)
	}
	return nil
}

func (b *budget) leave() { b.depth-- }

var errMixed = errors.New("some points have a z and others have none")

// Check applies the rules and limits of reading to a geometry that was built by hand.
func (l Limits) Check(g geom.T) error {
	layout := g.Layout()
	if layout != geom.XY && layout != geom.XYZ && layout != geom.NoLayout {
		return fmt.Errorf("layout %v is not supported: points have x, y and optionally z", layout)
	}
	b := budget{limits: l}
	var around []Part
	for p := range Parts(g) {
		if p.End {
			around = around[:len(around)-1]
			if p.Kind == GeometryCollection {
				b.leave()
			}
			continue
		}
		around = append(around, p)
		if err := b.check(p, layout); err != nil {
			for _, part := range slices.Backward(around[1:]) {
				err = fmt.Errorf("%s %d: %w", map[Kind]string{
					Polygon: "ring", MultiPoint: "point", MultiLineString: "line", MultiPolygon: "polygon", GeometryCollection: "member",
				}[part.In], part.Index, err)
			}
			return err
		}
		if !p.Kind.hasParts() {
			around = around[:len(around)-1]
		}
	}
	return nil
}

func (b *budget) check(p Part, layout geom.Layout) error {
	if err := b.take(1); err != nil {
		return err
	}
	switch {
	case p.Kind == Any:
		return errors.New("unknown kind of geometry")
	case p.Kind == GeometryCollection:
		return b.enter()
	case p.Layout != layout || layout == geom.NoLayout:
		return errMixed
	case p.Kind.hasParts():
		return nil
	}
	if err := b.take(p.Len); err != nil {
		return err
	}
	for i, v := range p.Flat {
		if !finite(v) {
			return fmt.Errorf("point %d: %v is not a finite number", i/layout.Stride(), v)
		}
	}
	return checkPath(p.Kind, p.Flat, layout.Stride())
}

// checkPath checks the points of a Point, LineString or LinearRing.
func checkPath(kind Kind, flat []float64, stride int) error {
	n := len(flat)
	switch {
	case n == 0 || kind == Point:
		return nil
	case n == stride && kind == LineString:
		return errors.New("a line of 1 point: want none, or at least 2")
	case kind == LineString:
		return nil
	case n < 4*stride:
		return fmt.Errorf("a ring of %d points: want none, or at least 4", n/stride)
	case flat[0] != flat[n-stride] || flat[1] != flat[n-stride+1]:
		return fmt.Errorf("ring is not closed: it starts at (%v %v) and ends at (%v %v)",
			flat[0], flat[1], flat[n-stride], flat[n-stride+1])
	}
	return nil
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
