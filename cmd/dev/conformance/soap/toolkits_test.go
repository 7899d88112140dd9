package soap

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/sources/routing"
)

// These tests call the routing service (contract 3) with SOAP toolkits. Each program under
// testdata generates its types from the running daemon's WSDL, as its users do, and makes
// the calls that it reads from its standard input.

func TestZeep(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd {
		return exec.Command(python(t), filepath.Join(testdata, "zeep", "client.py"), wsdl)
	})
}

func TestApacheCXF(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd {
		classPath := buildJAXWS(t, "cxf", "org.apache.cxf.tools.wsdlto.WSDLToJava", wsdl)
		return foreign.Java("-cp", classPath, "-Djava.util.logging.config.file="+filepath.Join(testdata, "cxf", "logging.properties"), "Client", wsdl)
	})
}

func TestMetro(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd {
		return foreign.Java("-cp", buildJAXWS(t, "metro", "com.sun.tools.ws.WsImport", wsdl, "-quiet", "-Xnocompile"), "Client", wsdl)
	})
}

func TestNodeSOAP(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd {
		cmd := exec.Command("node", filepath.Join(testdata, "node", "client.js"), wsdl)
		cmd.Env = append(cmd.Environ(), "NODE_PATH="+modules(t))
		return cmd
	})
}

func TestPHPSoapClient(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd {
		return exec.Command("php", "-d", "display_errors=stderr", "-d", "error_reporting=-1", filepath.Join(testdata, "php", "client.php"), wsdl)
	})
}

func TestGSOAP(t *testing.T) {
	exercise(t, func(wsdl string) *exec.Cmd { return exec.Command(buildGSOAP(t, wsdl)) })
}

// The keys of the daemon under test.
const (
	routingKey = "route"
	ingestKey  = "detect"
)

// testdata is the directory of the programs that use the toolkits.
const testdata = "testdata"

// exercise runs all checks with the program that uses a toolkit.
func exercise(t *testing.T, program func(wsdl string) *exec.Cmd) {
	needs.Everything(t, "a SOAP toolkit")
	d := daemontest.New(t)
	d.Keys(daemontest.KeyEntry(routingKey, "routing", "UTC"), daemontest.KeyEntry(ingestKey, "ingest", "UTC"))
	d.Run().Await(http.StatusOK)
	k := startToolkit(t, program("http://"+d.API+routing.Path+"?WSDL"))
	k.checkKeys()
	k.checkEncodings()
	k.checkFormats()
	k.checkJob()
	k.checkFailures()
	k.checkEndedJobs()
	k.checkFaults()
}

// shape is a geometry in all encodings. GEOS 3.14 wrote the WKB.
type shape struct{ kind, plain, wkt, wkb, kml string }

var shapes = []shape{
	{
		kind: "Point", plain: `[8.25,48.75]`, wkt: "POINT (8.25 48.75)",
		wkb: "AQEAAAAAAAAAAIAgQAAAAAAAYEhA",
		kml: "<Point><coordinates>8.25,48.75</coordinates></Point>",
	},
	{
		kind: "Point", plain: `[8.25,48.75,110.5]`, wkt: "POINT Z (8.25 48.75 110.5)",
		wkb: "AekDAAAAAAAAAIAgQAAAAAAAYEhAAAAAAACgW0A=",
		kml: "<Point><coordinates>8.25,48.75,110.5</coordinates></Point>",
	},
	{
		kind: "LineString", plain: `[[8.25,48.75],[8.5,49]]`, wkt: "LINESTRING (8.25 48.75, 8.5 49)",
		wkb: "AQIAAAACAAAAAAAAAACAIEAAAAAAAGBIQAAAAAAAACFAAAAAAACASEA=",
		kml: "<LineString><coordinates>8.25,48.75 8.5,49</coordinates></LineString>",
	},
	{
		kind: "LinearRing", plain: `[[8,48],[9,48],[9,49],[8,48]]`, wkt: "LINESTRING (8 48, 9 48, 9 49, 8 48)",
		wkb: "AQIAAAAEAAAAAAAAAAAAIEAAAAAAAABIQAAAAAAAACJAAAAAAAAASEAAAAAAAAAiQAAAAAAAgEhAAAAAAAAAIEAAAAAAAABIQA==",
		kml: "<LinearRing><coordinates>8,48 9,48 9,49 8,48</coordinates></LinearRing>",
	},
	{
		kind: "Polygon", plain: `[[[8,48],[9,48],[9,49],[8,48]],[[8.5,48.25],[8.75,48.25],[8.75,48.5],[8.5,48.25]]]`,
		wkt: "POLYGON ((8 48, 9 48, 9 49, 8 48), (8.5 48.25, 8.75 48.25, 8.75 48.5, 8.5 48.25))",
		wkb: "AQMAAAACAAAABAAAAAAAAAAAACBAAAAAAAAASEAAAAAAAAAiQAAAAAAAAEhAAAAAAAAAIkAAAAAAAIBIQAAAAAAAACBAAAAAAAAASEAEAAAAAAAAAAAAIUAAAAAAACBIQAAAAAAAgCFAAAAAAAAgSEAAAAAAAIAhQAAAAAAAQEhAAAAAAAAAIUAAAAAAACBIQA==",
		kml: "<Polygon><outerBoundaryIs><LinearRing><coordinates>8,48 9,48 9,49 8,48</coordinates></LinearRing></outerBoundaryIs>" +
			"<innerBoundaryIs><LinearRing><coordinates>8.5,48.25 8.75,48.25 8.75,48.5 8.5,48.25</coordinates></LinearRing></innerBoundaryIs></Polygon>",
	},
	{
		kind: "MultiPoint", plain: `[[8.25,48.75],[8.5,49]]`, wkt: "MULTIPOINT ((8.25 48.75), (8.5 49))",
		wkb: "AQQAAAACAAAAAQEAAAAAAAAAAIAgQAAAAAAAYEhAAQEAAAAAAAAAAAAhQAAAAAAAgEhA",
		kml: "<MultiGeometry><Point><coordinates>8.25,48.75</coordinates></Point><Point><coordinates>8.5,49</coordinates></Point></MultiGeometry>",
	},
	{
		kind: "MultiLineString", plain: `[[[8,48],[9,48]],[[8,49],[9,49]]]`, wkt: "MULTILINESTRING ((8 48, 9 48), (8 49, 9 49))",
		wkb: "AQUAAAACAAAAAQIAAAACAAAAAAAAAAAAIEAAAAAAAABIQAAAAAAAACJAAAAAAAAASEABAgAAAAIAAAAAAAAAAAAgQAAAAAAAgEhAAAAAAAAAIkAAAAAAAIBIQA==",
		kml: "<MultiGeometry><LineString><coordinates>8,48 9,48</coordinates></LineString><LineString><coordinates>8,49 9,49</coordinates></LineString></MultiGeometry>",
	},
	{
		kind: "MultiPolygon", plain: `[[[[8,48],[9,48],[9,49],[8,48]]],[[[10,48],[11,48],[11,49],[10,48]]]]`,
		wkt: "MULTIPOLYGON (((8 48, 9 48, 9 49, 8 48)), ((10 48, 11 48, 11 49, 10 48)))",
		wkb: "AQYAAAACAAAAAQMAAAABAAAABAAAAAAAAAAAACBAAAAAAAAASEAAAAAAAAAiQAAAAAAAAEhAAAAAAAAAIkAAAAAAAIBIQAAAAAAAACBAAAAAAAAASEABAwAAAAEAAAAEAAAAAAAAAAAAJEAAAAAAAABIQAAAAAAAACZAAAAAAAAASEAAAAAAAAAmQAAAAAAAgEhAAAAAAAAAJEAAAAAAAABIQA==",
		kml: "<MultiGeometry><Polygon><outerBoundaryIs><LinearRing><coordinates>8,48 9,48 9,49 8,48</coordinates></LinearRing></outerBoundaryIs></Polygon>" +
			"<Polygon><outerBoundaryIs><LinearRing><coordinates>10,48 11,48 11,49 10,48</coordinates></LinearRing></outerBoundaryIs></Polygon></MultiGeometry>",
	},
	{
		kind: "GeometryCollection", plain: `[{"type":"PlainPoint","coordinates":[8.25,48.75]},{"type":"PlainLineString","coordinates":[[8,48],[9,48]]}]`,
		wkt: "GEOMETRYCOLLECTION (POINT (8.25 48.75), LINESTRING (8 48, 9 48))",
		wkb: "AQcAAAACAAAAAQEAAAAAAAAAAIAgQAAAAAAAYEhAAQIAAAACAAAAAAAAAAAAIEAAAAAAAABIQAAAAAAAACJAAAAAAAAASEA=",
		kml: "<MultiGeometry><Point><coordinates>8.25,48.75</coordinates></Point><LineString><coordinates>8,48 9,48</coordinates></LineString></MultiGeometry>",
	},
}

var encodings = []string{"PLAIN", "WKB", "WKT", "KML"}

// in returns the shape in these encodings, as a toolkit shows it.
func (s shape) in(t *testing.T, encodings ...string) *decodedGeometry {
	t.Helper()
	g := &decodedGeometry{Type: s.kind}
	for _, encoding := range encodings {
		switch encoding {
		case "PLAIN":
			g.Plain = &decodedPlain{Type: "Plain" + s.kind}
			if s.kind == "GeometryCollection" {
				require.NoError(t, json.Unmarshal([]byte(s.plain), &g.Plain.Geometries))
			} else {
				g.Plain.Coordinates = json.RawMessage(s.plain)
			}
		case "WKB":
			require.NoError(t, json.Unmarshal([]byte(`"`+s.wkb+`"`), &g.WKB))
		case "WKT":
			g.WKT = s.wkt
		case "KML":
			g.KML = &decodedKML{KML: `<kml xmlns="http://www.opengis.net/kml/2.2">` + s.placemark() + "</kml>"}
		}
	}
	return g
}

func (s shape) placemark() string { return "<Placemark>" + s.kml + "</Placemark>" }

const degrees = "OG_GEODECIMAL"

// toDegrees requests these encodings, without a conversion of coordinates.
func toDegrees(encodings ...string) *routingOptions {
	return &routingOptions{Encodings: encodings, CoordFormat: degrees}
}

func (k *toolkit) checkKeys() {
	k.t.Helper()
	convert := toolkitStep{Call: "convertGeometry", Geometry: shapes[0].in(k.t, "WKT"), Options: toDegrees("WKT")}
	f := func(status int, key toolkitStep) {
		k.t.Helper()
		key.Call = "authorize"
		k.do(key)
		o := k.do(convert)
		require.Equal(k.t, status, o.Status)
		require.Equal(k.t, status == 0, o.Geometry != nil, "%+v", o.Fault)
	}
	f(http.StatusUnauthorized, toolkitStep{})
	f(http.StatusUnauthorized, toolkitStep{Password: "wrong"})
	f(http.StatusUnauthorized, toolkitStep{Header: "apiKey wrong"})
	f(http.StatusForbidden, toolkitStep{Password: ingestKey})
	f(0, toolkitStep{Header: "apiKey " + routingKey})
	f(0, toolkitStep{Password: routingKey}) // remains set for the following calls
}

// checkEncodings converts each kind of geometry from each encoding to each, and to all at once.
func (k *toolkit) checkEncodings() {
	k.t.Helper()
	for _, s := range shapes {
		for _, from := range encodings {
			for _, to := range [][]string{{"PLAIN"}, {"WKB"}, {"WKT"}, {"KML"}, encodings} {
				o := k.do(toolkitStep{Call: "convertGeometry", Geometry: s.in(k.t, from), Options: toDegrees(to...)})
				k.requireGeometry(s.in(k.t, to...), o.Geometry, "%s from %s to %s: %+v", s.kind, from, to, o)
			}
		}
		o := k.do(toolkitStep{Call: "convertGeometry", Geometry: s.in(k.t, encodings...), Options: toDegrees("WKT")})
		k.requireGeometry(s.in(k.t, "WKT"), o.Geometry, "%s from all encodings at once: %+v", s.kind, o)
	}
	for _, kml := range []decodedKML{{KML: shapes[0].kml}, {Placemarks: []string{shapes[0].placemark()}}} {
		o := k.do(toolkitStep{Call: "convertGeometry", Geometry: &decodedGeometry{Type: "Point", KML: &kml}, Options: toDegrees("WKT")})
		k.requireGeometry(shapes[0].in(k.t, "WKT"), o.Geometry, "%+v: %+v", kml, o)
	}
}

// requireGeometry compares coordinates by value, because languages format numbers differently.
func (k *toolkit) requireGeometry(want, got *decodedGeometry, what string, args ...any) {
	k.t.Helper()
	wanted, err := json.Marshal(want)
	require.NoError(k.t, err)
	seen, err := json.Marshal(got)
	require.NoError(k.t, err)
	require.JSONEq(k.t, string(wanted), string(seen), append([]any{what}, args...)...)
}

// checkFormats converts the point of contract 3.2 to each format and back, and compares the printed
// digits.
func (k *toolkit) checkFormats() {
	k.t.Helper()
	const x, y = 8.2505556, 48.7627778
	f := func(format, srID string, wantX, wantY, tolerance float64) {
		k.t.Helper()
		convert := func(x, y float64, o routingOptions, from map[string]string) (float64, float64) {
			k.t.Helper()
			o.Encodings = []string{"PLAIN"}
			coordinates, err := json.Marshal([]float64{x, y})
			require.NoError(k.t, err)
			point := &decodedGeometry{Type: "Point", Plain: &decodedPlain{Type: "PlainPoint", Coordinates: coordinates}}
			response := k.do(toolkitStep{Call: "convertGeometry", Geometry: point, Options: &o, Properties: from})
			require.NotNil(k.t, response.Geometry, "%s: %+v", format, response.Fault)
			var xy []float64
			require.NoError(k.t, json.Unmarshal(response.Geometry.Plain.Coordinates, &xy))
			require.Len(k.t, xy, 2)
			return xy[0], xy[1]
		}
		source := map[string]string{"CoordFormat": format}
		if srID != "" {
			source["SrId"] = srID
		}
		gotX, gotY := convert(x, y, routingOptions{CoordFormat: format, SrID: srID}, nil)
		require.InDelta(k.t, wantX, gotX, tolerance, format)
		require.InDelta(k.t, wantY, gotY, tolerance, format)
		backX, backY := convert(gotX, gotY, routingOptions{CoordFormat: degrees}, source)
		require.InDelta(k.t, x, backX, 1e-9, format)
		require.InDelta(k.t, y, backY, 1e-9, format)
	}
	f("OG_GEODECIMAL", "", x, y, 0)
	f("VENDOR_GEODECIMAL", "", x*1e5, y*1e5, 1e-8)
	f("VENDOR_MERCATOR", "", 917419.9247, 6227728.6864, 5e-5)
	f("VENDOR_SMARTUNITS", "", 4352286.0539, 5456405.2523, 5e-5)
	f("VENDOR_GEOMINSEC", "", 815020.0016, 4845460.0008, 5e-5)
	f("VENDOR_CONFORM", "", 1672357.2299, 1620743.2152, 5e-5)
	f("VENDOR_SUPERCONFORM", "", 5072357.2299, 3320743.2152, 5e-5)
	f("OG_SRID", "EPSG:4326", x, y, 0)
	f("OG_SRID", "EPSG:25832", 444924.0947, 5401356.3359, 5e-5) // from PROJ's cs2cs
}

// checkJob starts a job, watches it until it ends and fetches its results, which is possible only
// once.
func (k *toolkit) checkJob() {
	k.t.Helper()
	wanted := []shape{shapes[0], shapes[4], shapes[8]}
	o := k.do(toolkitStep{Call: "startConvertGeometries", Geometries: plainGeometries(k.t, wanted), Options: toDegrees("PLAIN", "WKT")})
	require.NotNil(k.t, o.Job, "%+v", o.Fault)
	id := o.Job.ID
	require.NotEmpty(k.t, id)
	require.Contains(k.t, []string{"QUEUING", "RUNNING", "SUCCEEDED"}, o.Job.Status)
	require.NotNil(k.t, o.Job.ElapsedTime)

	end := k.watch(id)
	require.Equal(k.t, "SUCCEEDED", end.Status)
	require.Equal(k.t, &seenProgress{Type: "BulkProgress", Successful: len(wanted)}, end.Progress)
	require.GreaterOrEqual(k.t, *end.ElapsedTime, 0)

	o = k.do(toolkitStep{Call: "fetchConvertGeometries", ID: id})
	require.Equal(k.t, "SUCCEEDED", o.Job.Status)
	require.Len(k.t, o.Geometries, len(wanted))
	for i, s := range wanted {
		k.requireGeometry(s.in(k.t, "PLAIN", "WKT"), &o.Geometries[i], "item %d of the job", i)
	}
	for _, call := range []string{"fetchConvertGeometries", "watchJob", "stopJob", "deleteJob"} {
		o = k.do(toolkitStep{Call: call, ID: id})
		require.Equal(k.t, "UNKNOWN", o.Job.Status, "%s after the fetch", call)
		require.Empty(k.t, o.Geometries)
	}
}

func plainGeometries(t *testing.T, shapes []shape) (geometries []decodedGeometry) {
	t.Helper()
	for _, s := range shapes {
		geometries = append(geometries, *s.in(t, "PLAIN"))
	}
	return geometries
}

// watch calls watchJob until the job has ended.
func (k *toolkit) watch(id string) *decodedJob {
	k.t.Helper()
	for {
		o := k.do(toolkitStep{Call: "watchJob", ID: id, Watch: &watchOptions{MaximumPollingPeriod: 5000, ProgressUpdatePeriod: 250}})
		require.NotNil(k.t, o.Job, "%+v", o.Fault)
		require.Equal(k.t, id, o.Job.ID)
		if !slices.Contains([]string{"QUEUING", "RUNNING"}, o.Job.Status) {
			return o.Job
		}
	}
}

// checkFailures checks that a job reports the index and the reason of each geometry that it cannot
// convert, and converts the others.
func (k *toolkit) checkFailures() {
	k.t.Helper()
	geometries := plainGeometries(k.t, shapes[:3])
	geometries[1] = decodedGeometry{Type: "Point", WKT: "POINT (8 48"}
	id := k.do(toolkitStep{Call: "startConvertGeometries", Geometries: geometries, Options: toDegrees("WKT")}).Job.ID
	require.Equal(k.t, &seenProgress{Type: "BulkProgress", Successful: 2, Failed: 1}, k.watch(id).Progress)
	o := k.do(toolkitStep{Call: "fetchConvertGeometries", ID: id})
	require.Len(k.t, o.Geometries, 2)
	require.Equal(k.t, "LineString", o.Geometries[1].Type)
	require.Len(k.t, o.Failures, 1)
	require.Equal(k.t, 1, o.Failures[0].Index)
	k.requireException("XServiceException", "REQUEST_INVALID_WKT", o.Failures[0].Exception)
}

// checkEndedJobs checks that the results of a stopped job can be fetched, and those of a deleted or
// unknown job cannot.
func (k *toolkit) checkEndedJobs() {
	k.t.Helper()
	start := toolkitStep{Call: "startConvertGeometries", Geometries: plainGeometries(k.t, shapes), Options: toDegrees("WKB")}
	stopped := k.do(start).Job.ID
	status := k.do(toolkitStep{Call: "stopJob", ID: stopped}).Job.Status
	require.Contains(k.t, []string{"STOPPING", "FAILED", "SUCCEEDED"}, status)
	end := k.watch(stopped)
	require.Contains(k.t, []string{"FAILED", "SUCCEEDED"}, end.Status, "the job may have ended before the stop")
	o := k.do(toolkitStep{Call: "fetchConvertGeometries", ID: stopped})
	require.Equal(k.t, end.Status, o.Job.Status)
	require.Len(k.t, o.Geometries, end.Progress.Successful)

	deleted := k.do(start).Job.ID
	o = k.do(toolkitStep{Call: "deleteJob", ID: deleted})
	require.Equal(k.t, "DELETED", o.Job.Status)
	o = k.do(toolkitStep{Call: "fetchConvertGeometries", ID: deleted})
	require.Equal(k.t, "DELETED", o.Job.Status)
	require.Empty(k.t, o.Geometries)
	o = k.do(toolkitStep{Call: "watchJob", ID: "unknown"})
	require.Equal(k.t, "UNKNOWN", o.Job.Status)
}

// checkFaults checks that each error of contract 3 that a client can cause has its exception type,
// with error key and reason.
func (k *toolkit) checkFaults() {
	k.t.Helper()
	f := func(class, key string, s toolkitStep) {
		k.t.Helper()
		if s.Call == "" {
			s.Call = "convertGeometry"
		}
		fault := k.do(s).Fault
		require.NotNil(k.t, fault, key)
		require.NotEmpty(k.t, fault.String)
		k.requireException(class, key, *fault)
	}
	point := func(g decodedGeometry) *decodedGeometry { g.Type = "Point"; return &g }
	good, wkt := point(decodedGeometry{WKT: "POINT (8 48)"}), toDegrees("WKT")
	in := func(format, srID string) *routingOptions {
		return &routingOptions{Encodings: []string{"WKT"}, CoordFormat: format, SrID: srID}
	}
	const own = "XServiceException"
	f(own, "REQUEST_INVALID_WKT", toolkitStep{Geometry: point(decodedGeometry{WKT: "POINT (8 48"}), Options: wkt})
	f(own, "REQUEST_INVALID_WKB", toolkitStep{Geometry: point(decodedGeometry{WKB: []byte{1, 1, 0}}), Options: wkt})
	f(own, "REQUEST_INVALID_KML", toolkitStep{Geometry: point(decodedGeometry{KML: &decodedKML{KML: "<Point><coordinates>8,48</Point>"}}), Options: wkt})
	f(own, "KML_PLACEMARK_NOT_FOUND", toolkitStep{Geometry: point(decodedGeometry{KML: &decodedKML{KML: "<kml><Document/></kml>"}}), Options: wkt})
	f(own, "CONVERT_GEOMETRY_OBJECT", toolkitStep{Geometry: point(decodedGeometry{WKT: "LINESTRING (8 48, 9 49)"}), Options: wkt})
	f(own, "CONVERT_GEOMETRY_OBJECT", toolkitStep{Geometry: point(decodedGeometry{WKT: "POINT (8 48)", KML: &decodedKML{KML: shapes[0].kml}}), Options: wkt})
	f(own, "CONVERT_COORDINATE_FORMAT", toolkitStep{Geometry: good, Options: in("OG_SRID", "EPSG:1")})
	f(own, "CONVERT_COORDINATE_FORMAT", toolkitStep{Geometry: point(decodedGeometry{WKT: "POINT (8 95)"}), Options: in("VENDOR_MERCATOR", "")})
	f(own, "GEOMETRY_ENCODING", toolkitStep{Geometry: good, Options: toDegrees()})
	f("ParameterNotSetException", "", toolkitStep{Geometry: good, Options: in("OG_SRID", "")})
	f("IllegalParameterException", "", toolkitStep{Call: "watchJob", ID: "any", Watch: &watchOptions{MaximumPollingPeriod: -1, ProgressUpdatePeriod: 250}})
}

// requireException requires an exception with type, key, context, messages and transaction ID.
func (k *toolkit) requireException(class, key string, e decodedFault) {
	k.t.Helper()
	require.Equal(k.t, class, e.Type)
	require.NotEmpty(k.t, e.TransactionID)
	require.NotEmpty(k.t, e.Stack)
	require.Equal(k.t, key, e.Stack[0].ErrorKey, "%+v", e.Stack)
	require.NotEmpty(k.t, e.Stack[0].Context, "%+v", e.Stack)
	for _, element := range e.Stack {
		require.NotEmpty(k.t, element.Message, "%+v", e.Stack)
	}
	if slices.Contains([]string{"REQUEST_INVALID_WKT", "REQUEST_INVALID_WKB", "REQUEST_INVALID_KML"}, key) {
		require.Greater(k.t, len(e.Stack), 1, "the parser's error must be the cause")
	}
}

// python returns the path of a Python interpreter with zeep.
func python(t *testing.T) string {
	dir := foreign.Fetched(t, "zeep", filepath.Join(testdata, "zeep", "requirements.txt"), func(dir string) {
		foreign.Fetch(t, "an environment for zeep", "python3", "-m", "venv", dir)
		foreign.Fetch(t, "zeep", filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet",
			"--require-hashes", "--only-binary", ":all:", "--requirement", filepath.Join(testdata, "zeep", "requirements.txt"))
	})
	return filepath.Join(dir, "bin", "python")
}

// jars returns the class path of a JAX-WS toolkit.
func jars(t *testing.T, toolkit string) string {
	return foreign.Jars(t, toolkit, filepath.Join(testdata, toolkit, "pom.xml"))
}

// buildJAXWS generates classes from the WSDL with the toolkit's generator, compiles them with the
// client, and returns the class path. Warnings are errors.
func buildJAXWS(t *testing.T, toolkit, generator, wsdl string, options ...string) (classPath string) {
	t.Helper()
	dir, libraries := t.TempDir(), jars(t, toolkit)
	generated, classes := filepath.Join(dir, "generated"), filepath.Join(dir, "classes")
	require.NoError(t, os.Mkdir(generated, 0o755))
	args := append([]string{"-cp", libraries, generator, "-p", "xroute", "-b", filepath.Join(testdata, "jaxws", "bindings.xml"), "-d", generated}, options...)
	foreign.RunSilent(t, foreign.Java(append(args, wsdl)...))
	compile := []string{"-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-cp", libraries, "-d", classes, filepath.Join(testdata, toolkit, "Toolkit.java")}
	for _, directory := range []string{filepath.Join(generated, "xroute"), filepath.Join(testdata, "jaxws")} {
		sources, err := filepath.Glob(filepath.Join(directory, "*.java"))
		require.NoError(t, err)
		compile = append(compile, sources...)
	}
	foreign.RunSilent(t, exec.Command("javac", compile...))
	return classes + string(filepath.ListSeparator) + libraries
}

// buildGSOAP generates C++ classes from the WSDL, compiles them with the client, and returns the
// program.
func buildGSOAP(t *testing.T, wsdl string) (program string) {
	t.Helper()
	source, dir := filepath.Join(testdata, "gsoap"), t.TempDir()
	header := filepath.Join(dir, "xroute.h")
	foreign.Run(t, "wsdl2h", "-Ow4", "-t", filepath.Join(source, "typemap.dat"), "-o", header, wsdl) // -Ow4: only types that are used
	foreign.Run(t, "soapcpp2", "-1", "-j", "-C", "-L", "-x", "-w", "-c++11", "-I", "/usr/share/gsoap/import", "-d", dir, header)
	files := []string{filepath.Join(source, "client.cpp"), filepath.Join(dir, "soapXRouteWSBindingProxy.cpp"), filepath.Join(dir, "soapC.cpp")}
	var compilers []*exec.Cmd
	objects := []string{"-o", filepath.Join(dir, "client")}
	for i, file := range files {
		object := filepath.Join(dir, fmt.Sprintf("%d.o", i))
		objects = append(objects, object)
		compiler := exec.Command("g++", "-std=c++17", "-I", dir, "-c", "-o", object, file)
		compiler.Stderr = os.Stderr
		require.NoError(t, compiler.Start())
		compilers = append(compilers, compiler)
	}
	for i, compiler := range compilers {
		require.NoError(t, compiler.Wait(), files[i])
	}
	foreign.RunSilent(t, exec.Command("g++", append(objects, "-lgsoap++")...))
	return filepath.Join(dir, "client")
}

// modules returns the directory of Node.js modules that contains node-soap.
func modules(t *testing.T) string {
	dir := foreign.Fetched(t, "node", filepath.Join(testdata, "node", "package-lock.json"), func(dir string) {
		for _, file := range []string{"package.json", "package-lock.json"} {
			foreign.CopyFile(t, filepath.Join(testdata, "node", file), filepath.Join(dir, file))
		}
		foreign.Fetch(t, "node-soap", "npm", "ci", "--prefix", dir, "--no-audit", "--no-fund")
	})
	return filepath.Join(dir, "node_modules")
}

// TestSOAPPage runs the program of schemas/xroute/README.md.
func TestSOAPPage(t *testing.T) {
	needs.Everything(t, "zeep")
	d := daemontest.Examples(t)
	programs := foreign.Snippets(t, "../../../../schemas/xroute/README.md")
	file := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(file, []byte(programs["python"]), 0o600))
	foreign.RunDocumented(t, exec.Command(python(t), "-W", "error", file), programs["text"], "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+daemontest.ExamplesKey)
}
