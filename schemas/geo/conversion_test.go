package geo_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// referencePoint is the reference point of contract 3.2. Its VENDOR_SUPERCONFORM and
// VENDOR_GEODECIMAL coordinates are derived from the others.
var referencePoint = map[geo.Format][2]float64{
	geo.GeoDecimal:       {8.2505556, 48.7627778},
	geo.VendorGeoDecimal: {825055.56, 4876277.78},
	geo.Mercator:         {917419.9247, 6227728.6864},
	geo.SmartUnits:       {4352286.0539, 5456405.2523},
	geo.GeoMinSec:        {815020.0016, 4845460.0008},
	geo.Conform:          {1672357.2299, 1620743.2152},
	geo.SuperConform:     {1672357.2299 + 3_400_000, 1620743.2152 + 1_700_000},
}

// precision is the precision of the coordinates above: a tenth of a millimetre, or a fraction of a
// second.
var precision = map[geo.Format]float64{
	geo.GeoDecimal:       1.1e-9,
	geo.VendorGeoDecimal: 1.1e-4,
	geo.Mercator:         1.1e-4,
	geo.SmartUnits:       1.1e-4,
	geo.GeoMinSec:        1.1e-4,
	geo.Conform:          1.1e-4,
	geo.SuperConform:     1.1e-4,
}

func TestReferencePoint(t *testing.T) {
	require.Len(t, referencePoint, len(geo.Formats())-1, "the map must contain all formats except OG_SRID")
	for from, p := range referencePoint {
		for to, want := range referencePoint {
			got := converted(t, system(t, from, ""), system(t, to, ""), p[:])
			delta := precision[to]
			if from == geo.SmartUnits {
				delta *= 5 // its unit is 5 m
			}
			require.InDelta(t, want[0], got[0], delta, "x of %s → %s", from, to)
			require.InDelta(t, want[1], got[1], delta, "y of %s → %s", from, to)
		}
	}
}

// TestRoundTrip converts random points in Europe to each system and back.
func TestRoundTrip(t *testing.T) {
	systems := []geo.System{system(t, geo.SRID, "EPSG:4258"), system(t, geo.SRID, "EPSG:3857"), system(t, geo.SRID, "EPSG:25832"), system(t, geo.SRID, "EPSG:32733")}
	for format := range referencePoint {
		systems = append(systems, system(t, format, ""))
	}
	points := area(2000, -10, 40, 35, 70)
	plain := system(t, geo.GeoDecimal, "")
	for _, from := range systems {
		start := converted(t, plain, from, points)
		for _, to := range systems {
			there := converted(t, from, to, start)
			back := converted(t, to, plain, there)
			require.LessOrEqual(t, maxDifference(points, back), 1e-11, "%s → %s", from, to)
		}
	}
}

func TestSameSystemChangesNothing(t *testing.T) {
	for format, p := range referencePoint {
		s := system(t, format, "")
		require.Equal(t, p[:], converted(t, s, s, p[:]))
	}
	s := system(t, geo.SRID, "EPSG:25832")
	require.Equal(t, []float64{444924.094734, 5401356.335918}, converted(t, s, s, []float64{444924.094734, 5401356.335918}))
}

func TestGeoMinSec(t *testing.T) {
	plain, digits := system(t, geo.GeoDecimal, ""), system(t, geo.GeoMinSec, "")
	f := func(degrees, want float64) {
		t.Helper()
		require.InDelta(t, want, converted(t, plain, digits, []float64{degrees, 0})[0], 1e-9)
		require.InDelta(t, degrees, converted(t, digits, plain, []float64{want, 0})[0], 1e-13)
	}
	f(0, 0)
	f(1, 100_000)
	f(0.5, 30_000)
	f(-0.5, -30_000)
	f(8.1, 806_000) // not 8° 5' 59.999…"
	f(-8.1, -806_000)
	f(8+1.0/3600, 800_010)
	f(8+59.0/60+59.5/3600, 859_595)
	f(-8.2505556, -815_020.0016)
	f(180, 18_000_000)
	f(-180, -18_000_000)
	f(89.99999999, 8_959_599.99964)
}

// TestGeoMinSecRounded checks that 60 minutes and 60 seconds, which rounding can produce, are
// accepted.
func TestGeoMinSecRounded(t *testing.T) {
	f := func(digits, degrees float64) {
		t.Helper()
		require.InDelta(t, degrees, converted(t, system(t, geo.GeoMinSec, ""), system(t, geo.GeoDecimal, ""), []float64{digits, 0})[0], 1e-13)
	}
	f(815_600, 8+16.0/60)
	f(-815_600, -8-16.0/60)
	f(860_000, 9)
	f(859_600, 9)
	f(860_600, 9+1.0/60)
}

func TestDomains(t *testing.T) {
	f := func(format geo.Format, srID string, x, y float64, want string) {
		t.Helper()
		s := system(t, format, srID)
		points := []float64{x, y}
		for _, to := range []geo.System{s, system(t, geo.GeoDecimal, "")} {
			err := geo.NewConversion(s, to).Points(points, 2)
			if want == "" {
				require.NoError(t, err)
				continue
			}
			var domain *geo.DomainError
			require.ErrorAs(t, err, &domain)
			require.ErrorContains(t, err, want)
			require.Equal(t, s, domain.System)
		}
	}
	f(geo.GeoDecimal, "", 180, 90, "")
	f(geo.GeoDecimal, "", -180, -90, "")
	f(geo.GeoDecimal, "", 180.1, 0, "point 0 (180.1 0) in OG_GEODECIMAL is outside the domain of OG_GEODECIMAL: longitude is not between -180 and 180")
	f(geo.GeoDecimal, "", 0, -90.00001, "latitude is not between")
	f(geo.GeoDecimal, "", math.NaN(), 0, "not a finite number")
	f(geo.GeoDecimal, "", 0, math.Inf(-1), "not a finite number")
	f(geo.VendorGeoDecimal, "", 18_000_000, 9_000_000, "")
	f(geo.VendorGeoDecimal, "", 18_000_002, 0, "longitude")
	f(geo.GeoMinSec, "", 18_000_000, 9_000_000, "")
	f(geo.GeoMinSec, "", 18_000_010, 0, "longitude")
	f(geo.GeoMinSec, "", 861_000, 0, "minutes and seconds must be at most 60")
	f(geo.GeoMinSec, "", 815_600.1, 0, "minutes and seconds must be at most 60")
	f(geo.GeoMinSec, "", 0, 815_601, "minutes and seconds")
	f(geo.Mercator, "", 20_015_086, 60_000_000, "")
	f(geo.Mercator, "", 20_015_095, 0, "longitude")
	f(geo.Mercator, "", 0, 1e9, "the pole cannot be projected")
	f(geo.SmartUnits, "", 0, 0, "") // the corner, 20 cm beyond 180°
	f(geo.SmartUnits, "", 8_323_072, 8_323_072, "")
	f(geo.SmartUnits, "", 8_323_073, 0, "longitude")
	f(geo.SmartUnits, "", -100, 0, "longitude")
	f(geo.Conform, "", 1_800_000, -500_000, "")
	f(geo.Conform, "", 1_800_000, 1e8, "where the cone is cut open")
	f(geo.Conform, "", 1e30, -1e30, "the pole cannot be projected")
	f(geo.SRID, "EPSG:25832", 500_000, 0, "")
	f(geo.SRID, "EPSG:25832", 500_000, 9_997_964, "")
	f(geo.SRID, "EPSG:25832", 500_000, 9_998_000, "beyond the pole or the width")
	f(geo.SRID, "EPSG:25832", 7_000_000, 0, "beyond the pole or the width")
	f(geo.SRID, "EPSG:25832", 5_500_000, 0, "more than 40 degrees of longitude from the central meridian of the zone")
	f(geo.SRID, "EPSG:32701", 500_000, 10_000_000, "")
}

// TestTargetDomain converts points that are outside the target's domain.
func TestTargetDomain(t *testing.T) {
	f := func(format geo.Format, srID string, lon, lat float64, want string) {
		t.Helper()
		to := system(t, format, srID)
		points := []float64{8, 50, lon, lat}
		err := geo.NewConversion(system(t, geo.GeoDecimal, ""), to).Points(points, 2)
		var domain *geo.DomainError
		require.ErrorAs(t, err, &domain)
		require.Equal(t, 1, domain.Point)
		require.Equal(t, [2]float64{lon, lat}, [2]float64{domain.X, domain.Y})
		require.Equal(t, to, domain.System)
		require.ErrorContains(t, err, want)
	}
	f(geo.Mercator, "", 0, 90, "the pole cannot be projected")
	f(geo.SmartUnits, "", 0, -90, "the pole cannot be projected")
	f(geo.Conform, "", 0, -90, "the pole cannot be projected")
	f(geo.SRID, "EPSG:3857", 0, 90, "outside the domain of OG_SRID EPSG:3857: the pole cannot be projected")
	f(geo.SRID, "EPSG:25832", 50, 50, "more than 40 degrees")
}

func TestPoles(t *testing.T) {
	plain := system(t, geo.GeoDecimal, "")
	f := func(to geo.System, lat float64) {
		t.Helper()
		got := converted(t, to, plain, converted(t, plain, to, []float64{10, lat}))
		require.InDelta(t, lat, got[1], 1e-12)
	}
	f(system(t, geo.Conform, ""), 90)
	f(system(t, geo.SRID, "EPSG:32632"), 90)
	f(system(t, geo.SRID, "EPSG:32732"), -90)
	f(system(t, geo.SRID, "EPSG:4326"), 90)
}

// TestDateLine converts points on both sides of the 180th meridian to the zones next to it.
func TestDateLine(t *testing.T) {
	plain := system(t, geo.GeoDecimal, "")
	f := func(srID string, lon, easting float64) {
		t.Helper()
		to := system(t, geo.SRID, srID)
		there := converted(t, plain, to, []float64{lon, 0})
		require.InDelta(t, easting, there[0], 1)
		require.InDelta(t, lon, converted(t, to, plain, there)[0], 1e-11)
	}
	f("EPSG:32660", 179, 722_595)
	f("EPSG:32660", 180, 833_979)
	f("EPSG:32660", -179, 945_464)
	f("EPSG:32601", -180, 166_021)
	f("EPSG:32601", 179, 54_536)
}

func TestApply(t *testing.T) {
	to := geo.NewConversion(system(t, geo.GeoDecimal, ""), system(t, geo.VendorGeoDecimal, ""))
	f := func(text, want string) {
		t.Helper()
		g := parsed(t, text)
		require.NoError(t, to.Apply(g))
		require.Equal(t, want, string(geo.AppendWKT(nil, g)))
	}
	f("POINT Z (1 2 3)", "POINT Z (100000 200000 3)")
	f("POINT EMPTY", "POINT EMPTY")
	f("MULTIPOINT ((1 2), EMPTY, (3 4))", "MULTIPOINT ((100000 200000), EMPTY, (300000 400000))")
	f("GEOMETRYCOLLECTION Z (POINT Z EMPTY, LINESTRING Z (1 2 3, 4 5 6))", "GEOMETRYCOLLECTION Z (POINT Z EMPTY, LINESTRING Z (100000 200000 3, 400000 500000 6))")
	f("GEOMETRYCOLLECTION EMPTY", "GEOMETRYCOLLECTION EMPTY")

	var domain *geo.DomainError
	require.ErrorAs(t, to.Apply(parsed(t, "GEOMETRYCOLLECTION (LINESTRING (1 2, 3 4), GEOMETRYCOLLECTION (POINT (5 6), POINT (7 91)))")), &domain)
	require.Equal(t, 3, domain.Point)
	require.NoError(t, to.Apply(&geo.Geometry{Kind: geo.GeometryCollection}))
}

func TestParseSystem(t *testing.T) {
	f := func(format, srID, want string, epsg int) {
		t.Helper()
		s, err := geo.ParseSystem(format, srID)
		require.NoError(t, err)
		require.Equal(t, want, s.String())
		require.Equal(t, epsg, s.EPSG())
	}
	f("OG_GEODECIMAL", "", "OG_GEODECIMAL", 0)
	f("VENDOR_MERCATOR", "EPSG:25832", "VENDOR_MERCATOR", 0)
	f("OG_SRID", "EPSG:25832", "OG_SRID EPSG:25832", 25832)
	f("OG_SRID", " epsg:4326 ", "OG_SRID EPSG:4326", 4326)
	f("OG_SRID", "3857", "OG_SRID EPSG:3857", 3857)
	for _, code := range []string{"4258", "25828", "25838", "32601", "32660", "32701", "32760"} {
		f("OG_SRID", code, "OG_SRID EPSG:"+code, system(t, geo.SRID, code).EPSG())
	}
	for _, format := range geo.Formats() {
		require.Equal(t, format, system(t, format, "EPSG:4326").Format())
	}
}

func TestParseSystemErrors(t *testing.T) {
	f := func(format, srID, want string) {
		t.Helper()
		_, err := geo.ParseSystem(format, srID)
		require.ErrorContains(t, err, want)
	}
	f("", "", `unknown format "": must be one of [OG_GEODECIMAL VENDOR_MERCATOR`)
	f("og_geodecimal", "", `format "og_geodecimal"`)
	f("OG_SRID", "", "OG_SRID requires an srId, such as EPSG:25832")
	f("OG_SRID", "EPSG:", `srId "EPSG:"`)
	f("OG_SRID", "EPSG:31467", `unknown srId "EPSG:31467": must be one of EPSG:4326, 4258, 3857, 25828–25838, 32601–32660 and 32701–32760`)
	for _, code := range []string{"25827", "25839", "32600", "32661", "32700", "32761", "-4326", "4326.0", "CRS84", "99999999999999999999"} {
		f("OG_SRID", code, code)
	}
}

// TestApplySRID checks that an SRID from EWKB must match the source system and is replaced with the
// SRID of the target system.
func TestApplySRID(t *testing.T) {
	f := func(srID int, format geo.Format, code string, want string) {
		t.Helper()
		g := parsed(t, "POINT (500000 30)")
		if format == geo.GeoDecimal {
			g = parsed(t, "POINT (9 30)")
		}
		g.SRID = uint32(srID)
		err := geo.NewConversion(system(t, format, code), system(t, geo.SRID, "EPSG:25832")).Apply(g)
		if want != "" {
			require.EqualError(t, err, want)
			return
		}
		require.NoError(t, err)
		require.EqualValues(t, 25832, g.SRID)
	}
	f(4326, geo.GeoDecimal, "", "")
	f(4258, geo.GeoDecimal, "", "")
	f(31467, geo.GeoDecimal, "", "the geometry has SRID 31467, but its coordinates are declared as OG_GEODECIMAL")
	f(25832, geo.SRID, "EPSG:25832", "")
	f(25832, geo.SRID, "EPSG:32632", "the geometry has SRID 25832, but its coordinates are declared as OG_SRID EPSG:32632")
	f(76131, geo.Mercator, "", "")
}
