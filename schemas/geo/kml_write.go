package geo

import "github.com/twpayne/go-geom"

// AppendKML appends g, which has to be as Check demands it, as a KML document
// with one placemark.
func AppendKML(dst []byte, g geom.T) []byte {
	dst = append(dst, `<kml xmlns="http://www.opengis.net/kml/2.2">`...)
	dst = AppendPlacemark(dst, g)
	return append(dst, "</kml>"...)
}

// AppendPlacemark appends g as a placemark alone.
func AppendPlacemark(dst []byte, g geom.T) []byte {
	dst = append(dst, "<Placemark>"...)
	dst = AppendKMLGeometry(dst, g)
	return append(dst, "</Placemark>"...)
}

// AppendKMLGeometry appends g as the element of a geometry alone.
func AppendKMLGeometry(dst []byte, g geom.T) []byte {
	w := kmlWriter{dst: dst, stride: g.Stride()}
	w.geometry(g)
	return w.dst
}

type kmlWriter struct {
	dst    []byte
	stride int
}

func (w *kmlWriter) geometry(g geom.T) {
	flat := g.FlatCoords
	switch g := g.(type) {
	case *geom.Point:
		w.points("Point", flat())
	case *geom.LineString:
		w.points("LineString", flat())
	case *geom.LinearRing:
		w.points("LinearRing", flat())
	case *geom.Polygon:
		w.polygon(flat(), 0, g.Ends())
	case *geom.MultiPoint:
		w.multi(func() {
			parts(flat(), 0, g.Ends(), func(_ int, part []float64) { w.points("Point", part) })
		})
	case *geom.MultiLineString:
		w.multi(func() {
			parts(flat(), 0, g.Ends(), func(_ int, part []float64) { w.points("LineString", part) })
		})
	case *geom.MultiPolygon:
		w.multi(func() {
			polygons(g, func(_, start int, ends []int) { w.polygon(flat(), start, ends) })
		})
	case *geom.GeometryCollection:
		w.multi(func() {
			for _, member := range g.Geoms() {
				w.geometry(member)
			}
		})
	}
}

func (w *kmlWriter) multi(members func()) {
	w.text("<MultiGeometry>")
	members()
	w.text("</MultiGeometry>")
}

func (w *kmlWriter) polygon(flat []float64, start int, ends []int) {
	w.text("<Polygon>")
	parts(flat, start, ends, func(i int, part []float64) {
		boundary := "innerBoundaryIs"
		if i == 0 {
			boundary = "outerBoundaryIs"
		}
		w.text("<", boundary, ">")
		w.points("LinearRing", part)
		w.text("</", boundary, ">")
	})
	w.text("</Polygon>")
}

func (w *kmlWriter) points(element string, flat []float64) {
	w.text("<", element, "><coordinates>")
	for i, v := range flat {
		switch {
		case i == 0:
		case i%w.stride == 0:
			w.dst = append(w.dst, ' ')
		default:
			w.dst = append(w.dst, ',')
		}
		w.dst = appendNumber(w.dst, v)
	}
	w.text("</coordinates></", element, ">")
}

func (w *kmlWriter) text(parts ...string) {
	for _, part := range parts {
		w.dst = append(w.dst, part...)
	}
}
