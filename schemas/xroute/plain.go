package xroute

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"trafficd/schemas/geo"
)

var (
	errPlain = errors.New("invalid geometry")
	errMixed = fmt.Errorf("%w: some points have a z coordinate and others do not", errPlain)
)

// FromPlain converts a plain geometry. The error wraps geo.ErrTooLarge or
// geo.ErrNotFinite where applicable.
func FromPlain(p PlainGeometry, limits geo.Limits) (*geo.Geometry, error) {
	g, err := fromPlain(p, limits, geo.XY)
	if errors.Is(err, errMixed) {
		return fromPlain(p, limits, geo.XYZ)
	}
	return g, err
}

func fromPlain(p PlainGeometry, limits geo.Limits, layout geo.Layout) (*geo.Geometry, error) {
	s := plainReader{plain: p, Builder: geo.Builder{Limits: limits, Layout: layout}}
	g, err := s.Read(&s)
	if len(s.places) > 0 {
		slices.Reverse(s.places)
		err = fmt.Errorf("%s: %w", strings.Join(s.places, ": "), err)
	}
	return g, err
}

// plainReader implements geo.Reader.
type plainReader struct {
	geo.Builder
	plain  PlainGeometry
	places []string // after an error, the parts that contain it, the innermost first
}

func (s *plainReader) Kind() (geo.Kind, error) {
	kind := kinds[reflect.TypeOf(s.plain)] // geo.Any for a PlainGeometryBase
	if kind == geo.Any {
		return kind, fmt.Errorf("%w: a PlainGeometryBase has no coordinates: use a type that extends it", errPlain)
	}
	return kind, nil
}

func (s *plainReader) List(_ geo.Kind, part func() error) error {
	each := func(name string, n int, plain func(i int) PlainGeometry) error {
		for i := range n {
			s.plain = plain(i)
			if err := part(); err != nil {
				s.places = append(s.places, name+" "+strconv.Itoa(i)) // wrapping err at each level would repeat its text
				return err
			}
		}
		return nil
	}
	switch p := s.plain.(type) {
	case *PlainMultiPoint:
		return each("point", len(p.Points), func(i int) PlainGeometry { return &p.Points[i] })
	case *PlainPolygon:
		return each("ring", len(p.LinearRings), func(i int) PlainGeometry { return &p.LinearRings[i] })
	case *PlainMultiLineString:
		return each("line", len(p.LineStrings), func(i int) PlainGeometry { return &p.LineStrings[i] })
	case *PlainMultiPolygon:
		return each("polygon", len(p.Polygons), func(i int) PlainGeometry { return &p.Polygons[i] })
	case *PlainGeometryCollection:
		return each("member", len(p.Geometries), func(i int) PlainGeometry { return p.Geometries[i] })
	}
	return nil
}

func (s *plainReader) Path(geo.Kind, geo.Kind) error {
	switch p := s.plain.(type) {
	case *PlainPoint:
		return s.points([]PlainPoint{*p})
	case *PlainLineString:
		return s.points(p.Points)
	case *PlainLinearRing:
		return s.points(p.Points)
	}
	return nil
}

func (s *plainReader) points(points []PlainPoint) error {
	if err := s.Take(len(points)); err != nil {
		return err
	}
	if s.Flat == nil {
		s.Flat = make([]float64, 0, len(points)*int(s.Layout))
	}
	for i := range points {
		p := &points[i]
		if (p.Z != nil) != (s.Layout == geo.XYZ) {
			return errMixed
		}
		s.Flat = append(s.Flat, p.X, p.Y)
		if p.Z != nil {
			s.Flat = append(s.Flat, *p.Z)
		}
		for _, v := range s.Flat[len(s.Flat)-int(s.Layout):] {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("point %d: coordinate %v is %w", i, v, geo.ErrNotFinite)
			}
		}
	}
	return nil
}

// HasEmptyPoint reports whether g has a point without coordinates, which PLAIN cannot represent.
func HasEmptyPoint(g *geo.Geometry) bool {
	for p := range geo.Parts(g) {
		if p.Kind == geo.Point && p.Len == 0 {
			return true
		}
	}
	return false
}

// ToPlain converts g, which must not contain empty points, to a plain geometry. Its Z fields point
// into the coordinates of g.
func ToPlain(g *geo.Geometry) PlainGeometry {
	flat, stride := g.Flat, int(g.Layout)
	switch g.Kind {
	case geo.GeometryCollection:
		members := make([]PlainGeometry, 0, len(g.Members))
		for _, member := range g.Members {
			members = append(members, ToPlain(member))
		}
		return &PlainGeometryCollection{Geometries: members}
	case geo.Point:
		return &plainPoints(flat, stride)[0]
	case geo.LineString:
		return &PlainLineString{Points: plainPoints(flat, stride)}
	case geo.LinearRing:
		return &PlainLinearRing{Points: plainPoints(flat, stride)}
	case geo.MultiPoint:
		return &PlainMultiPoint{Points: plainPoints(flat, stride)}
	case geo.Polygon:
		return &PlainPolygon{LinearRings: plainLines[PlainLinearRing](flat, 0, g.Ends, stride)}
	case geo.MultiLineString:
		return &PlainMultiLineString{LineStrings: plainLines[PlainLineString](flat, 0, g.Ends, stride)}
	case geo.MultiPolygon:
		polygons := make([]PlainPolygon, 0, len(g.Endss))
		start := 0
		for _, ends := range g.Endss {
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

// plainLines returns lines or rings. The first one starts at flat[start], and each one ends at the
// corresponding index in ends.
func plainLines[T PlainLineString | PlainLinearRing](flat []float64, start int, ends []int, stride int) []T {
	lines := make([]T, 0, len(ends))
	for _, end := range ends {
		lines = append(lines, T{Points: plainPoints(flat[start:end], stride)})
		start = end
	}
	return lines
}
