package geo

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Part is a geometry or a part of one: a member, polygon, line, ring or point.
type Part struct {
	Kind   Kind
	In     Kind // kind of the enclosing part, Any for the geometry itself
	Index  int  // index in the enclosing part
	Len    int  // number of points or parts in this part
	Layout Layout
	Flat   []float64 // coordinates of a Point, LineString or LinearRing
	End    bool      // set when a part that can have parts is yielded a second time, after its parts
}

// Parts returns an iterator over g and all its parts, in the order in which they are encoded.
func Parts(g *Geometry) iter.Seq[Part] {
	return func(yield func(Part) bool) { walk(g, Any, 0, yield) }
}

func walk(g *Geometry, in Kind, index int, yield func(Part) bool) bool {
	p := Part{Kind: g.Kind, In: in, Index: index, Layout: g.Layout}
	switch g.Kind {
	case Polygon, MultiPoint, MultiLineString:
		return p.walk(g.Flat, 0, g.Ends, yield)
	case MultiPolygon:
		p.Len = len(g.Endss)
		if !yield(p) {
			return false
		}
		start := 0
		for i, ends := range g.Endss {
			polygon := Part{Kind: Polygon, In: MultiPolygon, Index: i, Layout: p.Layout}
			if !polygon.walk(g.Flat, start, ends, yield) {
				return false
			}
			if len(ends) > 0 {
				start = ends[len(ends)-1]
			}
		}
	case GeometryCollection:
		p.Len = len(g.Members)
		if !yield(p) {
			return false
		}
		for i, member := range g.Members {
			if !walk(member, GeometryCollection, i, yield) {
				return false
			}
		}
	default:
		p.Flat = g.Flat
		p.Len = len(p.Flat) / max(int(g.Layout), 1)
		return yield(p)
	}
	p.End = true
	return yield(p)
}

// walk yields p and its points, lines or rings. The first one starts at flat[start], and each one
// ends at the corresponding index in ends.
func (p Part) walk(flat []float64, start int, ends []int, yield func(Part) bool) bool {
	p.Len = len(ends)
	if !yield(p) {
		return false
	}
	for i, end := range ends {
		path := flat[start:end]
		if !yield(Part{Kind: kinds[p.Kind].part, In: p.Kind, Index: i, Len: len(path) / int(p.Layout), Layout: p.Layout, Flat: path}) {
			return false
		}
		start = end
	}
	p.End = true
	return yield(p)
}

// Count returns the number of points and parts of g that count against Limits.Points.
func Count(g *Geometry) int {
	n := 0
	for p := range Parts(g) {
		switch {
		case p.End:
		case p.Kind.hasParts():
			n++
		default:
			n += 1 + p.Len
		}
	}
	return n
}

// Reader is an encoding of a geometry that a Builder reads.
type Reader interface {
	// Kind reads the kind of a whole geometry or of a member of a collection.
	Kind() (Kind, error)
	// List calls part for each part of a geometry of the given kind.
	List(kind Kind, part func() error) error
	// Path appends the coordinates of a Point, LineString or LinearRing to Builder.Flat, and calls
	// Builder.Take for the points.
	Path(kind, in Kind) error
}

// Builder builds geometries from a Reader. It applies the rules for lines and rings, and Limits.
type Builder struct {
	Limits Limits
	Layout Layout // of all geometries

	Flat  []float64 // coordinates of the current geometry
	ends  []int     // of the current geometry
	endss [][]int

	used, depth int // compared with Limits.Points and Limits.Depth
}

// Read reads a geometry. It copies the coordinates if their slice has much unused capacity.
func (b *Builder) Read(from Reader) (*Geometry, error) {
	kind, err := from.Kind()
	if err == nil {
		err = b.Take(1)
	}
	if err != nil {
		return nil, err
	}
	if kind == GeometryCollection {
		if err := b.enter(); err != nil {
			return nil, err
		}
		defer b.leave()
		var members []*Geometry
		err := from.List(kind, func() error {
			g, err := b.Read(from)
			members = append(members, g)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &Geometry{Kind: kind, Layout: b.Layout, Members: members}, nil
	}
	b.Flat, b.ends, b.endss = b.Flat[:0], b.ends[:0], nil
	if err := b.part(from, kind, Any); err != nil {
		return nil, err
	}
	flat := b.Flat
	if cap(flat) > len(flat)+len(flat)/16 {
		flat = slices.Clone(flat)
	} else {
		b.Flat = nil
	}
	g := &Geometry{Kind: kind, Layout: b.Layout, Flat: flat}
	switch kind {
	case Polygon, MultiPoint, MultiLineString:
		g.Ends = slices.Clone(b.ends)
	case MultiPolygon:
		g.Endss = b.endss
	}
	return g, nil
}

func (b *Builder) part(from Reader, kind, in Kind) error {
	if !kind.hasParts() {
		start := len(b.Flat)
		if err := from.Path(kind, in); err != nil {
			return err
		}
		return checkPath(kind, b.Flat[start:], int(b.Layout))
	}
	first, empty := true, false // empty: the first part has no points
	return from.List(kind, func() error {
		if err := b.Take(1); err != nil {
			return err
		}
		if kind == MultiPolygon {
			b.ends = b.ends[:0]
		}
		start := len(b.Flat)
		err := b.part(from, kinds[kind].part, kind)
		switch points := len(b.Flat) > start; {
		case first:
			first, empty = false, !points
		case kind == Polygon && empty && points && err == nil:
			err = errors.New("the first ring of a polygon, its boundary, is empty, but another ring is not")
		}
		if kind == MultiPolygon {
			b.endss = append(b.endss, slices.Clone(b.ends))
		} else {
			b.ends = append(b.ends, len(b.Flat))
		}
		return err
	})
}

// Take counts n points or parts against Limits.Points.
func (b *Builder) Take(n int) error {
	if n > b.Limits.Points-b.used {
		return fmt.Errorf("%w: more than %d points and parts", ErrTooLarge, b.Limits.Points)
	}
	b.used += n
	return nil
}

// enter counts a collection against Limits.Depth; leave must be called at its end.
func (b *Builder) enter() error {
	b.depth++
	if b.depth > b.Limits.Depth {
		return fmt.Errorf("%w: collections nested deeper than %d", ErrTooLarge, b.Limits.Depth)
	}
	return nil
}

func (b *Builder) leave() { b.depth-- }

// Limits bounds the size of the geometries that are read. The zero value allows none.
type Limits struct {
	// Points is the maximum number of points in a geometry. Each ring, line and member counts as
	// one more, because even an empty one uses memory.
	Points int
	// Depth is the maximum nesting depth of collections. If it is 1, a collection must not
	// contain another one.
	Depth int
	// DropMeasures makes readers drop the M values in WKT and WKB, even if they are not finite.
	// If it is false, an M value is an error.
	DropMeasures bool
}

var errMeasures = errors.New("measures (M) are not supported, only x, y and z")

// DefaultLimits returns limits for a service on an open network.
func DefaultLimits() Limits { return Limits{Points: 1_000_000, Depth: 32} }

// ErrTooLarge means that a geometry exceeds Limits.
var ErrTooLarge = errors.New("geometry is too large")

var errMixed = errors.New("some points have a z coordinate and others do not")

// checkPath checks the points of a Point, LineString or LinearRing.
func checkPath(kind Kind, flat []float64, stride int) error {
	n := len(flat)
	switch {
	case n == 0 || kind == Point:
		return nil
	case n == stride && kind == LineString:
		return errors.New("a line must have no points or at least 2, got 1")
	case kind == LineString:
		return nil
	case n < 4*stride:
		return fmt.Errorf("a ring must have no points or at least 4, got %d", n/stride)
	case flat[0] != flat[n-stride] || flat[1] != flat[n-stride+1]:
		return fmt.Errorf("ring is not closed: starts at (%v %v) and ends at (%v %v)",
			flat[0], flat[1], flat[n-stride], flat[n-stride+1])
	}
	return nil
}

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }
