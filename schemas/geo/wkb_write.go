package geo

import (
	"encoding/binary"
	"math"

	"github.com/twpayne/go-geom"
)

// AppendWKB appends g, which has to be as Check demands it, as well-known binary
// of the ISO: Z is 1000 more in the type code. The order is binary.LittleEndian or
// binary.BigEndian. An SRID is not written.
func AppendWKB(dst []byte, g geom.T, order binary.AppendByteOrder) []byte {
	w := wkbWriter{dst: dst, order: order, layout: g.Layout()}
	w.geometry(g)
	return w.dst
}

type wkbWriter struct {
	dst    []byte
	order  binary.AppendByteOrder
	layout geom.Layout
}

func (w *wkbWriter) geometry(g geom.T) {
	switch g := g.(type) {
	case *geom.Point:
		w.point(g.FlatCoords())
	case *geom.LineString, *geom.LinearRing:
		w.header(LineString)
		w.points(g.FlatCoords())
	case *geom.Polygon:
		w.header(Polygon)
		w.rings(g.FlatCoords(), 0, g.Ends())
	case *geom.MultiPoint:
		w.header(MultiPoint)
		w.count(len(g.Ends()))
		parts(g.FlatCoords(), 0, g.Ends(), func(_ int, part []float64) { w.point(part) })
	case *geom.MultiLineString:
		w.header(MultiLineString)
		w.count(len(g.Ends()))
		parts(g.FlatCoords(), 0, g.Ends(), func(_ int, part []float64) {
			w.header(LineString)
			w.points(part)
		})
	case *geom.MultiPolygon:
		w.header(MultiPolygon)
		w.count(len(g.Endss()))
		polygons(g, func(_, start int, ends []int) {
			w.header(Polygon)
			w.rings(g.FlatCoords(), start, ends)
		})
	case *geom.GeometryCollection:
		w.header(GeometryCollection)
		w.count(g.NumGeoms())
		for _, member := range g.Geoms() {
			w.geometry(member)
		}
	}
}

func (w *wkbWriter) header(kind Kind) {
	code := uint32(kind)
	if w.layout == geom.XYZ {
		code += isoStep
	}
	w.dst = w.order.AppendUint16(w.dst, littleEndian) // its first byte is 1 in the one order and 0 in the other
	w.dst = w.order.AppendUint32(w.dst[:len(w.dst)-1], code)
}

func (w *wkbWriter) count(n int) { w.dst = w.order.AppendUint32(w.dst, uint32(n)) }

// point writes one that is empty as not-a-number, as PostGIS and GEOS do.
func (w *wkbWriter) point(flat []float64) {
	w.header(Point)
	w.floats(flat)
	if len(flat) == 0 {
		for range w.layout.Stride() {
			w.dst = w.order.AppendUint64(w.dst, geom.PointEmptyCoordHex)
		}
	}
}

func (w *wkbWriter) points(flat []float64) {
	w.count(len(flat) / w.layout.Stride())
	w.floats(flat)
}

func (w *wkbWriter) floats(flat []float64) {
	for _, v := range flat {
		w.dst = w.order.AppendUint64(w.dst, math.Float64bits(v))
	}
}

func (w *wkbWriter) rings(flat []float64, start int, ends []int) {
	w.count(len(ends))
	parts(flat, start, ends, func(_ int, part []float64) { w.points(part) })
}
