package geo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

func TestGeoJSON(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		got, err := geo.AppendGeoJSON(nil, parsed(t, text))
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
		require.Equal(t, want, string(got))
	}
	f("POINT Z (1 2 -3.5)", `{"type":"Point","coordinates":[1,2,-3.5]}`)
	f("POINT EMPTY", `{"type":"Point","coordinates":[]}`)
	f("LINESTRING (1 2, 1e-7 4)", `{"type":"LineString","coordinates":[[1,2],[1e-7,4]]}`)
	f("LINEARRING (0 0, 1 0, 1 1, 0 0)", `{"type":"LineString","coordinates":[[0,0],[1,0],[1,1],[0,0]]}`)
	f("LINESTRING EMPTY", `{"type":"LineString","coordinates":[]}`)
	f("POLYGON ((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))", `{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,0]],[[1,1],[2,1],[2,2],[1,1]]]}`)
	f("MULTIPOINT ((1 2), (3 4))", `{"type":"MultiPoint","coordinates":[[1,2],[3,4]]}`)
	f("MULTILINESTRING ((1 2, 3 4), EMPTY)", `{"type":"MultiLineString","coordinates":[[[1,2],[3,4]],[]]}`)
	f("MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), EMPTY)", `{"type":"MultiPolygon","coordinates":[[[[0,0],[4,0],[4,4],[0,0]]],[]]}`)
	f("GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (MULTIPOINT ((3 4))))",
		`{"type":"GeometryCollection","geometries":[{"type":"Point","coordinates":[1,2]},`+
			`{"type":"GeometryCollection","geometries":[{"type":"MultiPoint","coordinates":[[3,4]]}]}]}`)
	f("GEOMETRYCOLLECTION EMPTY", `{"type":"GeometryCollection","geometries":[]}`)
	_, err := geo.AppendGeoJSON(nil, parsed(t, "GEOMETRYCOLLECTION (MULTIPOINT (EMPTY))"))
	require.ErrorContains(t, err, "empty points in a MultiPoint")
}
