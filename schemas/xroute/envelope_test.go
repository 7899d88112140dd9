package xroute

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// pointRequest requests the conversion of a point; pointText is the same request as XML.
var pointRequest = &ConvertGeometry{
	Geometry: &Point{Encodings: Encodings{WKT: new("POINT (8.25 48.75)")}, Plain: &PlainPoint{X: 8.25, Y: 48.75}},
	Options:  RequestOptions{ResponseGeometry: []GeometryEncoding{EncodingWKB, EncodingWKT}, CoordFormat: geo.GeoDecimal},
	CallerContext: &CallerContext{
		Properties: []CallerContextProperty{{Key: new("CoordFormat"), Value: new("VENDOR_MERCATOR")}},
	},
}

const pointText = `<S:Envelope xmlns:S="http://schemas.xmlsoap.org/soap/envelope/" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
<S:Body><convertGeometry xmlns="urn:xserver:routing" xmlns:c="urn:xserver:common" xmlns:s="urn:xserver:service">
<geometry i:type="c:Point" wkt="POINT (8.25 48.75)"><c:point x="8.25" y="48.75"/></geometry>
<options coordFormat="OG_GEODECIMAL"><wrappedResponseGeometry>
<c:GeometryEncoding>WKB</c:GeometryEncoding><c:GeometryEncoding>WKT</c:GeometryEncoding>
</wrappedResponseGeometry></options>
<callerContext><s:wrappedProperties><s:CallerContextProperty key="CoordFormat" value="VENDOR_MERCATOR"/></s:wrappedProperties></callerContext>
</convertGeometry></S:Body></S:Envelope>`

// replace returns pointText with the first string of each pair, which it must contain, replaced by
// the second.
func replace(t *testing.T, pairs ...string) string {
	t.Helper()
	text := pointText
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// TestEquivalentRequests reads the same request in the forms that toolkits send.
func TestEquivalentRequests(t *testing.T) {
	f := func(text string) {
		t.Helper()
		got, err := ReadRequest(strings.NewReader(text), Limits{})
		require.NoError(t, err)
		require.Equal(t, pointRequest, got)
	}
	f(pointText)
	written, err := AppendMessage(nil, pointRequest)
	require.NoError(t, err)
	f(string(written))
	f(xmlDeclaration + pointText)
	f("\uFEFF" + pointText)
	f("<!-- a comment -->\n" + pointText + "\n<!-- the end -->\n")
	f(replace(t, "c:", "common:", "xmlns:c=", "xmlns:common="))
	f(replace(t, "i:type", "xsi:type", "xmlns:i=", "xmlns:xsi="))
	f(replace(t, `i:type="c:Point"`, `i:type=" p:Point " xmlns:p="urn:xserver:common"`))
	f(replace(t, `<c:point `, `<point xmlns="urn:xserver:common" `))
	// A prefix is bound to another namespace inside an element.
	f(replace(t, `<c:point x="8.25" y="48.75"/>`, `<s:point xmlns:s="urn:xserver:common" x="8.25" y="48.75"/>`))
	// Elements in another order, as node-soap sends them.
	options := pointText[strings.Index(pointText, "<options"):strings.Index(pointText, "<callerContext")]
	f(replace(t, options, "", "<geometry ", options+"<geometry "))
	// Unknown elements and attributes, and the attribute xml:lang.
	f(replace(t, `<c:point `, `<c:colour red="1">text<c:point/></c:colour><c:point colour="red" c:x="3" xml:lang="en" `))
	f(replace(t, `<S:Body>`, `<S:Header><o:security xmlns:o="urn:other" S:mustUnderstand="0"><o:token/></o:security></S:Header><S:Body>`))
	f(replace(t, `<S:Body>`, `<S:Header><o xmlns="urn:other" S:mustUnderstand="1" S:actor="urn:someone.else"/></S:Header><S:Body>`))
	f(replace(t, `<S:Body>`, `<S:Header/><S:Body S:encodingStyle="">`))
	f(replace(t, `xmlns:i=`, `i:schemaLocation="urn:x x.xsd" xmlns:i=`))
	f(replace(t, `>WKB<`, "> W<!-- not the end -->K<![CDATA[B]]>\n<"))
	f(replace(t, `"POINT (8.25`, `"&#80;OINT&#x20;(8.25`))
	f(replace(t, `x="8.25"`, `x=" +825.0E-2 "`))
	f(replace(t, `<c:point `, `<c:kml i:nil="true"/><c:point `)) // although it is not nillable
	f(replace(t, `>WKB<`, ` i:nil="false" i:type="c:GeometryEncoding">WKB<`))
	for _, order := range []func(uint16) []byte{
		func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} },
		func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} },
	} {
		for _, mark := range []string{"\uFEFF", ""} {
			var text []byte
			for _, u := range utf16.Encode([]rune(mark + `<?xml version="1.0" encoding="UTF-16"?>` + pointText)) {
				text = append(text, order(u)...)
			}
			f(string(text))
		}
	}
}

// TestInvalidRequests checks each error of a request.
func TestInvalidRequests(t *testing.T) {
	const operation = "Envelope/Body/convertGeometry"
	f := func(kind Kind, path, reason, text string) {
		t.Helper()
		_, err := ReadRequest(strings.NewReader(text), Limits{Depth: 20})
		var wrong *Error
		require.ErrorAs(t, err, &wrong)
		require.Contains(t, wrong.Reason, reason)
		require.Equal(t, path, wrong.Path)
		require.Equal(t, kind, wrong.Kind)
		require.Contains(t, err.Error(), reason)
	}

	// Invalid XML, and XML that SOAP does not allow.
	f(KindSyntax, "", "unexpected end of the envelope", "")
	f(KindSyntax, "", "unexpected end of the envelope", xmlDeclaration)
	f(KindSyntax, "", "before the first element", `{"geometry": 1}`)
	f(KindSyntax, "", "does not match the open element", `</a>`)
	f(KindSyntax, operation, "unexpected end of the envelope", pointText[:strings.Index(pointText, "<geometry")])
	f(KindSyntax, operation+"/options", "line 4 is not XML", strings.Split(pointText, "<wrappedR")[0]+"<<")
	f(KindSyntax, "", "content after the end", pointText+"<again/>")
	f(KindSyntax, "", "content after the end", pointText+"again")
	f(KindSyntax, "", "content after the end", pointText+"</again>")
	f(KindSyntax, operation, "does not match the open element", replace(t, "</convertGeometry>", "</Convertgeometry>"))
	f(KindSyntax, operation+"/geometry/point", `duplicate attribute "x"`, replace(t, `x="8.25"`, `x="8.25" x="9"`))
	f(KindSyntax, operation+"/geometry", "unquoted", replace(t, `x="8.25"`, `x=8.25`))
	f(KindSyntax, "", "not supported", `<?xml version="1.0" encoding="ISO-8859-1"?>`+pointText)
	f(KindSyntax, "", "version", `<?xml version="1.1"?>`+pointText)
	f(KindSyntax, operation+"/options/wrappedResponseGeometry/GeometryEncoding[1]", "UTF-8", replace(t, ">WKB<", ">W\xFFKB<"))
	f(KindSyntax, operation+"/options/wrappedResponseGeometry/GeometryEncoding[1]", "code", replace(t, ">WKB<", ">W\x01KB<"))
	f(KindSyntax, operation+"/options/wrappedResponseGeometry/GeometryEncoding[1]", "character", replace(t, ">WKB<", ">W&#0;KB<"))
	f(KindSyntax, "", "processing", `<?php exit ?>`+pointText)
	f(KindSyntax, "", "processing", "\n"+xmlDeclaration+pointText)
	f(KindSyntax, "Envelope/Body", "processing", replace(t, "<convertG", `<?xml version="1.0"?><convertG`))
	f(KindSyntax, "", "document type", "<!DOCTYPE a>"+pointText)
	f(KindSyntax, "", "document type", `<!DOCTYPE a [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]>`+replace(t, ">WKB<", ">&lol2;<"))
	f(KindSyntax, "", "document type", `<!DOCTYPE a SYSTEM "file:///etc/passwd">`+pointText)
	f(KindSyntax, operation+"/options/wrappedResponseGeometry/GeometryEncoding[1]", "entity", replace(t, ">WKB<", ">&eacute;<"))
	f(KindSyntax, operation, "entity", replace(t, `"POINT `, `"&xxe;POINT `))

	// Prefixes.
	f(KindSyntax, operation+"/geometry/point", `"d" is not declared`, replace(t, "<c:point", "<d:point"))
	f(KindSyntax, operation+"/geometry/point", `"d" is not declared`, replace(t, ` y="`, ` d:z="1" y="`))
	f(KindSyntax, operation+"/geometry", `"d" is not declared`, replace(t, "c:Point", "d:Point"))
	f(KindSyntax, operation+"/callerContext", `"q" is not declared`, replace(t, "<options ", `<options xmlns:q="urn:q" `, "<callerContext>", "<q:callerContext>"))
	f(KindSyntax, operation+"/geometry/point", "with an empty namespace", replace(t, ` y="`, ` xmlns:d="" y="`))
	f(KindSyntax, operation+"/geometry/point", `duplicate attribute "z" in the namespace "urn:q"`,
		replace(t, ` y="`, ` d:z="1" xmlns:d="urn:q" xmlns:e="urn:q" e:z="1" y="`))
	f(KindSyntax, operation+"/geometry", `duplicate attribute "type"`,
		replace(t, ` i:type="c:Point"`, ` i:type="c:Point" xmlns:j="http://www.w3.org/2001/XMLSchema-instance" j:type="c:Point"`))
	f(KindSyntax, operation+"/geometry/point", `"xml" must not be bound`, replace(t, ` y="`, ` xmlns:xml="urn:q" y="`))
	f(KindSyntax, operation+"/geometry/point", `"d" must not be bound`, replace(t, ` y="`, ` xmlns:d="http://www.w3.org/XML/1998/namespace" y="`))
	f(KindSyntax, operation+"/geometry/point", `"xmlns" must not be bound`, replace(t, ` y="`, ` xmlns:xmlns="urn:q" y="`))

	// Envelopes.
	f(KindVersion, "Envelope", "soap-envelope", replace(t, "http://schemas.xmlsoap.org/soap/envelope/", "http://www.w3.org/2003/05/soap-envelope"))
	f(KindEnvelope, "html", "must start with an Envelope", "<html/>")
	f(KindEnvelope, "Envelope", "must have a Body", `<Envelope xmlns="`+nsEnvelope+`"/>`)
	f(KindEnvelope, "Envelope/Body", "empty Body", `<Envelope xmlns="`+nsEnvelope+`"><Body/></Envelope>`)
	f(KindEnvelope, "Envelope/stopJob", "not allowed here", replace(t, "</S:Body>", "</S:Body><stopJob/>"))
	f(KindEnvelope, "Envelope/Body/stopJob", "more than one message", replace(t, "</S:Body>", "<stopJob/></S:Body>"))
	f(KindEnvelope, "Envelope/Body", "not allowed here", replace(t, "</S:Body>", "</S:Body><S:Body/>"))
	f(KindEnvelope, "Envelope/Header", "not allowed here", replace(t, "</S:Body>", "</S:Body><S:Header/>"))
	f(KindMustUnderstand, "Envelope/Header/Security", "must be understood", replace(t, "<S:Body>", `<S:Header><o:Security xmlns:o="urn:o" S:mustUnderstand="1"/></S:Header><S:Body>`))
	f(KindMustUnderstand, "Envelope/Header/a", "must be understood", replace(t, "<S:Body>", `<S:Header><a S:mustUnderstand="1" S:actor="`+actorNext+`"/></S:Header><S:Body>`))
	f(KindOperation, "Envelope/Body/ConvertGeometry", "no such operation", replace(t, "convertGeometry", "ConvertGeometry"))
	f(KindOperation, "Envelope/Body/convertGeometry", `namespace "urn:other"`, replace(t, "urn:xserver:routing", "urn:other"))
	f(KindOperation, "Envelope/Body/stopJobResponse", "no such operation",
		`<Envelope xmlns="`+nsEnvelope+`"><Body><r:stopJobResponse xmlns:r="`+nsRouting+`"><r:result elapsedTime="1" status="FAILED"/></r:stopJobResponse></Body></Envelope>`)
	f(KindOperation, "Envelope/Body/Fault", "no such operation", `<Envelope xmlns="`+nsEnvelope+`"><Body><Fault/></Body></Envelope>`)

	// Members.
	f(KindMissing, operation+"/options/@coordFormat", "required attribute is missing", replace(t, ` coordFormat="OG_GEODECIMAL"`, ""))
	f(KindMissing, operation+"/options/@coordFormat", "required attribute is missing", replace(t, ` coordFormat=`, " c:coordFormat="))
	f(KindMissing, operation+"/geometry/point/@y", "required attribute is missing", replace(t, ` y="48.75"`, ""))
	f(KindMissing, operation+"/options", "required element in the namespace urn:xserver:routing is missing", replace(t, "<options", "<c:options", "</options", "</c:options"))
	f(KindMissing, operation+"/options/wrappedResponseGeometry", "required element in the namespace urn:xserver:routing is missing",
		replace(t, "wrappedResponseGeometry", "c:wrappedResponseGeometry"))
	// Members that must not be ignored silently.
	f(KindValue, operation+"/callerContext", "in the namespace urn:xserver:routing, not \"urn:xserver:common\"",
		replace(t, "<callerContext", "<c:callerContext", "</callerContext", "</c:callerContext"))
	f(KindValue, operation+"/geometry/point", "in the namespace urn:xserver:common, not \"urn:xserver:routing\"", replace(t, "<c:point", "<point"))
	f(KindValue, operation+"/options/wrappedResponseGeometry/String", "must be GeometryEncoding in the namespace urn:xserver:common",
		replace(t, `<wrappedResponseGeometry>`, `<wrappedResponseGeometry><String>PLAIN</String>`))
	f(KindValue, operation+"/options/wrappedResponseGeometry/GeometryEncoding", "must be GeometryEncoding in the namespace urn:xserver:common",
		replace(t, `<wrappedResponseGeometry>`, `<wrappedResponseGeometry><GeometryEncoding>PLAIN</GeometryEncoding>`))
	f(KindValue, operation+"/geometry/@wkb", "is not a valid base64Binary", replace(t, `i:type="c:Point"`, `i:type="c:Point" wkb="AQE"`))
	f(KindMissing, operation+"/geometry/@xsi:type", "abstract", replace(t, ` i:type="c:Point"`, ""))
	f(KindMissing, operation+"/geometry/@xsi:type", "abstract", replace(t, `"c:Point"`, `"c:EncodedGeometry"`))
	f(KindValue, operation+"/geometry/@xsi:type", "does not extend", replace(t, `"c:Point"`, `"c:PlainPoint"`))
	f(KindValue, operation+"/geometry/@xsi:type", "does not extend", replace(t, `"c:Point"`, `"c:EncodedGeometryBase"`))
	f(KindValue, operation+"/geometry/@xsi:type", "no such type", replace(t, `"c:Point"`, `"Point"`))
	f(KindValue, operation+"/geometry/@xsi:type", "no such type", replace(t, `"c:Point"`, `"c:"`))
	f(KindValue, operation+"/options/@xsi:type", "does not extend", replace(t, "<options ", `<options i:type="c:Job" `))
	f(KindValue, operation+"/@xsi:type", "does not extend", replace(t, "<convertGeometry ", `<convertGeometry i:type="c:Job" `))
	f(KindMissing, operation+"/geometry", "required element", replace(t, "<geometry ", `<geometry i:nil="true" `))
	f(KindValue, operation+"/@xsi:nil", "must not be nil", replace(t, "<convertGeometry ", `<convertGeometry i:nil="1" `))
	f(KindValue, operation+"/options/wrappedResponseGeometry/GeometryEncoding[2]/@xsi:nil", "must not be nil",
		replace(t, "<c:GeometryEncoding>WKT</c:GeometryEncoding>", `<c:GeometryEncoding i:nil="1"/>`))
	f(KindValue, operation+"/callerContext/@xsi:nil", `"yes" is neither`, replace(t, "<callerContext>", `<callerContext i:nil="yes">`))
	f(KindValue, operation+"/callerContext/wrappedProperties", "inside an element with xsi:nil", replace(t, "<callerContext>", `<callerContext i:nil="true">`))
	f(KindValue, operation+"/options", "duplicate element", replace(t, "<callerContext>", `<options/><callerContext>`))
	f(KindValue, operation+"/geometry", `text "POINT" where only elements are allowed`, replace(t, "<c:point ", "POINT<c:point "))
	f(KindValue, operation+"/options/wrappedResponseGeometry/GeometryEncoding[1]", `element "b" where only text`, replace(t, ">WKB<", "><b>WKB</b><"))
	f(KindValue, operation+"/geometry/point/@x", `"8,25" is not a valid double`, replace(t, `x="8.25"`, `x="8,25"`))
	f(KindValue, operation+"/geometry/point/@x", `"0x1p3" is not a valid double`, replace(t, `x="8.25"`, `x="0x1p3"`))
	f(KindValue, operation+"/geometry/point/@x", `"" is not a valid double`, replace(t, `x="8.25"`, `x=""`))
	f(KindValue, operation+"/geometry/point/@x", `"`+strings.Repeat("ü", 32)+`" is not a valid double`, replace(t, `x="8.25"`, `x="`+strings.Repeat("ü", 1000)+`"`))
	f(KindValue, operation+"/options/@coordFormat", `"OG_GEO" is not a valid CoordFormat: must be one of OG_GEODECIMAL, VENDOR_MERCATOR,`, replace(t, "OG_GEODECIMAL", "OG_GEO"))
	f(KindValue, operation+"/options/wrappedResponseGeometry/GeometryEncoding[2]", `"SVG" is not a valid GeometryEncoding`, replace(t, ">WKT<", ">SVG<"))
}

// TestErrorsAreShort checks that errors quote only the beginning of long names and texts.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("ü", 10000)
	f := func(text string) {
		t.Helper()
		_, err := ReadRequest(strings.NewReader(text), Limits{})
		require.Error(t, err)
		require.Less(t, len(err.Error()), 500)
	}
	f("<" + long + "/>")
	f(long)
	f(`<?xml version="` + long + `"?>`)
	f(`<?xml version="1.0" encoding="` + long + `"?>`)
	f(`<?xml version="1.0" encoding="` + strings.Repeat("\x80", 10000) + `"?>`) // no character starts in it
	f(replace(t, "convertGeometry", long))
	f(replace(t, "<c:point ", "<"+long+":point "))
	f(replace(t, "<c:point ", "<"+long+"><c:point "))
	f(replace(t, "<c:point ", "<c:point>&"+long+";"))
	f(replace(t, "<c:point ", "<c:point "+long+"='' "+long+"='' "))
	f(replace(t, "<c:point ", "<c:point b='"+long+"<' "))
	f(replace(t, "c:Point", "c:"+long))
	f(replace(t, "c:Point", long+":Point"))
	f(replace(t, "urn:xserver:routing", long))
	f(replace(t, nsEnvelope, long))
	f(replace(t, "8.25", long))
	f(replace(t, "WKT<", long+"<"))
	f(replace(t, "WKT<", "<"+long+"/><"))
	f(replace(t, "<c:point ", long+"<c:point "))
	f(replace(t, "<callerContext>", "<callerContext i:nil='"+long+"'>"))
}

func TestErrorType(t *testing.T) {
	f := func(want, text string) {
		t.Helper()
		_, err := ReadRequest(strings.NewReader(text), Limits{})
		var wrong *Error
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, want, wrong.Type)
	}
	f("CoordFormat", replace(t, ` coordFormat="OG_GEODECIMAL"`, ""))
	f("CoordFormat", replace(t, "OG_GEODECIMAL", "OG_GEO"))
	f("GeometryEncoding", replace(t, ">WKT<", ">SVG<"))
	f("double", replace(t, `x="8.25"`, `x="east"`))
	f("EncodedGeometry", replace(t, ` i:type="c:Point"`, ""))
	f("", replace(t, "convertGeometry", "ConvertGeometry"))
}

// TestNilAndAbsent reads a caller context that is absent, nil or empty.
func TestNilAndAbsent(t *testing.T) {
	f := func(text string, want *CallerContext) {
		t.Helper()
		got, err := ReadRequest(strings.NewReader(text), Limits{})
		require.NoError(t, err)
		require.Equal(t, want, got.(*ConvertGeometry).CallerContext)
	}
	start, end := strings.Index(pointText, "<callerContext>"), strings.Index(pointText, "</convertGeometry>")
	with := func(context string) string { return pointText[:start] + context + pointText[end:] }
	f(with(""), nil)
	f(with(`<callerContext i:nil="true"/>`), nil)
	f(with(`<callerContext i:nil="1" log1="x"> </callerContext>`), nil)
	f(with(`<callerContext><s:wrappedProperties i:nil=" true "/></callerContext>`), &CallerContext{})
	f(with(`<callerContext log1=""><s:wrappedProperties/></callerContext>`), &CallerContext{Properties: []CallerContextProperty{}, Log1: new("")})
}

// TestTruncated checks that an envelope that is truncated after any byte is rejected.
func TestTruncated(t *testing.T) {
	f := func(text string) {
		t.Helper()
		for n := range len(text) {
			_, err := read(strings.NewReader(text[:n]), Limits{})
			var wrong *Error
			require.ErrorAs(t, err, &wrong, text[:n])
			require.Equal(t, KindSyntax, wrong.Kind, text[:n])
		}
	}
	f(pointText)
	f(replace(t, "<S:Body>", `<S:Header><o:a xmlns:o="urn:o"><b>text</b></o:a></S:Header><S:Body>`))
	text, err := AppendMessage(nil, fault(CodeInvalidWKB))
	require.NoError(t, err)
	f(strings.TrimSuffix(string(text), "\n"))
}

// TestReaderError checks that an error of the connection is returned unchanged.
func TestReaderError(t *testing.T) {
	broken := errors.New("connection reset")
	for _, n := range []int{0, 2, 100, len(pointText)} {
		_, err := ReadRequest(io.MultiReader(strings.NewReader(pointText[:n]), iotest.ErrReader(broken)), Limits{})
		require.Equal(t, broken, err)
	}
}

func TestResponses(t *testing.T) {
	f := func(m Response) {
		t.Helper()
		text, err := AppendMessage([]byte("before"), m)
		require.NoError(t, err)
		got, err := ReadResponse(strings.NewReader(strings.TrimPrefix(string(text), "before")), Limits{})
		require.NoError(t, err)
		require.Equal(t, m, got)
		_, err = ReadRequest(strings.NewReader(strings.TrimPrefix(string(text), "before")), Limits{})
		require.ErrorContains(t, err, "no such operation")
	}
	job := Job{ID: new("7"), Status: StatusRunning, ElapsedTime: 12, Progress: &BulkProgress{Failed: 1, Remaining: 2, Successful: 3}}
	f(&ConvertGeometryResponse{Result: pointRequest.Geometry})
	f(&StartConvertGeometriesResponse{Result: job})
	f(&WatchJobResponse{Result: job})
	f(&StopJobResponse{Result: job})
	f(&DeleteJobResponse{Result: job})
	f(&FetchConvertGeometriesResponse{Result: ConvertedGeometries{Job: Job{Status: StatusUnknown}}})
	f(&FetchConvertGeometriesResponse{Result: ConvertedGeometries{
		Job:        job,
		Geometries: []EncodedGeometry{pointRequest.Geometry, &Polygon{}},
		Failures:   []ConversionFailure{{Index: 1, Exception: fault(CodeInvalidWKT).Exception}},
	}})
}

func fault(code ErrorCode) *Fault {
	x := &XServiceException{}
	x.TransactionID = new("4bf9")
	x.StackElement = &StackElement{
		ErrorKey: new(string(code)), Message: new("no <WKT>"), Context: []string{"a", "b"},
		Cause: &StackElement{Message: new("the reason")},
	}
	return &Fault{Code: FaultClient, Text: "cannot read the geometry: no <WKT>", Exception: x}
}

func TestFaults(t *testing.T) {
	f := func(want *Fault) {
		t.Helper()
		text, err := AppendMessage(nil, want)
		require.NoError(t, err)
		_, err = ReadResponse(strings.NewReader(string(text)), Limits{})
		require.Equal(t, want, err)
		_, err = ReadRequest(strings.NewReader(string(text)), Limits{})
		require.ErrorContains(t, err, "no such operation")
		require.Contains(t, want.Error(), want.Text)
	}
	f(fault(CodeInvalidWKT))
	f(&Fault{Code: FaultServer, Text: "", Exception: &UnexpectedException{}})
	f(&Fault{Code: FaultClient, Exception: &BaseException{}})
	f(&Fault{Code: FaultVersionMismatch, Text: "expected SOAP 1.1"})
	f(&Fault{Code: FaultMustUnderstand})

	read := func(inside string) *Fault {
		_, err := ReadResponse(strings.NewReader(`<s:Envelope xmlns:s="`+nsEnvelope+`"><s:Body><s:Fault>`+inside+`</s:Fault></s:Body></s:Envelope>`), Limits{})
		fault, _ := err.(*Fault)
		require.NotNil(t, fault, err)
		return fault
	}
	require.Equal(t, &Fault{Code: FaultClient, Text: "x"}, read(`<faultcode>s:Client.Authentication</faultcode><faultstring>x</faultstring><faultactor>y</faultactor><detail><z/></detail>`))
}

// TestFaultText compares the envelope of a fault byte by byte.
func TestFaultText(t *testing.T) {
	got, err := AppendMessage(nil, fault(CodeInvalidWKT))
	require.NoError(t, err)
	require.Equal(t, head+`<soapenv:Fault><faultcode>soapenv:Client</faultcode><faultstring>cannot read the geometry: no &lt;WKT&gt;</faultstring><detail>`+
		`<e:XServiceException xsi:type="e:XServiceException" transactionId="4bf9"><e:stackElement errorKey="REQUEST_INVALID_WKT" message="no &lt;WKT&gt;">`+
		`<e:cause message="the reason"><e:wrappedContext xsi:nil="true"/></e:cause>`+
		`<e:wrappedContext><p:String>a</p:String><p:String>b</p:String></e:wrappedContext></e:stackElement></e:XServiceException></detail></soapenv:Fault>`+tail, string(got))
}

// TestAppendInvalidMessage checks that appending an invalid message returns an error and leaves dst
// unchanged.
func TestAppendInvalidMessage(t *testing.T) {
	f := func(want string, m Message) {
		t.Helper()
		got, err := AppendMessage([]byte("before"), m)
		require.ErrorContains(t, err, want)
		require.Equal(t, "before", string(got))
	}
	f("convertGeometryResponse/result: required element in the namespace urn:xserver:routing is missing", &ConvertGeometryResponse{})
	f("convertGeometryResponse/result: required element in the namespace urn:xserver:routing is missing", &ConvertGeometryResponse{Result: (*Point)(nil)})
	f("is not of type EncodedGeometry", &ConvertGeometryResponse{Result: &Encodings{}})
	f("is not of type EncodedGeometry", &ConvertGeometryResponse{Result: struct{ *Point }{&Point{}}})
	f(`"" is not a valid JobStatus`, &StopJobResponse{})
	f(`"gone" is not a valid JobStatus`, &StopJobResponse{Result: Job{Status: "gone"}})
	f("ArrayOfEncodedGeometry: item 1 is nil", &StartConvertGeometries{
		Geometries: []EncodedGeometry{&Point{}, nil}, Options: RequestOptions{CoordFormat: geo.SRID},
	})
	f("is not of type BaseException", &Fault{Exception: struct{ *BaseException }{&BaseException{}}})
}

func TestWSDLAddress(t *testing.T) {
	wsdl := string(WSDL(`https://road.example/a&b/xroute/ws/XRoute`))
	require.Contains(t, wsdl, `<soap:address location="https://road.example/a&amp;b/xroute/ws/XRoute"/>`)
	require.NotContains(t, wsdl, "localhost")
	for _, name := range SchemaNames() {
		require.NotEmpty(t, Schema(name, "PTV"))
	}
}

// TestNumbers writes extreme values of a double and reads them back.
func TestNumbers(t *testing.T) {
	for _, x := range []float64{0, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(), 1e21, 0.1} {
		text, err := AppendMessage(nil, &ConvertGeometryResponse{Result: &Point{Plain: &PlainPoint{X: x, Y: 1}}})
		require.NoError(t, err)
		got, err := ReadResponse(strings.NewReader(string(text)), Limits{})
		require.NoError(t, err)
		read := got.(*ConvertGeometryResponse).Result.(*Point).Plain.X
		require.Equal(t, fmt.Sprint(x), fmt.Sprint(read))
	}
}
