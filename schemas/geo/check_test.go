package geo_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// check checks a geometry against the rules and limits of reading, without Parts. It is an oracle
// for the readers.
func check(l geo.Limits, g *geo.Geometry) error {
	if n := geo.Count(g); n > l.Points {
		return fmt.Errorf("%d points and parts", n)
	}
	return checkMember(l, g, g.Layout)
}

func checkMember(l geo.Limits, g *geo.Geometry, layout geo.Layout) error {
	if g.Layout != layout || layout != geo.XY && layout != geo.XYZ {
		return fmt.Errorf("layout %d in %d", g.Layout, layout)
	}
	if g.Kind == geo.GeometryCollection {
		if l.Depth == 0 {
			return errors.New("collections are nested too deeply")
		}
		l.Depth--
		for _, member := range g.Members {
			if err := checkMember(l, member, layout); err != nil {
				return err
			}
		}
		return nil
	}
	for _, v := range g.Flat {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("coordinate %v", v)
		}
	}
	switch g.Kind {
	case geo.LineString:
		return checkLine(points(g, 0, len(g.Flat)))
	case geo.LinearRing:
		return checkRing(points(g, 0, len(g.Flat)))
	case geo.MultiLineString:
		return checkEach(g, 0, g.Ends, checkLine)
	case geo.Polygon:
		return checkEach(g, 0, g.Ends, checkRing)
	case geo.MultiPolygon:
		start := 0
		for _, ends := range g.Endss {
			if err := checkEach(g, start, ends, checkRing); err != nil {
				return err
			}
			if len(ends) > 0 {
				start = ends[len(ends)-1]
			}
		}
	}
	return nil
}

// points returns the points in g.Flat[start:end].
func points(g *geo.Geometry, start, end int) [][]float64 {
	return slices.Collect(slices.Chunk(g.Flat[start:end], int(g.Layout)))
}

func checkEach(g *geo.Geometry, start int, ends []int, check func([][]float64) error) error {
	for _, end := range ends {
		if err := check(points(g, start, end)); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func checkLine(line [][]float64) error {
	if len(line) == 1 {
		return errors.New("a line must have no points or at least 2, got 1")
	}
	return nil
}

func checkRing(ring [][]float64) error {
	if n := len(ring); n > 0 && (n < 4 || ring[0][0] != ring[n-1][0] || ring[0][1] != ring[n-1][1]) {
		return fmt.Errorf("ring %v", ring)
	}
	return nil
}

// TestParts checks that all parts are yielded in order, each with its position.
func TestParts(t *testing.T) {
	f := func(text string, count int, want ...string) {
		t.Helper()
		g := parsed(t, text)
		var got []string
		for p := range geo.Parts(g) {
			got = append(got, fmt.Sprintf("%s %d in %s: %d %v %v", p.Kind, p.Index, p.In, p.Len, p.Flat, p.End))
			require.Equal(t, g.Layout, p.Layout)
		}
		require.Equal(t, want, got)
		require.Equal(t, count, geo.Count(g))
		for range geo.Parts(g) { // the iterator must allow a loop to end early
			break
		}
	}
	f("POINT EMPTY", 1, "Point 0 in geometry: 0 [] false")
	f("LINESTRING Z (1 2 3, 4 5 6)", 3, "LineString 0 in geometry: 2 [1 2 3 4 5 6] false")
	f("MULTIPOINT (1 2, EMPTY)", 4, "MultiPoint 0 in geometry: 2 [] false", "Point 0 in MultiPoint: 1 [1 2] false",
		"Point 1 in MultiPoint: 0 [] false", "MultiPoint 0 in geometry: 2 [] true")
	f("MULTIPOLYGON (EMPTY, ((0 0, 1 0, 1 1, 0 0)))", 8, "MultiPolygon 0 in geometry: 2 [] false",
		"Polygon 0 in MultiPolygon: 0 [] false", "Polygon 0 in MultiPolygon: 0 [] true",
		"Polygon 1 in MultiPolygon: 1 [] false", "LinearRing 0 in Polygon: 4 [0 0 1 0 1 1 0 0] false",
		"Polygon 1 in MultiPolygon: 1 [] true", "MultiPolygon 0 in geometry: 2 [] true")
	f("GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION EMPTY)", 4, "GeometryCollection 0 in geometry: 2 [] false",
		"Point 0 in GeometryCollection: 1 [1 2] false", "GeometryCollection 1 in GeometryCollection: 0 [] false",
		"GeometryCollection 1 in GeometryCollection: 0 [] true", "GeometryCollection 0 in geometry: 2 [] true")
}
