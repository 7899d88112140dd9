package routing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

var allEncodings = []xroute.GeometryEncoding{xroute.EncodingPlain, xroute.EncodingWKB, xroute.EncodingWKT, xroute.EncodingKML}

// message returns the envelope of a request.
func message(t testing.TB, r xroute.Request) string {
	t.Helper()
	text, err := xroute.AppendMessage(nil, r)
	require.NoError(t, err)
	return string(text)
}

// asWKT returns the element with a WKT.
func asWKT(e xroute.EncodedGeometry, wkt string) xroute.EncodedGeometry {
	e.Encoded().WKT = &wkt
	return e
}

func convertTo(e xroute.EncodedGeometry, format xroute.CoordFormat, encodings ...xroute.GeometryEncoding) *xroute.ConvertGeometry {
	return &xroute.ConvertGeometry{Geometry: e, Options: xroute.RequestOptions{CoordFormat: format, ResponseGeometry: encodings}}
}

// only returns a copy of e with one of its encodings.
func only(e xroute.EncodedGeometry, encoding xroute.GeometryEncoding) xroute.EncodedGeometry {
	plain := xroute.PlainOf(e)
	if encoding != xroute.EncodingPlain {
		plain = nil
	}
	made := xroute.NewElement(xroute.KindOf(e), plain)
	switch from, to := e.Encoded(), made.Encoded(); encoding {
	case xroute.EncodingWKB:
		to.WKB = from.WKB
	case xroute.EncodingWKT:
		to.WKT = from.WKT
	case xroute.EncodingKML:
		to.KML = from.KML
	}
	return made
}

// TestEveryKindInEveryEncoding converts each kind from WKT to all encodings, and then each of
// these, and all together, to all encodings again.
func TestEveryKindInEveryEncoding(t *testing.T) {
	s := start(t, nil)
	f := func(e xroute.EncodedGeometry, wkt string) {
		t.Helper()
		first := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(asWKT(e, wkt), geo.GeoDecimal, allEncodings...))).Result
		require.IsType(t, e, first)
		require.Equal(t, wkt, *first.Encoded().WKT)
		require.NotNil(t, xroute.PlainOf(first))
		require.NotEmpty(t, first.Encoded().WKB)
		require.True(t, strings.HasPrefix(*first.Encoded().KML.KML, "<kml "), *first.Encoded().KML.KML)
		for _, encoding := range allEncodings {
			one := only(first, encoding)
			again := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(one, geo.GeoDecimal, allEncodings...))).Result
			require.Equal(t, first, again, "from %s", encoding)
			converted := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(first, geo.GeoDecimal, encoding))).Result
			require.Equal(t, one, converted, "to %s", encoding)
		}
	}
	for _, z := range []struct{ name, a, b, c, d string }{
		{"", "8 48", "9 48.5", "9 49", "8.5 48.25"},
		{" Z", "8 48 1", "9 48.5 -2", "9 49 3.5", "8.5 48.25 0"},
	} {
		ring := fmt.Sprintf("(%s, %s, %s, %s)", z.a, z.b, z.c, z.a)
		other := fmt.Sprintf("(%s, %s, %s, %s)", z.b, z.c, z.d, z.b)
		line := fmt.Sprintf("(%s, %s)", z.a, z.b)
		g := func(e xroute.EncodedGeometry, word, content string) {
			t.Helper()
			f(e, word+z.name+" "+content)
		}
		g(&xroute.Point{}, "POINT", "("+z.a+")")
		g(&xroute.LineString{}, "LINESTRING", line)
		g(&xroute.LinearRing{}, "LINESTRING", ring)
		g(&xroute.Polygon{}, "POLYGON", "("+ring+", "+other+")")
		g(&xroute.MultiPoint{}, "MULTIPOINT", "(("+z.a+"), ("+z.b+"))")
		g(&xroute.MultiLineString{}, "MULTILINESTRING", "("+line+", "+other+")")
		g(&xroute.MultiPolygon{}, "MULTIPOLYGON", "(("+ring+", "+other+"), ("+other+"))")
		g(&xroute.GeometryCollection{}, "GEOMETRYCOLLECTION", fmt.Sprintf("(POINT%s (%s), LINESTRING%s %s, POLYGON%s (%s))", z.name, z.a, z.name, line, z.name, ring))
	}
}

// TestEmptyGeometries checks that an empty geometry stays empty in all encodings that have a form
// for it.
func TestEmptyGeometries(t *testing.T) {
	s := start(t, nil)
	f := func(e xroute.EncodedGeometry, wkt string, encodings ...xroute.GeometryEncoding) {
		t.Helper()
		first := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(asWKT(e, wkt), geo.Conform, encodings...))).Result
		for _, encoding := range encodings {
			again := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(only(first, encoding), geo.GeoDecimal, xroute.EncodingWKT))).Result
			require.Equal(t, wkt, *again.Encoded().WKT, "from %s", encoding)
		}
	}
	f(&xroute.Point{}, "POINT EMPTY", xroute.EncodingWKT, xroute.EncodingWKB, xroute.EncodingKML)
	f(&xroute.LineString{}, "LINESTRING EMPTY", allEncodings...)
	f(&xroute.LinearRing{}, "LINESTRING EMPTY", allEncodings...)
	f(&xroute.Polygon{}, "POLYGON EMPTY", allEncodings...)
	f(&xroute.MultiPoint{}, "MULTIPOINT EMPTY", allEncodings...)
	f(&xroute.MultiLineString{}, "MULTILINESTRING EMPTY", allEncodings...)
	f(&xroute.MultiPolygon{}, "MULTIPOLYGON EMPTY", allEncodings...)
	f(&xroute.GeometryCollection{}, "GEOMETRYCOLLECTION EMPTY", allEncodings...)
}

// TestResponsesAreValidRequests checks that the geometry of a response is accepted in all its
// encodings together, even if an encoding does not distinguish its kind from others.
func TestResponsesAreValidRequests(t *testing.T) {
	s := start(t, nil)
	f := func(want, wkt string) {
		t.Helper()
		first := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(asWKT(&xroute.GeometryCollection{}, wkt), geo.GeoDecimal, allEncodings...))).Result
		again := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(first, geo.GeoDecimal, xroute.EncodingWKT))).Result
		require.Equal(t, want, *again.Encoded().WKT)
	}
	same := func(wkt string) { t.Helper(); f(wkt, wkt) }
	same("GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (POINT (1 2)))")
	same("GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (LINESTRING (0 0, 1 1)), MULTIPOINT ((1 2)))")
	same("GEOMETRYCOLLECTION (MULTIPOLYGON EMPTY, POINT (1 2))")
	f("GEOMETRYCOLLECTION (LINESTRING (0 0, 1 0, 1 1, 0 0))", "GEOMETRYCOLLECTION (LINEARRING (0 0, 1 0, 1 1, 0 0))")
}

// TestRepeatedEncodings checks that each encoding is stored once, because a job keeps them and
// looks for them for each geometry.
func TestRepeatedEncodings(t *testing.T) {
	want := []xroute.GeometryEncoding{xroute.EncodingWKB, xroute.EncodingPlain}
	r := &xroute.RequestOptions{CoordFormat: geo.GeoDecimal, ResponseGeometry: slices.Repeat(want, 10)}
	o, err := optionsOf(r, nil, "")
	require.NoError(t, err)
	require.Equal(t, want, o.encodings)
}

// TestFormats converts the point of contract 3.2 from each format to each other.
func TestFormats(t *testing.T) {
	s := start(t, nil)
	type place struct {
		format, srid    string
		x, y, tolerance float64
	}
	places := []place{
		{"OG_GEODECIMAL", "", 8.2505556, 48.7627778, 1e-7},
		{"VENDOR_GEODECIMAL", "", 825055.56, 4876277.78, 1e-2},
		{"VENDOR_MERCATOR", "", 917419.9247, 6227728.6864, 1e-2},
		{"VENDOR_SMARTUNITS", "", 4352286.0539, 5456405.2523, 1e-2},
		{"VENDOR_GEOMINSEC", "", 815020.0016, 4845460.0008, 1e-2},
		{"VENDOR_CONFORM", "", 1672357.2299, 1620743.2152, 1e-2},
		{"VENDOR_SUPERCONFORM", "", 5072357.2299, 3320743.2152, 1e-2},
		{"OG_SRID", "EPSG:4326", 8.2505556, 48.7627778, 1e-7},
	}
	for _, from := range places {
		for _, to := range places {
			srid := ""
			if to.srid != "" {
				srid = ` srId="` + to.srid + `"`
			}
			properties := []string{"CoordFormat", from.format}
			if from.srid != "" {
				properties = append(properties, "SrId", from.srid)
			}
			r := ask[*xroute.ConvertGeometryResponse](s, convert(`Point"`, fmt.Sprintf(`<c:point x="%v" y="%v" z="17.25"/>`, from.x, from.y),
				xmlOptions(`coordFormat="`+to.format+`"`+srid, "PLAIN"), caller(properties...)))
			p := r.Result.(*xroute.Point).Plain
			require.LessOrEqual(t, math.Abs(p.X-to.x), to.tolerance, "x from %s to %s", from.format, to.format)
			require.LessOrEqual(t, math.Abs(p.Y-to.y), to.tolerance, "y from %s to %s", from.format, to.format)
			require.Equal(t, 17.25, *p.Z)
		}
	}
}

// TestVendorPrefix checks that the formats with the configured prefix, and with VENDOR, are valid
// in both directions.
func TestVendorPrefix(t *testing.T) {
	f := func(s *server, from, to string) *xroute.Fault {
		t.Helper()
		_, fault := s.call(convert(`Point" wkt="POINT (917419.9247 6227728.6864)"`, "", xmlOptions(`coordFormat="`+to+`"`, "WKT"), caller("CoordFormat", from)))
		return fault
	}
	s := start(t, func(c *Config) { c.VendorPrefix = "PTV" })
	require.Nil(t, f(s, "PTV_MERCATOR", "PTV_CONFORM"))
	require.Nil(t, f(s, "VENDOR_MERCATOR", "VENDOR_CONFORM"))
	require.NotNil(t, f(s, "PTV_MERCATOR", "PTV_NONE"))
	require.NotNil(t, f(s, "PTV_NONE", "PTV_MERCATOR"))
	require.NotNil(t, f(s, "ACME_MERCATOR", "OG_GEODECIMAL"))
	for _, fault := range []*xroute.Fault{f(s, "PTV_MERCATOR", "ACME_NONE"), f(s, "ACME_NONE", "PTV_MERCATOR")} {
		for stack := fault.Exception.Base().StackElement; stack != nil; stack = stack.Cause {
			require.NotContains(t, *stack.Message, "VENDOR_")
		}
		require.NotContains(t, fault.Text, "VENDOR_")
		require.Contains(t, fault.Text, "PTV_MERCATOR")
		require.Contains(t, fault.Text, "PTV_SUPERCONFORM")
	}
	require.Contains(t, f(s, "VENDOR_NONE", "PTV_MERCATOR").Text, "VENDOR_NONE", "what the client sent")
	s = start(t, nil)
	require.Nil(t, f(s, "VENDOR_MERCATOR", "VENDOR_CONFORM"))
	require.NotNil(t, f(s, "PTV_MERCATOR", "VENDOR_CONFORM"))
	require.NotNil(t, f(s, "VENDOR_MERCATOR", "PTV_CONFORM"))
	for _, prefix := range []string{"PTV", "VENDOR"} {
		require.Contains(t, string(xroute.Schema("common.xsd", prefix)), `<xsd:enumeration value="`+prefix+`_MERCATOR"/>`)
	}
	for _, prefix := range []string{"OG", "", "ptv", "PTV_", `A"`} {
		cfg := DefaultConfig()
		cfg.VendorPrefix = prefix
		require.ErrorContains(t, cfg.Validate(), "vendor_prefix is", prefix)
	}
}

// TestSRIDsRoundTrip checks that the srId is respected in both directions.
func TestSRIDsRoundTrip(t *testing.T) {
	s := start(t, nil)
	for _, srid := range []string{"EPSG:4258", "EPSG:3857", "EPSG:25832", "32632"} {
		there := ask[*xroute.ConvertGeometryResponse](s, convert(`Point" wkt="POINT (8.2505556 48.7627778)"`, "",
			xmlOptions(`coordFormat="OG_SRID" srId="`+srid+`"`, "PLAIN"), "")).Result.(*xroute.Point).Plain
		back := ask[*xroute.ConvertGeometryResponse](s, convert(`Point"`, fmt.Sprintf(`<c:point x="%v" y="%v"/>`, there.X, there.Y),
			xmlOptions(inDegrees, "PLAIN"), caller("CoordFormat", "OG_SRID", "SrId", srid))).Result.(*xroute.Point).Plain
		require.InDelta(t, 8.2505556, back.X, 1e-9, srid)
		require.InDelta(t, 48.7627778, back.Y, 1e-9, srid)
	}
}

// TestKMLForms reads documents, geometries and placemarks.
func TestKMLForms(t *testing.T) {
	s := start(t, nil)
	const point = "<Point><coordinates>8,48</coordinates></Point>"
	f := func(e xroute.EncodedGeometry, want string, kml xroute.KML) {
		t.Helper()
		e.Encoded().KML = &kml
		r := ask[*xroute.ConvertGeometryResponse](s, message(t, convertTo(e, geo.GeoDecimal, xroute.EncodingWKT)))
		require.Equal(t, want, *r.Result.Encoded().WKT)
	}
	f(&xroute.Point{}, "POINT (8 48)", xroute.KML{KML: new(point)})
	f(&xroute.Point{}, "POINT (8 48)", xroute.KML{KML: new("<kml><Document><Folder><Placemark>" + point + "</Placemark></Folder></Document></kml>")})
	f(&xroute.Point{}, "POINT (8 48)", xroute.KML{Placemarks: []string{"<Placemark>" + point + "</Placemark>"}})
	f(&xroute.Point{}, "POINT (8 48)", xroute.KML{KML: new(point), Placemarks: []string{"<Placemark>" + point + "</Placemark>"}})
	f(&xroute.MultiPoint{}, "MULTIPOINT ((8 48), (8 48))", xroute.KML{Placemarks: []string{"<Placemark>" + point + "</Placemark>", point}})
}
