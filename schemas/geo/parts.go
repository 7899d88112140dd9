package geo

import (
	"iter"
	"slices"

	"github.com/twpayne/go-geom"
)

// Part is a geometry or a part of one: a member, polygon, line, ring or point.
type Part struct {
	Kind   Kind
	In     Kind // of the part around it, Any for the geometry itself
	Index  int  // in the part around it
	Len    int  // number of points, or of parts in it
	Layout geom.Layout
	Flat   []float64 // coordinates of a Point, LineString or LinearRing
	End    bool      // the second time that a part with parts in it is yielded, after them
}

// Parts yields g and all its parts in the order of the encodings.
func Parts(g geom.T) iter.Seq[Part] {
	return func(yield func(Part) bool) { walk(g, Any, 0, yield) }
}

func walk(g geom.T, in Kind, index int, yield func(Part) bool) bool {
	p := Part{Kind: KindOf(g), In: in, Index: index, Layout: g.Layout()}
	switch g := g.(type) {
	case *geom.Polygon, *geom.MultiPoint, *geom.MultiLineString:
		return p.walk(g.FlatCoords(), 0, g.Ends(), yield)
	case *geom.MultiPolygon:
		p.Len = len(g.Endss())
		if !yield(p) {
			return false
		}
		start := 0
		for i, ends := range g.Endss() {
			polygon := Part{Kind: Polygon, In: MultiPolygon, Index: i, Layout: p.Layout}
			if !polygon.walk(g.FlatCoords(), start, ends, yield) {
				return false
			}
			if len(ends) > 0 {
				start = ends[len(ends)-1]
			}
		}
	case *geom.GeometryCollection:
		p.Len = g.NumGeoms()
		if !yield(p) {
			return false
		}
		for i, member := range g.Geoms() {
			if !walk(member, GeometryCollection, i, yield) {
				return false
			}
		}
	default:
		p.Flat = g.FlatCoords()
		p.Len = len(p.Flat) / max(g.Stride(), 1)
		return yield(p)
	}
	p.End = true
	return yield(p)
}

// walk yields a part whose points or lines lie in flat, from start on.
func (p Part) walk(flat []float64, start int, ends []int, yield func(Part) bool) bool {
	p.Len = len(ends)
	if !yield(p) {
		return false
	}
	for i, end := range ends {
		path := flat[start:end]
		if !yield(Part{Kind: kinds[p.Kind].part, In: p.Kind, Index: i, Len: len(path) / p.Layout.Stride(), Layout: p.Layout, Flat: path}) {
			return false
		}
		start = end
	}
	p.End = true
	return yield(p)
}

// Count returns the number of points and parts of g, which is what Limits.Points limits.
func Count(g geom.T) int {
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

// source is an encoding of a geometry that is being read.
type source interface {
	// kind reads the kind of a whole geometry or a member of a collection.
	kind() (Kind, error)
	// list calls part for each part of a geometry of the kind.
	list(kind Kind, part func() error) error
	// path appends the coordinates of a Point, LineString or LinearRing to builder.flat.
	path(kind, in Kind) error
}

// builder makes geometries from what it reads.
type builder struct {
	budget
	layout geom.Layout // of all geometries

	// The coordinates of the current geometry.
	flat  []float64
	ends  []int
	endss [][]int
}

// geometry reads a geometry. It copies the coordinates if they would keep unused memory.
func (b *builder) geometry(from source) (geom.T, error) {
	kind, err := from.kind()
	if err == nil {
		err = b.take(1)
	}
	if err != nil {
		return nil, err
	}
	if kind == GeometryCollection {
		return b.collection(from)
	}
	b.flat, b.ends, b.endss = b.flat[:0], b.ends[:0], nil
	if err := b.part(from, kind, Any); err != nil {
		return nil, err
	}
	flat := b.flat
	if cap(flat) > len(flat)+len(flat)/16 {
		flat = slices.Clone(flat)
	} else {
		b.flat = nil
	}
	return New(kind, b.layout, flat, slices.Clone(b.ends), b.endss), nil
}

func (b *builder) collection(from source) (geom.T, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
	var members []geom.T
	err := from.list(GeometryCollection, func() error {
		g, err := b.geometry(from)
		members = append(members, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	return collect(b.layout, members), nil
}

func (b *builder) part(from source, kind, in Kind) error {
	if !kind.hasParts() {
		start := len(b.flat)
		if err := from.path(kind, in); err != nil {
			return err
		}
		return checkPath(kind, b.flat[start:], b.layout.Stride())
	}
	return from.list(kind, func() error {
		if err := b.take(1); err != nil {
			return err
		}
		if kind == MultiPolygon {
			b.ends = b.ends[:0]
		}
		err := b.part(from, kinds[kind].part, kind)
		if kind == MultiPolygon {
			b.endss = append(b.endss, slices.Clone(b.ends))
		} else {
			b.ends = append(b.ends, len(b.flat))
		}
		return err
	})
}
