package xroute

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
)

// errPlain means that plain elements are not a geometry.
var errPlain = errors.New("invalid geometry")

// FromPlain returns the geometry of plain elements. It does not check lines and rings, see geo.Limits:
// lines may have one point, rings may be open.
func FromPlain(p PlainGeometry) (geom.T, error) {
	layout := geom.XY
	for points := range paths(p) { // the first point decides for all others
		if len(points) > 0 {
			if points[0].Z != nil {
				layout = geom.XYZ
			}
			break
		}
	}
	return fromPlain(p, layout)
}

func fromPlain(p PlainGeometry, layout geom.Layout) (geom.T, error) {
	if c, ok := p.(*PlainGeometryCollection); ok {
		return fromCollection(c, layout)
	}
	kind := kindOfPlain(p)
	if kind == geo.Any {
		return nil, fmt.Errorf("%w: a PlainGeometryBase has no coordinates: use a type that extends it", errPlain)
	}
	var flat []float64
	var ends []int
	for points := range paths(p) {
		if flat == nil {
			flat = make([]float64, 0, len(points)*layout.Stride())
		}
		for i := range points {
			p := &points[i]
			if (p.Z != nil) != (layout == geom.XYZ) {
				return nil, fmt.Errorf("%w: some points have a z and others have none", errPlain)
			}
			flat = append(flat, p.X, p.Y)
			if p.Z != nil {
				flat = append(flat, *p.Z)
			}
		}
		ends = append(ends, len(flat))
	}
	var endss [][]int
	if multi, ok := p.(*PlainMultiPolygon); ok {
		for i := range multi.Polygons {
			n := len(multi.Polygons[i].LinearRings)
			endss, ends = append(endss, ends[:n:n]), ends[n:]
		}
	}
	return geo.New(kind, layout, flat, ends, endss), nil
}

func fromCollection(p *PlainGeometryCollection, layout geom.Layout) (geom.T, error) {
	c := geom.NewGeometryCollection()
	c.MustSetLayout(layout) // without members it would have none
	for i, member := range p.Geometries {
		g, err := fromPlain(member, layout)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
		if err := c.Push(g); err != nil {
			return nil, fmt.Errorf("member %d: %w: %w", i, errPlain, err)
		}
	}
	return c, nil
}

// paths returns the points of a plain geometry: of each point of a MultiPoint, each line and each ring.
func paths(p PlainGeometry) iter.Seq[[]PlainPoint] {
	return func(yield func([]PlainPoint) bool) { walk(p, yield) }
}

// walk calls yield with each path until it returns false.
func walk(p PlainGeometry, yield func([]PlainPoint) bool) bool {
	switch p := p.(type) {
	case *PlainPoint:
		return yield([]PlainPoint{*p})
	case *PlainLineString:
		return yield(p.Points)
	case *PlainLinearRing:
		return yield(p.Points)
	case *PlainMultiPoint:
		for i := range p.Points {
			if !yield(p.Points[i : i+1]) {
				return false
			}
		}
	case *PlainPolygon:
		return walkAll(p.LinearRings, func(r *PlainLinearRing) PlainGeometry { return r }, yield)
	case *PlainMultiLineString:
		return walkAll(p.LineStrings, func(l *PlainLineString) PlainGeometry { return l }, yield)
	case *PlainMultiPolygon:
		return walkAll(p.Polygons, func(p *PlainPolygon) PlainGeometry { return p }, yield)
	case *PlainGeometryCollection:
		return walkAll(p.Geometries, func(g *PlainGeometry) PlainGeometry { return *g }, yield)
	}
	return true
}

func walkAll[T any](list []T, plain func(*T) PlainGeometry, yield func([]PlainPoint) bool) bool {
	for i := range list {
		if !walk(plain(&list[i]), yield) {
			return false
		}
	}
	return true
}

// HasEmptyPoint reports whether a point of g has no coordinates: then g has no plain form.
func HasEmptyPoint(g geom.T) bool {
	switch g := g.(type) {
	case *geom.Point:
		return g.Empty()
	case *geom.MultiPoint:
		return len(g.FlatCoords()) < g.NumPoints()*g.Stride()
	case *geom.GeometryCollection:
		return slices.ContainsFunc(g.Geoms(), HasEmptyPoint)
	}
	return false
}

// ToPlain returns the plain elements of a geometry without empty points. Their z are pointers into g.
func ToPlain(g geom.T) PlainGeometry {
	if c, ok := g.(*geom.GeometryCollection); ok {
		members := make([]PlainGeometry, 0, c.NumGeoms())
		for _, member := range c.Geoms() {
			members = append(members, ToPlain(member))
		}
		return &PlainGeometryCollection{Geometries: members}
	}
	flat, stride := g.FlatCoords(), g.Stride()
	switch g := g.(type) {
	case *geom.Point:
		return &plainPoints(flat, stride)[0]
	case *geom.LineString:
		return &PlainLineString{Points: plainPoints(flat, stride)}
	case *geom.LinearRing:
		return &PlainLinearRing{Points: plainPoints(flat, stride)}
	case *geom.MultiPoint:
		return &PlainMultiPoint{Points: plainPoints(flat, stride)}
	case *geom.Polygon:
		return &PlainPolygon{LinearRings: plainLines[PlainLinearRing](flat, 0, g.Ends(), stride)}
	case *geom.MultiLineString:
		return &PlainMultiLineString{LineStrings: plainLines[PlainLineString](flat, 0, g.Ends(), stride)}
	case *geom.MultiPolygon:
		polygons := make([]PlainPolygon, 0, len(g.Endss()))
		start := 0
		for _, ends := range g.Endss() {
			polygons = append(polygons, PlainPolygon{LinearRings: plainLines[PlainLinearRing](flat, start, ends, stride)})
			if len(ends) > 0 {
				start = ends[len(ends)-1]
			}
		}
		return &PlainMultiPolygon{Polygons: polygons}
	}
	return &PlainGeometryBase{} // an unknown kind
}

func plainPoints(flat []float64, stride int) []PlainPoint {
	points := make([]PlainPoint, 0, len(flat)/max(stride, 1))
	for at := 0; at < len(flat); at += stride {
		p := PlainPoint{X: flat[at], Y: flat[at+1]}
		if stride > 2 {
			p.Z = &flat[at+2]
		}
		points = append(points, p)
	}
	return points
}

// plainLines returns the lines or rings from start on that end at ends.
func plainLines[T PlainLineString | PlainLinearRing](flat []float64, start int, ends []int, stride int) []T {
	lines := make([]T, 0, len(ends))
	for _, end := range ends {
		lines = append(lines, T{Points: plainPoints(flat[start:end], stride)})
		start = end
	}
	return lines
}
