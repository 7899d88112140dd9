package geo

import (
	"errors"
	"fmt"
	"math"

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

// Check applies the rules and limits of reading to a geometry that was built by hand.
func (l Limits) Check(g geom.T) error {
	if layout := g.Layout(); layout != geom.XY && layout != geom.XYZ && layout != geom.NoLayout {
		return fmt.Errorf("layout %v is not supported: points have x, y and optionally z", layout)
	}
	b := budget{limits: l}
	return b.check(g, g.Layout())
}

var errMixed = errors.New("some points have a z and others have none")

func (b *budget) check(g geom.T, layout geom.Layout) error {
	if err := b.take(1); err != nil {
		return err
	}
	if c, ok := g.(*geom.GeometryCollection); ok {
		if err := b.enter(); err != nil {
			return err
		}
		defer b.leave()
		for i, member := range c.Geoms() {
			if err := b.check(member, layout); err != nil {
				return fmt.Errorf("member %d: %w", i, err)
			}
		}
		return nil
	}
	if g.Layout() != layout || layout == geom.NoLayout {
		return errMixed
	}
	flat, stride := g.FlatCoords(), g.Stride()
	if err := b.take(len(flat) / stride); err != nil {
		return err
	}
	for i, v := range flat {
		if !finite(v) {
			return fmt.Errorf("point %d: %v is not a finite number", i/stride, v)
		}
	}
	switch KindOf(g) {
	case Point:
		return nil
	case LineString:
		return checkLine(flat, stride)
	case LinearRing:
		return checkRing(flat, stride)
	case MultiPoint:
		return b.take(len(g.Ends()))
	case Polygon:
		return b.checkParts("ring", flat, 0, g.Ends(), stride, checkRing)
	case MultiLineString:
		return b.checkParts("line", flat, 0, g.Ends(), stride, checkLine)
	case MultiPolygon:
		err := b.take(len(g.Endss()))
		polygons(g.Endss(), func(i, start int, ends []int) {
			if err == nil {
				if err = b.checkParts("ring", flat, start, ends, stride, checkRing); err != nil {
					err = fmt.Errorf("polygon %d: %w", i, err)
				}
			}
		})
		return err
	}
	return fmt.Errorf("unknown kind of geometry %T", g)
}

func (b *budget) checkParts(part string, flat []float64, start int, ends []int, stride int, check func([]float64, int) error) error {
	err := b.take(len(ends))
	parts(flat, start, ends, func(i int, points []float64) {
		if err == nil {
			if err = check(points, stride); err != nil {
				err = fmt.Errorf("%s %d: %w", part, i, err)
			}
		}
	})
	return err
}

func checkLine(flat []float64, stride int) error {
	if len(flat) == stride {
		return errors.New("a line of 1 point: want none, or at least 2")
	}
	return nil
}

func checkRing(flat []float64, stride int) error {
	n := len(flat)
	switch {
	case n == 0:
		return nil
	case n < 4*stride:
		return fmt.Errorf("a ring of %d points: want none, or at least 4", n/stride)
	case flat[0] != flat[n-stride] || flat[1] != flat[n-stride+1]:
		return fmt.Errorf("ring is not closed: it starts at (%v %v) and ends at (%v %v)",
			flat[0], flat[1], flat[n-stride], flat[n-stride+1])
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
