package xroute

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twpayne/go-geom"
)

// errPlain says that what stands in plain elements is no geometry.
var errPlain = errors.New("no geometry")

// FromPlain makes a geometry of plain elements, of the kind that they are. Whether it keeps the
// rules of geometries geo.Limits tell: lines may have one point here, and rings be open.
func FromPlain(p PlainGeometry) (geom.T, error) {
	b := builder{layout: geom.XY}
	if first := firstPoint(p); first != nil && first.Z != nil {
		b.layout = geom.XYZ // all others have to be like it
	}
	return b.geometry(p)
}

// firstPoint is nil where there is no point.
func firstPoint(p PlainGeometry) *PlainPoint {
	switch p := p.(type) {
	case *PlainPoint:
		return p
	case *PlainLineString:
		return firstOf(p.Points)
	case *PlainLinearRing:
		return firstOf(p.Points)
	case *PlainPolygon:
		return firstIn(p.LinearRings, func(r *PlainLinearRing) PlainGeometry { return r })
	case *PlainMultiPoint:
		return firstOf(p.Points)
	case *PlainMultiLineString:
		return firstIn(p.LineStrings, func(l *PlainLineString) PlainGeometry { return l })
	case *PlainMultiPolygon:
		return firstIn(p.Polygons, func(p *PlainPolygon) PlainGeometry { return p })
	case *PlainGeometryCollection:
		return firstIn(p.Geometries, func(g *PlainGeometry) PlainGeometry { return *g })
	}
	return nil
}

func firstOf(points []PlainPoint) *PlainPoint {
	if len(points) == 0 {
		return nil
	}
	return &points[0]
}

func firstIn[T any](list []T, plain func(*T) PlainGeometry) *PlainPoint {
	for i := range list {
		if p := firstPoint(plain(&list[i])); p != nil {
			return p
		}
	}
	return nil
}

// builder makes geometries of one layout.
type builder struct{ layout geom.Layout }

func (b builder) geometry(p PlainGeometry) (geom.T, error) {
	switch p := p.(type) {
	case *PlainPoint:
		flat, err := b.points(nil, []PlainPoint{*p})
		return geom.NewPointFlat(b.layout, flat), err
	case *PlainLineString:
		flat, err := b.points(nil, p.Points)
		return geom.NewLineStringFlat(b.layout, flat), err
	case *PlainLinearRing:
		flat, err := b.points(nil, p.Points)
		return geom.NewLinearRingFlat(b.layout, flat), err
	case *PlainPolygon:
		flat, ends, err := b.rings(nil, p.LinearRings)
		return geom.NewPolygonFlat(b.layout, flat, ends), err
	case *PlainMultiPoint:
		flat, err := b.points(nil, p.Points)
		return geom.NewMultiPointFlat(b.layout, flat), err
	case *PlainMultiLineString:
		return b.lines(p.LineStrings)
	case *PlainMultiPolygon:
		return b.polygons(p.Polygons)
	case *PlainGeometryCollection:
		return b.collection(p.Geometries)
	}
	return nil, fmt.Errorf("%w: a PlainGeometryBase has no coordinates: take one of the types that extend it", errPlain)
}

// points appends coordinates. A z that is missing is not made up.
func (b builder) points(flat []float64, points []PlainPoint) ([]float64, error) {
	if flat == nil {
		flat = make([]float64, 0, len(points)*b.layout.Stride())
	}
	for i := range points {
		p := &points[i]
		if (p.Z != nil) != (b.layout == geom.XYZ) {
			return nil, fmt.Errorf("%w: some points have a z and others have none", errPlain)
		}
		flat = append(flat, p.X, p.Y)
		if p.Z != nil {
			flat = append(flat, *p.Z)
		}
	}
	return flat, nil
}

func (b builder) rings(flat []float64, rings []PlainLinearRing) ([]float64, []int, error) {
	ends := make([]int, 0, len(rings))
	for i := range rings {
		var err error
		if flat, err = b.points(flat, rings[i].Points); err != nil {
			return nil, nil, err
		}
		ends = append(ends, len(flat))
	}
	return flat, ends, nil
}

func (b builder) lines(lines []PlainLineString) (geom.T, error) {
	var flat []float64
	ends := make([]int, 0, len(lines))
	for i := range lines {
		var err error
		if flat, err = b.points(flat, lines[i].Points); err != nil {
			return nil, err
		}
		ends = append(ends, len(flat))
	}
	return geom.NewMultiLineStringFlat(b.layout, flat, ends), nil
}

func (b builder) polygons(polygons []PlainPolygon) (geom.T, error) {
	var flat []float64
	endss := make([][]int, 0, len(polygons))
	for i := range polygons {
		var ends []int
		var err error
		if flat, ends, err = b.rings(flat, polygons[i].LinearRings); err != nil {
			return nil, err
		}
		endss = append(endss, ends)
	}
	return geom.NewMultiPolygonFlat(b.layout, flat, endss), nil
}

func (b builder) collection(members []PlainGeometry) (geom.T, error) {
	c := geom.NewGeometryCollection()
	c.MustSetLayout(b.layout) // it would have none without members
	for i, member := range members {
		g, err := b.geometry(member)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
		if err := c.Push(g); err != nil {
			return nil, fmt.Errorf("member %d: %w: %w", i, errPlain, err)
		}
	}
	return c, nil
}

// HasEmptyPoint tells whether a point has no coordinates: then there is no plain form.
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

// ToPlain makes plain elements of a geometry without empty points. Their z point into it.
func ToPlain(g geom.T) PlainGeometry {
	stride := g.Stride()
	switch g := g.(type) {
	case *geom.Point:
		return &plainPoints(g.FlatCoords(), stride)[0]
	case *geom.LineString:
		return &PlainLineString{Points: plainPoints(g.FlatCoords(), stride)}
	case *geom.LinearRing:
		return &PlainLinearRing{Points: plainPoints(g.FlatCoords(), stride)}
	case *geom.Polygon:
		return &PlainPolygon{LinearRings: plainRings(g.FlatCoords(), 0, g.Ends(), stride)}
	case *geom.MultiPoint:
		return &PlainMultiPoint{Points: plainPoints(g.FlatCoords(), stride)}
	case *geom.MultiLineString:
		return plainLines(g)
	case *geom.MultiPolygon:
		return plainPolygons(g)
	case *geom.GeometryCollection:
		members := make([]PlainGeometry, 0, g.NumGeoms())
		for _, member := range g.Geoms() {
			members = append(members, ToPlain(member))
		}
		return &PlainGeometryCollection{Geometries: members}
	}
	return &PlainGeometryBase{} // of none of the kinds
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

func plainRings(flat []float64, start int, ends []int, stride int) []PlainLinearRing {
	rings := make([]PlainLinearRing, 0, len(ends))
	for _, end := range ends {
		rings = append(rings, PlainLinearRing{Points: plainPoints(flat[start:end], stride)})
		start = end
	}
	return rings
}

func plainLines(g *geom.MultiLineString) *PlainMultiLineString {
	lines := make([]PlainLineString, 0, len(g.Ends()))
	start := 0
	for _, end := range g.Ends() {
		lines = append(lines, PlainLineString{Points: plainPoints(g.FlatCoords()[start:end], g.Stride())})
		start = end
	}
	return &PlainMultiLineString{LineStrings: lines}
}

func plainPolygons(g *geom.MultiPolygon) *PlainMultiPolygon {
	polygons := make([]PlainPolygon, 0, len(g.Endss()))
	start := 0
	for _, ends := range g.Endss() {
		polygons = append(polygons, PlainPolygon{LinearRings: plainRings(g.FlatCoords(), start, ends, g.Stride())})
		if len(ends) > 0 {
			start = ends[len(ends)-1]
		}
	}
	return &PlainMultiPolygon{Polygons: polygons}
}
