package geo_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// small limits the memory that a fuzzed input may take.
var small = geo.Limits{Points: 10_000, Depth: 8}

// FuzzWKT checks that a geometry obeys the rules, and is the same after writing and reading it in
// each encoding.
func FuzzWKT(f *testing.F) {
	for _, text := range canonical {
		f.Add(text)
	}
	f.Add("multipoint z(1 2 3,(4 5 6))")
	f.Add("LINEARRING(0 0,1 0,1 1,0 0)")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := small.ParseWKT(text, geo.Any)
		if err != nil {
			require.Nil(t, g)
			return
		}
		requireRoundTrips(t, g)
	})
}

func FuzzWKB(f *testing.F) {
	for _, text := range canonical {
		f.Add(geo.AppendWKB(nil, parsed(f, text), binary.LittleEndian))
		f.Add(geo.AppendWKB(nil, parsed(f, text), binary.BigEndian))
	}
	f.Add(wkbOf(f, "01 010000a0 e6100000"+one+two+three))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := small.ParseWKB(data, geo.Any)
		if err != nil {
			require.Nil(t, g)
			return
		}
		require.LessOrEqual(t, len(geo.AppendWKB(nil, g, binary.LittleEndian)), len(data)*3/2) // an empty XY point becomes XYZ
		requireRoundTrips(t, g)
	})
}

func FuzzKML(f *testing.F) {
	for _, text := range canonical {
		f.Add(string(geo.AppendKML(nil, parsed(f, text))))
	}
	f.Add("<MultiGeometry>" + kmlPoint + kmlLine + kmlRing + "</MultiGeometry>")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := small.ParseKML(geo.Any, text)
		if err != nil {
			require.Nil(t, g)
			return
		}
		requireRoundTrips(t, g)
	})
}

// requireRoundTrips writes g in each encoding and reads it back.
func requireRoundTrips(t *testing.T, g *geo.Geometry) {
	require.NoError(t, check(small, g))
	text := string(geo.AppendWKT(nil, g))

	fromText, err := small.ParseWKT(text, geo.Any)
	require.NoError(t, err, text)
	require.Equal(t, text, string(geo.AppendWKT(nil, fromText)))

	for _, order := range orders {
		fromBinary, err := small.ParseWKB(geo.AppendWKB(nil, g, order), geo.Any)
		require.NoError(t, err, text)
		require.Equal(t, text, string(geo.AppendWKT(nil, fromBinary)))
		require.True(t, geo.Same(fromText, fromBinary))
	}
	requireKMLRoundTrip(t, g)
}

// requireKMLRoundTrip compares only what KML preserves: it has no empty geometries with z, and a
// collection of lines and rings becomes a collection of lines.
func requireKMLRoundTrip(t *testing.T, g *geo.Geometry) {
	deeper := geo.Limits{Points: small.Points, Depth: small.Depth + 1} // a MULTIPOINT is a MultiGeometry too
	once, err := deeper.ParseKML(g.Kind, string(geo.AppendKML(nil, g)))
	require.NoError(t, err)
	twice, err := deeper.ParseKML(g.Kind, string(geo.AppendKML(nil, once)))
	require.NoError(t, err)
	require.True(t, geo.Same(once, twice))
	if g.Kind != geo.GeometryCollection && len(g.Flat) > 0 {
		require.True(t, geo.Same(g, once))
	}
}

// FuzzConvert checks that a point is either converted to finite numbers or rejected.
func FuzzConvert(f *testing.F) {
	for format, p := range referencePoint {
		f.Add(string(format), "", p[0], p[1])
	}
	f.Add("OG_SRID", "EPSG:25832", 444924.0, 5401356.0)
	f.Add("OG_SRID", "EPSG:3857", -2e7, 2e7)
	f.Fuzz(func(t *testing.T, format, srID string, x, y float64) {
		s, err := geo.ParseSystem(format, srID)
		if err != nil {
			return
		}
		for _, target := range []geo.Format{geo.GeoDecimal, geo.Mercator, geo.Conform, geo.GeoMinSec, geo.SRID} {
			points := []float64{x, y}
			err := geo.NewConversion(s, system(t, target, "EPSG:32632")).Points(points, 2)
			var domain *geo.DomainError
			if err != nil {
				require.ErrorAs(t, err, &domain)
				continue
			}
			require.True(t, finite(points[0]) && finite(points[1]), "%v of %s in %s", points, s, target)
		}
	})
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
