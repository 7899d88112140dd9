package geo_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// TestKMLCanonical writes geometries and reads them back. It requests the kind, because a
// MultiGeometry can represent four kinds.
func TestKMLCanonical(t *testing.T) {
	for _, text := range canonical {
		g := parsed(t, text)
		for _, write := range []func([]byte, *geo.Geometry) []byte{geo.AppendKML, geo.AppendPlacemark} {
			document := string(write(nil, g))
			back, err := limits.ParseKML(g.Kind, document)
			require.NoError(t, err, document)
			if strings.Contains(text, "(") { // KML's empty geometries have no Z
				require.Equal(t, text, string(geo.AppendWKT(nil, back)), document)
			}
			require.NoError(t, check(limits, back))
		}
	}
}

func TestKMLWritten(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		require.Equal(t, "<Placemark>"+want+"</Placemark>", string(geo.AppendPlacemark(nil, parsed(t, text))))
	}
	f("POINT Z (8.25 48.76 110)", "<Point><coordinates>8.25,48.76,110</coordinates></Point>")
	f("POINT EMPTY", "<Point><coordinates></coordinates></Point>")
	f("LINESTRING (1 2, 3 4)", "<LineString><coordinates>1,2 3,4</coordinates></LineString>")
	f("LINEARRING (0 0, 1 0, 1 1, 0 0)", "<LinearRing><coordinates>0,0 1,0 1,1 0,0</coordinates></LinearRing>")
	f("POLYGON ((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))",
		"<Polygon><outerBoundaryIs><LinearRing><coordinates>0,0 4,0 4,4 0,0</coordinates></LinearRing></outerBoundaryIs>"+
			"<innerBoundaryIs><LinearRing><coordinates>1,1 2,1 2,2 1,1</coordinates></LinearRing></innerBoundaryIs></Polygon>")
	f("MULTIPOINT ((1 2), (3 4))",
		"<MultiGeometry><Point><coordinates>1,2</coordinates></Point><Point><coordinates>3,4</coordinates></Point></MultiGeometry>")
	f("GEOMETRYCOLLECTION EMPTY", "<MultiGeometry></MultiGeometry>")
	require.Equal(t, `<kml xmlns="http://www.opengis.net/kml/2.2"><Placemark><Point><coordinates>1,2</coordinates></Point></Placemark></kml>`,
		string(geo.AppendKML(nil, parsed(t, "POINT (1 2)"))))
}

const (
	kmlPoint = "<Point><coordinates>1,2</coordinates></Point>"
	kmlLine  = "<LineString><coordinates>1,2 3,4</coordinates></LineString>"
	kmlRing  = "<LinearRing><coordinates>0,0 1,0 1,1 0,0</coordinates></LinearRing>"
)

func TestKMLForms(t *testing.T) {
	f := func(want string, texts ...string) {
		t.Helper()
		g, err := limits.ParseKML(geo.Any, texts...)
		require.NoError(t, err, texts)
		require.Equal(t, want, string(geo.AppendWKT(nil, g)))
	}
	f("POINT (1 2)", kmlPoint)
	f("POINT (1 2)", "<Placemark><name>here</name>"+kmlPoint+"</Placemark>")
	f("POINT (1 2)", `<?xml version="1.0" encoding="ISO-8859-1"?><!-- a place --><kml xmlns="http://earth.google.com/kml/2.1"><Placemark>`+kmlPoint+"</Placemark></kml>\n")
	f("POINT (1 2)", "\ufeff<Point><coordinates>1,2</coordinates></Point>")
	f("POINT (1 2)", `<k:kml xmlns:k="http://www.opengis.net/kml/2.2"><k:Document><k:Folder><k:Placemark><k:Point><k:coordinates>1,2</k:coordinates></k:Point></k:Placemark></k:Folder></k:Document></k:kml>`)
	f("POINT (1 2)", `<kml><Document><Style id="a"><LineStyle><width>4</width></LineStyle></Style><Placemark><LookAt><longitude>9</longitude></LookAt>`+kmlPoint+`</Placemark></Document></kml>`)
	f("POINT Z (1 2 3)", "<Point><extrude>1</extrude><altitudeMode>absolute</altitudeMode><coordinates>\n\t1,2,3\n</coordinates></Point>")
	f("POINT (1 2)", "<Point><coordinates><![CDATA[1,]]><!-- and -->2</coordinates></Point>")
	f("POINT (1 2)", "<Point><coordinates> 1,2\n</coordinates></Point>")
	f("LINESTRING Z (1 2 3, 4 5 0)", "<LineString><coordinates>1,2,3\r\n4,5</coordinates></LineString>")
	f("LINESTRING (0 0, 1 0, 1 1, 0 0)", kmlRing)
	f("POLYGON ((0 0, 4 0, 4 4, 0 0), (0 0, 1 0, 1 1, 0 0))",
		"<Polygon><innerBoundaryIs>"+kmlRing+"</innerBoundaryIs><tessellate>1</tessellate><outerBoundaryIs><LinearRing><coordinates>0,0 4,0 4,4 0,0</coordinates></LinearRing></outerBoundaryIs></Polygon>")
	f("POLYGON ((0 0, 1 0, 1 1, 0 0), (0 0, 1 0, 1 1, 0 0), (0 0, 1 0, 1 1, 0 0))",
		"<Polygon><outerBoundaryIs>"+kmlRing+"</outerBoundaryIs><innerBoundaryIs>"+kmlRing+kmlRing+"</innerBoundaryIs></Polygon>")
	f("POLYGON EMPTY", "<Polygon/>")
	f("GEOMETRYCOLLECTION EMPTY", "<MultiGeometry/>")
	f("MULTIPOINT ((1 2))", "<MultiGeometry>"+kmlPoint+"</MultiGeometry>")
	f("MULTIPOINT ((1 2), (1 2))", kmlPoint, "<Placemark>"+kmlPoint+"</Placemark>")
	f("MULTIPOINT ((1 2), (1 2))", "<Folder><Placemark>"+kmlPoint+"</Placemark><Placemark>"+kmlPoint+"</Placemark></Folder>")
	f("MULTILINESTRING ((1 2, 3 4), (0 0, 1 0, 1 1, 0 0))", "<MultiGeometry>"+kmlLine+kmlRing+"</MultiGeometry>")
	f("GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (1 2, 3 4))", kmlPoint, kmlLine)
	f("GEOMETRYCOLLECTION (POINT (1 2), MULTILINESTRING ((1 2, 3 4)))", "<MultiGeometry>"+kmlPoint+"<MultiGeometry>"+kmlLine+"</MultiGeometry></MultiGeometry>")
	f("GEOMETRYCOLLECTION Z (POINT Z (1 2 0), LINESTRING Z (1 2 3, 4 5 6))", kmlPoint, "<LineString><coordinates>1,2,3 4,5,6</coordinates></LineString>")
	f("POINT (1 2)", "<Folder><Placemark>"+kmlPoint+"</Placemark><GroundOverlay><LinearRing/></GroundOverlay></Folder>", "<Placemark/>")
}

// TestKMLKinds checks that a MultiGeometry or several placemarks are read as the requested kind if
// possible.
func TestKMLKinds(t *testing.T) {
	f := func(kind geo.Kind, want string, texts ...string) {
		t.Helper()
		g, err := limits.ParseKML(kind, texts...)
		require.NoError(t, err)
		require.Equal(t, kind, g.Kind)
		require.Equal(t, want, string(geo.AppendWKT(nil, g)))
	}
	multi := "<MultiGeometry>" + kmlPoint + kmlPoint + "</MultiGeometry>"
	f(geo.MultiPoint, "MULTIPOINT ((1 2), (1 2))", multi)
	f(geo.GeometryCollection, "GEOMETRYCOLLECTION (POINT (1 2), POINT (1 2))", multi)
	f(geo.GeometryCollection, "GEOMETRYCOLLECTION (POINT (1 2), POINT (1 2))", kmlPoint, kmlPoint)
	f(geo.GeometryCollection, "GEOMETRYCOLLECTION (MULTIPOINT ((1 2), (1 2)), POINT (1 2))", multi, kmlPoint)
	f(geo.MultiPoint, "MULTIPOINT ((1 2))", kmlPoint)
	f(geo.GeometryCollection, "GEOMETRYCOLLECTION (POINT (1 2))", kmlPoint)
	f(geo.MultiPoint, "MULTIPOINT EMPTY", "<MultiGeometry/>")
	f(geo.MultiPolygon, "MULTIPOLYGON EMPTY", "<MultiGeometry/>")
	f(geo.LineString, "LINESTRING (0 0, 1 0, 1 1, 0 0)", kmlRing)
	f(geo.LinearRing, "LINESTRING (0 0, 1 0, 1 1, 0 0)", kmlRing)
	f(geo.LinearRing, "LINESTRING (0 0, 1 0, 1 1, 0 0)", "<LineString><coordinates>0,0 1,0 1,1 0,0</coordinates></LineString>")
}

func TestKMLOtherKinds(t *testing.T) {
	f := func(kind geo.Kind, want string, texts ...string) {
		t.Helper()
		g, err := limits.ParseKML(kind, texts...)
		require.ErrorIs(t, err, geo.ErrKind)
		require.ErrorContains(t, err, want)
		require.Nil(t, g)
	}
	f(geo.LineString, "got a Point, expected a LineString", kmlPoint)
	f(geo.LinearRing, "a LineString is a LinearRing only if it is closed: a ring must have no points or at least 4, got 2", kmlLine)
	f(geo.Point, "got a MultiPoint, expected a Point", "<MultiGeometry>"+kmlPoint+"</MultiGeometry>")
	f(geo.Point, "got a MultiPoint, expected a Point", kmlPoint, kmlPoint)
	f(geo.MultiPoint, "member 1 of a MultiPoint: wrong kind of geometry: got a LineString, expected a Point", kmlPoint, kmlLine)
	f(geo.MultiPolygon, "member 0 of a MultiPolygon", kmlLine)
}

func TestKMLNoPlacemark(t *testing.T) {
	f := func(texts ...string) {
		t.Helper()
		g, err := limits.ParseKML(geo.Any, texts...)
		require.ErrorIs(t, err, geo.ErrNoPlacemark)
		require.Nil(t, g)
	}
	f()
	f("<kml/>")
	f("<Placemark/>")
	f("<Placemark><name>Point</name></Placemark>", "<Document/>")
	f("<kml>" + kmlPoint + "</kml>")
	f("<Placemark><Model><Point/></Model></Placemark>")
	f("<html><body>Point</body></html>")
}

func TestKMLInvalid(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		g, err := limits.ParseKML(geo.Any, text)
		require.ErrorContains(t, err, want, text)
		require.NotErrorIs(t, err, geo.ErrNoPlacemark)
		require.Nil(t, g)
	}
	point := func(coordinates string) string {
		return "<Point><coordinates>" + coordinates + "</coordinates></Point>"
	}
	f("", "byte 0: no element")
	f(" \n", "byte 2: no element")
	f("POINT (1 2)", "byte 11: text before the first element")
	f("<Point>", "byte 7: line 1 is not XML: unexpected EOF")
	f("<Point><coordinates>1,2</Point>", "byte 31: line 1 is not XML: element <coordinates> closed by </Point>")
	f("<kml>&nbsp;</kml>", "invalid character entity &nbsp;")
	f(kmlPoint+"x", "text after the last element")
	f(kmlPoint+kmlPoint, `second root element "Point"`)
	f("<Point/>", "a Point without coordinates")
	f("<LineString><name/></LineString>", "a LineString without coordinates")
	f("<Point><coordinates>1,2</coordinates><coordinates>1,2</coordinates></Point>", "duplicate coordinates of a Point")
	f("<Point><coordinates><b/></coordinates></Point>", `element "b" within coordinates`)
	f(point("1"), "coordinates of point 0: no y after the x 1")
	f(point("9,\n 10,50"), `coordinates of point 0: white space next to a comma: ",\n 10,50"`)
	f(point("9 ,10"), "white space next to a comma")
	f(point("9,10, 50"), "white space next to a comma")
	f(point("1 2"), "no y after the x 1")
	f(point("1,2,3,4"), `more than x,y,z: ",4"`)
	f(point("1,x"), `"x" does not start with a number`)
	f(point("1,"), `"" does not start with a number`)
	f(point("1,1e999"), `"1e999" does not start with a number`)
	f(point("NaN,1"), `"NaN,1" does not start with a number`)
	f(point("1,2 3,4"), "a Point with 2 points")
	f("<LineString><coordinates>1,2</coordinates></LineString>", "byte 55: a line must have no points or at least 2, got 1")
	f("<LinearRing><coordinates>0,0 1,0 1,1 0,1</coordinates></LinearRing>", "ring is not closed")
	f("<Polygon><outerBoundaryIs><LinearRing><coordinates>0,0 1,0</coordinates></LinearRing></outerBoundaryIs></Polygon>", "a ring must have no points or at least 4, got 2")
	f("<Polygon><outerBoundaryIs><LinearRing><coordinates/></LinearRing></outerBoundaryIs><innerBoundaryIs>"+kmlRing+"</innerBoundaryIs></Polygon>",
		"the first ring of a polygon, its boundary, is empty")
	f("<Polygon><innerBoundaryIs>"+kmlRing+"</innerBoundaryIs></Polygon>", "a Polygon with 0 outer and 1 inner rings")
	f("<Polygon><outerBoundaryIs>"+kmlRing+kmlRing+"</outerBoundaryIs></Polygon>", "a Polygon with 2 outer")
	_, err := limits.ParseKML(geo.Any, kmlPoint, point("1"))
	require.ErrorContains(t, err, "cannot read KML: text 1, byte ")
}

func TestKMLTruncated(t *testing.T) {
	for _, text := range canonical {
		document := string(geo.AppendKML(nil, parsed(t, text)))
		for n := range len(document) {
			_, err := limits.ParseKML(geo.Any, document[:n])
			require.Error(t, err, document[:n])
		}
	}
}

func TestKMLLimits(t *testing.T) {
	f := func(l geo.Limits, want string, texts ...string) {
		t.Helper()
		_, err := l.ParseKML(geo.Any, texts...)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, geo.ErrTooLarge)
		require.ErrorContains(t, err, want)
	}
	small := geo.Limits{Points: 4, Depth: 2}
	f(small, "", kmlPoint, kmlPoint)
	f(small, "text 2, byte 7: geometry is too large: more than 4 points and parts", kmlPoint, kmlPoint, kmlPoint)
	f(small, "more than 4 points", "<LineString><coordinates>1,2 3,4 5,6 7,8</coordinates></LineString>")
	f(small, "more than 4 points", "<MultiGeometry>"+strings.Repeat("<MultiGeometry/>", 4)+"</MultiGeometry>")
	f(small, "deeper than 2", strings.Repeat("<MultiGeometry>", 3)+strings.Repeat("</MultiGeometry>", 3))
	f(limits, "elements nested deeper than 256", strings.Repeat("<Folder>", 100_000))
	f(limits, "elements nested deeper than 256", "<Placemark>"+strings.Repeat("<a>", 100_000))
	f(limits, "collections nested deeper than 32", strings.Repeat("<MultiGeometry>", 100_000))

	// The decoder would keep all attributes of a tag.
	attributes := strings.Repeat(" a='1'", 10_000)
	f(limits, "a tag with more than 16384 bytes", "<Placemark"+attributes+">"+kmlPoint+"</Placemark>")
	f(limits, "a tag with more than 16384 bytes", "<Placemark>text<b"+attributes+"/>"+kmlPoint+"</Placemark>")
	f(limits, "a tag with more than 16384 bytes", "<Placemark>"+kmlPoint+"<"+strings.Repeat("b", 100_000)+"/></Placemark>")
	f(limits, "a tag with more than 16384 bytes", "<Placemark></Placemark"+strings.Repeat(" ", 100_000)+">")
	// Everything else may be long.
	long := strings.Repeat("<a b='1'>", 10_000)
	f(limits, "", "<Placemark><!--"+long+"--><![CDATA["+long+"]]>"+strings.Repeat("a='1' ", 10_000)+kmlPoint+"<?a "+long+"?></Placemark>")
}
