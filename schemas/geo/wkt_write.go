package geo

import "github.com/twpayne/go-geom"

// AppendWKT appends g, which has to be as Check demands it, as well-known text:
// "POINT Z (8.25 48.76 110)", "LINESTRING EMPTY".
func AppendWKT(dst []byte, g geom.T) []byte {
	dst = append(dst, wktName(g)...)
	if g.Layout() == geom.XYZ {
		dst = append(dst, " Z"...)
	}
	dst = append(dst, ' ')
	w := wktWriter{dst: dst, stride: g.Stride()}
	w.body(g)
	return w.dst
}

func wktName(g geom.T) string {
	kind := KindOf(g)
	if kind == LinearRing {
		kind = LineString
	}
	for _, k := range wktKinds {
		if k.kind == kind {
			return k.word
		}
	}
	return "GEOMETRY"
}

type wktWriter struct {
	dst    []byte
	stride int
}

func (w *wktWriter) body(g geom.T) {
	switch g := g.(type) {
	case *geom.Point, *geom.LineString, *geom.LinearRing:
		w.points(g.FlatCoords())
	case *geom.Polygon, *geom.MultiPoint, *geom.MultiLineString:
		w.lines(g.FlatCoords(), 0, g.Ends())
	case *geom.MultiPolygon:
		w.open(len(g.Endss()))
		polygons(g, func(i, start int, ends []int) {
			w.next(i)
			w.lines(g.FlatCoords(), start, ends)
		})
		w.close(len(g.Endss()))
	case *geom.GeometryCollection:
		w.open(g.NumGeoms())
		for i, member := range g.Geoms() {
			w.next(i)
			w.dst = AppendWKT(w.dst, member)
		}
		w.close(g.NumGeoms())
	}
}

func (w *wktWriter) lines(flat []float64, start int, ends []int) {
	w.open(len(ends))
	parts(flat, start, ends, func(i int, part []float64) {
		w.next(i)
		w.points(part)
	})
	w.close(len(ends))
}

func (w *wktWriter) points(flat []float64) {
	w.open(len(flat))
	for i, v := range flat {
		switch {
		case i == 0:
		case i%w.stride == 0:
			w.dst = append(w.dst, ", "...)
		default:
			w.dst = append(w.dst, ' ')
		}
		w.dst = appendNumber(w.dst, v)
	}
	w.close(len(flat))
}

// open, next and close stand around the n items of a list.
func (w *wktWriter) open(n int) {
	if n == 0 {
		w.dst = append(w.dst, "EMPTY"...)
	} else {
		w.dst = append(w.dst, '(')
	}
}

func (w *wktWriter) next(i int) {
	if i > 0 {
		w.dst = append(w.dst, ", "...)
	}
}

func (w *wktWriter) close(n int) {
	if n > 0 {
		w.dst = append(w.dst, ')')
	}
}
