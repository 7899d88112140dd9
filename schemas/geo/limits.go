package geo

import (
	"errors"
	"fmt"
	"math"

	"github.com/twpayne/go-geom"
)

// Limits bound what is read. The zero value lets nothing through.
type Limits struct {
	// Points of one geometry. Each of its rings, lines and members counts as one
	// more: the empty ones take memory too.
	Points int
	// Depth of collections within collections; 1 allows those without.
	Depth int
}

// DefaultLimits are for a service on the open network.
func DefaultLimits() Limits { return Limits{Points: 1_000_000, Depth: 32} }

// Validate gives the reason why limits cannot be used.
func (l Limits) Validate() error {
	const deepest = 1000 // the readers call themselves once for each level
	switch {
	case l.Points < 1:
		return fmt.Errorf("limit of %d points: at least 1 is needed", l.Points)
	case l.Depth < 1 || l.Depth > deepest:
		return fmt.Errorf("limit of %d for the depth of collections has to be within 1 and %d", l.Depth, deepest)
	}
	return nil
}

// ErrTooLarge says that a geometry goes beyond the Limits.
var ErrTooLarge = errors.New("geometry is too large")

// budget is what is left of the limits.
type budget struct {
	limits      Limits
	used, depth int
}

func (b *budget) take(n int) error {
	if n > b.limits.Points-b.used {
		return fmt.Errorf("%w: more than %d points and parts", ErrTooLarge, b.limits.Points)
	}
	b.used += n
	return nil
}

// deeper is called at the start of a collection, and leave at its end.
func (b *budget) deeper() error {
	b.depth++
	if b.depth > b.limits.Depth {
		return fmt.Errorf("%w: collections deeper than %d", ErrTooLarge, b.limits.Depth)
	}
	return nil
}

func (b *budget) leave() { b.depth-- }

// Check holds a geometry that was built by hand, not read, against the rules
// and the limits that hold for one that is read.
func (l Limits) Check(g geom.T) error {
	if layout := g.Layout(); layout != geom.XY && layout != geom.XYZ && layout != geom.NoLayout {
		return fmt.Errorf("layout %v: points have x, y and perhaps z", layout)
	}
	b := budget{limits: l}
	return b.check(g, g.Layout())
}

func (b *budget) check(g geom.T, layout geom.Layout) error {
	if err := b.take(1); err != nil {
		return err
	}
	if c, ok := g.(*geom.GeometryCollection); ok {
		return b.checkMembers(c, layout)
	}
	if g.Layout() != layout || layout == geom.NoLayout {
		return errMixed
	}
	stride := g.Stride()
	if err := b.take(len(g.FlatCoords()) / stride); err != nil {
		return err
	}
	for i, v := range g.FlatCoords() {
		if !finite(v) {
			return fmt.Errorf("point %d: %v is no finite number", i/stride, v)
		}
	}
	return b.checkParts(g)
}

var errMixed = errors.New("some points have a z and others have none")

func (b *budget) checkMembers(c *geom.GeometryCollection, layout geom.Layout) error {
	if err := b.deeper(); err != nil {
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

func (b *budget) checkParts(g geom.T) error {
	flat, stride := g.FlatCoords(), g.Stride()
	switch g := g.(type) {
	case *geom.Point:
		return nil
	case *geom.LineString:
		return checkLine(flat, stride)
	case *geom.LinearRing:
		return checkRing(flat, stride)
	case *geom.Polygon:
		return b.eachPart(flat, 0, g.Ends(), stride, "ring", checkRing)
	case *geom.MultiPoint:
		return b.take(g.NumPoints())
	case *geom.MultiLineString:
		return b.eachPart(flat, 0, g.Ends(), stride, "line", checkLine)
	case *geom.MultiPolygon:
		start := 0
		for i, ends := range g.Endss() {
			if err := b.take(1); err != nil {
				return err
			}
			if err := b.eachPart(flat, start, ends, stride, "ring", checkRing); err != nil {
				return fmt.Errorf("polygon %d: %w", i, err)
			}
			if len(ends) > 0 {
				start = ends[len(ends)-1]
			}
		}
		return nil
	}
	return fmt.Errorf("%T is none of the kinds of geometry", g)
}

func (b *budget) eachPart(flat []float64, start int, ends []int, stride int, noun string, check func([]float64, int) error) error {
	if err := b.take(len(ends)); err != nil {
		return err
	}
	for i, end := range ends {
		if err := check(flat[start:end], stride); err != nil {
			return fmt.Errorf("%s %d: %w", noun, i, err)
		}
		start = end
	}
	return nil
}

func checkLine(flat []float64, stride int) error {
	if len(flat) == stride {
		return errors.New("a line of 1 point: it has none, or at least 2")
	}
	return nil
}

func checkRing(flat []float64, stride int) error {
	n := len(flat)
	switch {
	case n == 0:
		return nil
	case n < 4*stride:
		return fmt.Errorf("a ring of points: %d: it has none, or at least 4", n/stride)
	case flat[0] != flat[n-stride] || flat[1] != flat[n-stride+1]:
		return fmt.Errorf("a ring is not closed: it begins at (%v %v) and ends at (%v %v)",
			flat[0], flat[1], flat[n-stride], flat[n-stride+1])
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
