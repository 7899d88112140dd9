package geo

import "github.com/twpayne/go-geom"

// parts calls f with the flat coordinates of each part that ends at ends.
func parts(flat []float64, start int, ends []int, f func(i int, part []float64)) {
	for i, end := range ends {
		f(i, flat[start:end])
		start = end
	}
}

// polygons calls f with the number of each polygon, where its coordinates start in
// those of g, and the ends of its rings.
func polygons(g *geom.MultiPolygon, f func(i, start int, ends []int)) {
	start := 0
	for i, ends := range g.Endss() {
		f(i, start, ends)
		if len(ends) > 0 {
			start = ends[len(ends)-1]
		}
	}
}
