package geo

import (
	"fmt"

	"github.com/twpayne/go-geom"
)

// kmlCombine makes one geometry of those that were found, of the kind that is
// wanted: KML's MultiGeometry may be any of four.
func kmlCombine(found []geom.T, want Kind) (geom.T, error) {
	if len(found) == 1 {
		multi, ok := found[0].(*geom.GeometryCollection)
		if !ok && !hasMembers(want) {
			return as(found[0], want)
		}
		if ok {
			found = multi.Geoms()
		}
	}
	return combine(found, want)
}

func hasMembers(k Kind) bool {
	return k == MultiPoint || k == MultiLineString || k == MultiPolygon || k == GeometryCollection
}

func combine(members []geom.T, want Kind) (geom.T, error) {
	for i, g := range members {
		if multi, ok := g.(*geom.GeometryCollection); ok {
			var err error
			if members[i], err = combine(multi.Geoms(), Any); err != nil {
				return nil, err
			}
		}
	}
	if want == Any {
		want = commonKind(members)
	}
	switch want {
	case MultiPoint:
		multi := geom.NewMultiPoint(geom.XYZ)
		return multi, pushAll(members, want, Point, func(g geom.T) error { return multi.Push(g.(*geom.Point)) })
	case MultiLineString:
		multi := geom.NewMultiLineString(geom.XYZ)
		return multi, pushAll(members, want, LineString, func(g geom.T) error { return multi.Push(g.(*geom.LineString)) })
	case MultiPolygon:
		multi := geom.NewMultiPolygon(geom.XYZ)
		return multi, pushAll(members, want, Polygon, func(g geom.T) error { return multi.Push(g.(*geom.Polygon)) })
	case GeometryCollection:
		return collect(geom.XYZ, members), nil
	}
	return nil, kindError(commonKind(members), want)
}

// commonKind is what the members are together.
func commonKind(members []geom.T) Kind {
	common := Any
	for _, g := range members {
		multi := multiOf(KindOf(g))
		if common != Any && multi != common {
			return GeometryCollection
		}
		common = multi
	}
	if common == Any {
		return GeometryCollection
	}
	return common
}

func multiOf(k Kind) Kind {
	switch k {
	case Point:
		return MultiPoint
	case LineString, LinearRing:
		return MultiLineString
	case Polygon:
		return MultiPolygon
	}
	return GeometryCollection
}

func pushAll(members []geom.T, want, member Kind, push func(geom.T) error) error {
	for i, g := range members {
		g, err := as(g, member)
		if err != nil {
			return fmt.Errorf("member %d of a %s: %w", i, want, err)
		}
		if err := push(g); err != nil {
			return err
		}
	}
	return nil
}

// withoutZ gives g in the layout XY. It takes over the memory of g.
func withoutZ(g geom.T) geom.T {
	switch g := g.(type) {
	case *geom.Point:
		return geom.NewPointFlat(geom.XY, flatXY(g.FlatCoords()))
	case *geom.LineString:
		return geom.NewLineStringFlat(geom.XY, flatXY(g.FlatCoords()))
	case *geom.LinearRing:
		return geom.NewLinearRingFlat(geom.XY, flatXY(g.FlatCoords()))
	case *geom.Polygon:
		return geom.NewPolygonFlat(geom.XY, flatXY(g.FlatCoords()), endsXY(g.Ends()))
	case *geom.MultiPoint:
		ends := geom.NewMultiPointFlatOptionWithEnds(endsXY(g.Ends()))
		return geom.NewMultiPointFlat(geom.XY, flatXY(g.FlatCoords()), ends)
	case *geom.MultiLineString:
		return geom.NewMultiLineStringFlat(geom.XY, flatXY(g.FlatCoords()), endsXY(g.Ends()))
	case *geom.MultiPolygon:
		for _, ends := range g.Endss() {
			endsXY(ends)
		}
		return geom.NewMultiPolygonFlat(geom.XY, flatXY(g.FlatCoords()), g.Endss())
	case *geom.GeometryCollection:
		members := g.Geoms()
		for i, member := range members {
			members[i] = withoutZ(member)
		}
		return collect(geom.XY, members)
	}
	return g
}

func flatXY(flat []float64) []float64 {
	n := 0
	for i := 0; i < len(flat); i += kmlStride {
		flat[n], flat[n+1] = flat[i], flat[i+1]
		n += 2
	}
	return flat[:n]
}

func endsXY(ends []int) []int {
	for i := range ends {
		ends[i] = ends[i] / kmlStride * 2
	}
	return ends
}
