package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

const (
	traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	inDegrees   = `coordFormat="OG_GEODECIMAL"`
)

// requireFault requires a fault with this exception, checks all of its members, and returns it with
// its stack element.
func (s *server) requireFault(class xroute.Exception, key xroute.ErrorCode, body string, headers ...string) (*xroute.Fault, *xroute.StackElement) {
	s.t.Helper()
	_, fault := s.call(body, append(headers, "traceparent", traceparent)...)
	require.NotNil(s.t, fault)
	require.IsType(s.t, class, fault.Exception, fault.Text)
	code := xroute.FaultClient
	if _, ours := class.(*xroute.UnexpectedException); ours {
		code = xroute.FaultServer
	}
	require.Equal(s.t, code, fault.Code)
	base := fault.Exception.Base()
	require.Equal(s.t, traceID, *base.TransactionID)
	stack := base.StackElement
	require.Equal(s.t, strings.TrimPrefix(fmt.Sprintf("%T", class), "*xroute."), *stack.ClassName)
	require.NotEmpty(s.t, *stack.Message)
	require.NotNil(s.t, stack.Context)
	require.Contains(s.t, fault.Text, *stack.Message)
	if key == "" {
		require.Nil(s.t, stack.ErrorKey)
	} else {
		require.NotNil(s.t, stack.ErrorKey, fault.Text)
		require.Equal(s.t, string(key), *stack.ErrorKey)
	}
	return fault, stack
}

// messages returns all messages of a chain of causes.
func messages(e *xroute.StackElement) string {
	text := ""
	for ; e != nil; e = e.Cause {
		text += *e.Message + "\n"
	}
	return text
}

func TestErrorCodes(t *testing.T) {
	s := start(t, nil)
	wkt := xmlOptions(inDegrees, "WKT")
	// f sends a geometry and requires this context and cause.
	f := func(key xroute.ErrorCode, what, content, options, caller, context, cause string) {
		t.Helper()
		_, stack := s.requireFault(&xroute.XServiceException{}, key, convert(what, content, options, caller))
		require.Contains(t, strings.Join(stack.Context, " "), context)
		require.Contains(t, messages(stack), cause)
	}
	f(xroute.CodeInvalidWKT, `Point" wkt="POINT (8 4x)"`, "", wkt, "", "geometry WKT", "byte 10")
	f(xroute.CodeInvalidWKT, `Point" wkt=""`, "", wkt, "", "geometry WKT", "byte 0")
	f(xroute.CodeInvalidWKT, `Point" wkt="POINT M (1 2 3)"`, "", wkt, "", "geometry WKT", "M")
	f(xroute.CodeInvalidWKB, `Point" wkb="AQEAAAA="`, "", wkt, "", "geometry WKB", "byte")
	f(xroute.CodeInvalidWKB, `Point" wkb="AQX/////"`, "", wkt, "", "geometry WKB", "byte")
	f(xroute.CodeInvalidWKB, `Point" wkb="no base64!"`, "", wkt, "", "convertGeometry/geometry/@wkb", "base64")
	f(xroute.CodeInvalidKML, `Point"`, `<c:kml kml="&lt;kml>"/>`, wkt, "", "geometry KML", "EOF")
	f(xroute.CodeInvalidKML, `Point"`, `<c:kml kml="&lt;Point>&lt;coordinates>8;48&lt;/coordinates>&lt;/Point>"/>`, wkt, "", "geometry KML", "coordinates")
	f(xroute.CodeInvalidKML, `Point"`, `<c:kml kml="POINT (1 2)"/>`, wkt, "", "geometry KML", "")
	f(xroute.CodePlacemarkNotFound, `Point"`, `<c:kml kml="&lt;kml>&lt;Placemark>&lt;name>x&lt;/name>&lt;/Placemark>&lt;/kml>"/>`, wkt, "", "geometry KML", "no placemark")
	f(xroute.CodePlacemarkNotFound, `Point"`, `<c:kml/>`, wkt, "", "geometry KML", "no placemark")
	f(xroute.CodeGeometryObject, `Point" wkt="LINESTRING (8 48, 9 49)"`, "", wkt, "", "geometry WKT", "wrong kind")
	f(xroute.CodeGeometryObject, `Polygon" wkb="AQEAAAAAAAAAAAAgQAAAAAAAAEhA"`, "", wkt, "", "geometry WKB", "wrong kind")
	f(xroute.CodeGeometryObject, `LineString"`, `<c:kml kml="&lt;Point>&lt;coordinates>8,48&lt;/coordinates>&lt;/Point>"/>`, wkt, "", "geometry KML", "wrong kind")
	f(xroute.CodeGeometryObject, `Point" wkt="POINT (8 48)"`, `<c:point x="8" y="48.1"/>`, wkt, "", "geometry", "PLAIN and WKT differ")
	f(xroute.CodeGeometryObject, `LineString"`, `<c:lineString><c:wrappedPoints><c:PlainPoint x="1" y="2"/></c:wrappedPoints></c:lineString>`, wkt, "", "geometry PLAIN", "a line must have no points or at least 2, got 1")
	f(xroute.CodeGeometryObject, `MultiPoint"`, `<c:multiPoint><c:wrappedPoints><c:PlainPoint x="1" y="2"/><c:PlainPoint x="1" y="2" z="3"/></c:wrappedPoints></c:multiPoint>`, wkt, "", "geometry PLAIN", "some points have a z coordinate and others do not")
	f(xroute.CodeGeometryObject, `GeometryCollection"`, `<c:geometryCollection><c:wrappedGeometries><c:PlainGeometryBase/></c:wrappedGeometries></c:geometryCollection>`, wkt, "", "geometry PLAIN", "use a type that extends it")
	for _, empty := range []string{`Point" wkt="POINT EMPTY"`, `MultiPoint" wkt="MULTIPOINT (1 1, EMPTY)"`, `GeometryCollection" wkt="GEOMETRYCOLLECTION (POINT EMPTY)"`} {
		f(xroute.CodeGeometryObject, empty, "", xmlOptions(inDegrees, "PLAIN", "WKT"), "", "geometry", "cannot represent a point")
	}
	f(xroute.CodeCoordinateFormat, `Point" wkt="POINT (181 48)"`, "", wkt, "", "geometry point[0]", "longitude")
	f(xroute.CodeCoordinateFormat, `LineString" wkt="LINESTRING (8 48, 8 91)"`, "", wkt, "", "geometry point[1]", "latitude")
	f(xroute.CodeCoordinateFormat, `Point"`, `<c:point x="NaN" y="48"/>`, wkt, "", "geometry PLAIN", "not a finite number")
	f(xroute.CodeCoordinateFormat, `Point"`, `<c:point x="8" y="-INF"/>`, wkt, "", "geometry PLAIN", "not a finite number")
	f(xroute.CodeCoordinateFormat, `Point" wkb="AQEAAAAAAAAAAADwfwAAAAAAAEhA"`, "", wkt, "", "geometry WKB", "not a finite number")
	for _, other := range []string{"", `<c:point x="8" y="48"/>`} {
		f(xroute.CodeCoordinateFormat, `Point" wkb="AQEAACDoZAAAAAAAAAAAIEAAAAAAAABIQA=="`, other, wkt, "", "geometry", "the geometry has SRID 25832")
	}
	f(xroute.CodeCoordinateFormat, `Point" wkt="POINT (8 48)"`, "", xmlOptions(`coordFormat="OG_SRID" srId="EPSG:31467"`, "WKT"), "", "options/@srId", "unknown srId")
	f(xroute.CodeCoordinateFormat, `Point" wkt="POINT (8 48)"`, "", xmlOptions(`coordFormat="VENDOR_GAUSS"`, "WKT"), "", "options/@coordFormat", "VENDOR_GAUSS")
	f(xroute.CodeCoordinateFormat, `Point" wkt="POINT (8 48)"`, "", wkt, caller("CoordFormat", "og_geodecimal"), "CoordFormat", "unknown format")
	f(xroute.CodeCoordinateFormat, `Point" wkt="POINT (8 48)"`, "", wkt, caller("CoordFormat", "OG_SRID", "SrId", "EPSG:1"), "SrId", "unknown srId")
	f(xroute.CodeGeometryEncoding, `Point" wkt="POINT (8 48)"`, "", xmlOptions(inDegrees), "", "options/wrappedResponseGeometry", "no encoding is requested")
	f(xroute.CodeGeometryEncoding, `Point" wkt="POINT (8 48)"`, "", xmlOptions(inDegrees, "GML"), "", "options/wrappedResponseGeometry", "GML")
	f(xroute.CodeGeometryEncoding, `Point" wkt="POINT (8 48)"`, "", `<r:options coordFormat="OG_GEODECIMAL"><r:wrappedResponseGeometry xsi:nil="1"/></r:options>`, "", "options/wrappedResponseGeometry", "no encoding is requested")
	f(xroute.CodeGeometryEncoding, `Point"`, "", wkt, "", "geometry", "no encoding")
}

func TestParameterNotSet(t *testing.T) {
	s := start(t, nil)
	f := func(path, message string) {
		t.Helper()
		_, stack := s.requireFault(&xroute.ParameterNotSetException{}, "", envelope(message))
		require.Contains(t, strings.Join(stack.Context, " "), path)
	}
	point := `<r:geometry xsi:type="c:Point" wkt="POINT (8 48)"/>`
	f("convertGeometry/geometry", `<r:convertGeometry>`+xmlOptions(inDegrees, "WKT")+`</r:convertGeometry>`)
	f("convertGeometry/geometry/@xsi:type", `<r:convertGeometry><r:geometry wkt="POINT (8 48)"/>`+xmlOptions(inDegrees, "WKT")+`</r:convertGeometry>`)
	f("convertGeometry/options", `<r:convertGeometry>`+point+`</r:convertGeometry>`)
	f("options/@coordFormat", `<r:convertGeometry>`+point+xmlOptions("", "WKT")+`</r:convertGeometry>`)
	f("options/wrappedResponseGeometry", `<r:convertGeometry>`+point+`<r:options coordFormat="OG_GEODECIMAL"/></r:convertGeometry>`)
	f("callerContext/wrappedProperties", `<r:convertGeometry>`+point+xmlOptions(inDegrees, "WKT")+`<r:callerContext/></r:convertGeometry>`)
	f("geometry/point/@y", `<r:convertGeometry><r:geometry xsi:type="c:Point"><c:point x="1"/></r:geometry>`+xmlOptions(inDegrees, "WKT")+`</r:convertGeometry>`)
	f("options/@srId", `<r:convertGeometry>`+point+xmlOptions(`coordFormat="OG_SRID"`, "WKT")+`</r:convertGeometry>`)
	f("SrId", `<r:convertGeometry>`+point+xmlOptions(inDegrees, "WKT")+caller("CoordFormat", "OG_SRID")+`</r:convertGeometry>`)
	f("startConvertGeometries/geometries", `<r:startConvertGeometries>`+xmlOptions(inDegrees, "WKT")+`</r:startConvertGeometries>`)
	for _, operation := range []string{"fetchConvertGeometries", "watchJob", "stopJob", "deleteJob"} {
		f(operation+"/id", "<r:"+operation+"/>")
	}
}

func TestIllegalParameter(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxPoints, c.MaxDepth, c.Jobs.MaxGeometries = 10, 2, 3 })
	f := func(want, body string) {
		t.Helper()
		fault, _ := s.requireFault(&xroute.IllegalParameterException{}, "", body)
		require.Contains(t, fault.Text, want)
	}
	wkt := xmlOptions(inDegrees, "WKT")
	f("not", "this is not XML")
	f("SOAP message", "<?xml version='1.0'?><html/>")
	f("document type", "<!DOCTYPE x [<!ENTITY e 'e'>]>"+strings.TrimPrefix(envelope("<r:stopJob><r:id>&e;</r:id></r:stopJob>"), "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"))
	f("no such operation", envelope("<r:calculateRoute/>"))
	f("no such operation", envelope(`<convertGeometry xmlns="urn:another"/>`))
	f("empty Body", envelope(""))
	f("not a valid double", convert(`Point"`, `<c:point x="8,5" y="48"/>`, wkt, ""))
	f("does not extend", convert(`Job" status="RUNNING" elapsedTime="1"`, "", wkt, ""))
	f("maximumPollingPeriod is -1", envelope(`<r:watchJob><r:id>x</r:id><r:options maximumPollingPeriod="-1"/></r:watchJob>`))
	f("maximumPollingPeriod", envelope(`<r:watchJob><r:id>x</r:id><r:options maximumPollingPeriod="99999999999"/></r:watchJob>`))
	f("too large", convert(`MultiPoint" wkt="MULTIPOINT (1 1, 1 1, 1 1, 1 1, 1 1, 1 1, 1 1, 1 1, 1 1, 1 1, 1 1)"`, "", wkt, ""))
	f("too large", convert(`GeometryCollection" wkt="GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (POINT (1 1))))"`, "", wkt, ""))
	line := `<c:EncodedGeometry xsi:type="c:LineString" wkt="LINESTRING (1 1, 1 1, 1 1, 1 1)"/>`
	f("more than 10 points", envelope(`<r:startConvertGeometries><r:geometries>`+line+line+line+`</r:geometries>`+wkt+`</r:startConvertGeometries>`))
	f("4 geometries are too many", envelope(`<r:startConvertGeometries><r:geometries>`+strings.Repeat(`<c:EncodedGeometry xsi:type="c:Point" wkt="POINT (1 1)"/>`, 4)+`</r:geometries>`+wkt+`</r:startConvertGeometries>`))
	f("ISO-8859-1", strings.Replace(convert(`Point" wkt="POINT (8 48)"`, "", wkt, ""), `encoding="UTF-8"`, `encoding="ISO-8859-1"`, 1))
}

// TestEchoIsTruncated checks that errors repeat at most the beginning of a value (contract 1.1).
// TestEchoEndsAtCharacterBoundary has the values that are always repeated.
func TestEchoIsTruncated(t *testing.T) {
	s := start(t, nil)
	long := strings.Repeat("q", 5000)
	f := func(body string) {
		t.Helper()
		_, text := s.post(body)
		require.False(t, strings.Contains(string(text), long[:65]), "%.2000s", text)
	}
	f(convert(`Point" wkt="POINT (`+long+`)"`, "", xmlOptions(inDegrees, "WKT"), ""))
	f(convert(`Point" wkb="`+long+`"`, "", xmlOptions(inDegrees, "WKT"), ""))
	for _, kml := range []string{long, "&lt;" + long + ">&lt;/x>", "&lt;x>&amp;" + long + ";&lt;/x>", "&lt;?xml version='" + long + "'?>"} {
		f(convert(`Point"`, `<c:kml kml="`+kml+`"/>`, xmlOptions(inDegrees, "WKT"), ""))
	}
	f(convert(long+`"`, "", xmlOptions(inDegrees, "WKT"), ""))
	f(envelope("<r:" + long + "/>"))
}

// TestEchoEndsAtCharacterBoundary checks that responses repeat at most 64 bytes of a value, and
// never part of a character.
func TestEchoEndsAtCharacterBoundary(t *testing.T) {
	s := start(t, nil)
	long, want := "x"+strings.Repeat("ä", 40), "x"+strings.Repeat("ä", 31)
	requireUnknown(t, want, s.watch(long, watchOptions(0, 250)))
	f := func(body string, headers ...string) {
		t.Helper()
		_, text := s.post(body, headers...)
		require.Contains(t, string(text), want)
		require.NotContains(t, string(text), want+"ä")
	}
	f(simple, "Content-Type", long)
	f(simple, "Content-Type", `text/xml; charset="`+long+`"`)
	f(simple, "Content-Encoding", long)
	options := xmlOptions(inDegrees, "WKT")
	f(convert(`Point" wkt="`+long+`"`, "", options, ""))
	f(convert(`Point"`, `<c:kml kml="&lt;Point>&lt;coordinates>&lt;`+long+`/>&lt;/coordinates>&lt;/Point>"/>`, options, ""))
	f(convert(`Point"`, `<c:kml kml="&lt;Point>&lt;coordinates>`+long+`&lt;/coordinates>&lt;/Point>"/>`, options, ""))
	f(convert(`Point"`, `<c:point x="`+long+`" y="1"/>`, options, ""))
	f(convert(`Point" wkt="POINT (8 48)"`, "", xmlOptions(`coordFormat="OG_SRID" srId="`+long+`"`, "WKT"), ""))
	f(convert(`Point" wkt="POINT (8 48)"`, "", options, caller("CoordFormat", long)))
}

// TestSOAPFaults checks that faults that do not concern the body have no exception.
func TestSOAPFaults(t *testing.T) {
	s := start(t, nil)
	f := func(code xroute.FaultCode, want, body string, headers ...string) {
		t.Helper()
		_, fault := s.call(body, headers...)
		require.NotNil(t, fault)
		require.Equal(t, code, fault.Code)
		require.Contains(t, fault.Text, want)
		require.Nil(t, fault.Exception)
	}
	body := convert(`Point" wkt="POINT (8 48)"`, "", xmlOptions(inDegrees, "WKT"), "")
	soap12 := strings.Replace(body, "http://schemas.xmlsoap.org/soap/envelope/", "http://www.w3.org/2003/05/soap-envelope", 1)
	f(xroute.FaultVersionMismatch, "SOAP 1.1", soap12)
	f(xroute.FaultVersionMismatch, "SOAP 1.1", soap12, "Content-Type", `application/soap+xml; charset=utf-8; action="x"`)
	f(xroute.FaultVersionMismatch, "text/xml", body, "Content-Type", "application/soap+xml")
	f(xroute.FaultMustUnderstand, "header", strings.Replace(body, "<s:Body>", `<s:Header><x:h xmlns:x="urn:x" s:mustUnderstand="1"/></s:Header><s:Body>`, 1))
}

// TestUnexpected checks that the fault for an internal error has no details.
func TestUnexpected(t *testing.T) {
	f := func(operate func(*exchange) (xroute.Response, error)) {
		t.Helper()
		s := start(t, nil, func(s *Service) { s.operate = operate })
		fault, stack := s.requireFault(&xroute.UnexpectedException{}, "", envelope("<r:stopJob><r:id>x</r:id></r:stopJob>"))
		require.Contains(t, fault.Text, "transactionId")
		require.NotContains(t, fault.Text, "secret")
		require.Nil(t, stack.Cause)
	}
	f(func(*exchange) (xroute.Response, error) { panic("secret") })
	f(func(*exchange) (xroute.Response, error) { return nil, errors.New("secret") })
	f(func(*exchange) (xroute.Response, error) { return &xroute.ConvertGeometryResponse{}, nil }) // without its result
}
