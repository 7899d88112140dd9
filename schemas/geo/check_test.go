package geo_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twpayne/go-geom"

	"trafficd/schemas/geo"
)

// check checks a geometry against the rules and limits of reading, using only the methods of the
// library. It is an oracle for the readers.
func check(l geo.Limits, g geom.T) error {
	if n := geo.Count(g); n > l.Points {
		return fmt.Errorf("%d points and parts", n)
	}
	return checkMember(l, g, g.Layout())
}

func checkMember(l geo.Limits, g geom.T, layout geom.Layout) error {
	if c, ok := g.(*geom.GeometryCollection); ok {
		if l.Depth == 0 {
			return errors.New("collections are nested too deeply")
		}
		l.Depth--
		for _, member := range c.Geoms() {
			if err := checkMember(l, member, layout); err != nil {
				return err
			}
		}
		return nil
	}
	if g.Layout() != layout || layout != geom.XY && layout != geom.XYZ {
		return fmt.Errorf("layout %s in %s", g.Layout(), layout)
	}
	for _, v := range g.FlatCoords() {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("coordinate %v", v)
		}
	}
	switch g := g.(type) {
	case *geom.LineString:
		return checkLine(g.Coords())
	case *geom.LinearRing:
		return checkRing(g.Coords())
	case *geom.MultiLineString:
		for _, line := range g.Coords() {
			if err := checkLine(line); err != nil {
				return err
			}
		}
	case *geom.Polygon:
		return checkPolygon(g.Coords())
	case *geom.MultiPolygon:
		for _, polygon := range g.Coords() {
			if err := checkPolygon(polygon); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkLine(line []geom.Coord) error {
	if len(line) == 1 {
		return errors.New("a line must have no points or at least 2, got 1")
	}
	return nil
}

func checkRing(ring []geom.Coord) error {
	if n := len(ring); n > 0 && (n < 4 || ring[0][0] != ring[n-1][0] || ring[0][1] != ring[n-1][1]) {
		return fmt.Errorf("ring %v", ring)
	}
	return nil
}

func checkPolygon(polygon [][]geom.Coord) error {
	for _, ring := range polygon {
		if err := checkRing(ring); err != nil {
			return err
		}
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
			require.Equal(t, g.Layout(), p.Layout)
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
