package geometry_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"trafficd/cmd/trafficctl/internal/geometry"
	"trafficd/schemas/geo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is the result of a run.
type outcome struct {
	out     string
	omitted []string
	tally   geometry.Tally
	err     error
}

// config returns a configuration with limits that a test can reach.
func config(from, to geometry.Encoding) geometry.Config {
	return geometry.Config{From: from, To: to, MaxBytes: 10_000}
}

// unchanged returns a conversion that keeps the coordinates.
func unchanged(t testing.TB) geo.Conversion {
	t.Helper()
	return geo.NewConversion(system(t, geo.GeoDecimal), system(t, geo.GeoDecimal))
}

func system(t testing.TB, format geo.Format) geo.System {
	t.Helper()
	s, err := geo.ParseSystem(string(format), "EPSG:25832")
	require.NoError(t, err)
	return s
}

func run(t testing.TB, cfg geometry.Config, conversion geo.Conversion, in io.Reader) (o outcome) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	var out bytes.Buffer
	o.tally, o.err = geometry.Run(t.Context(), in, &out, cfg, conversion, func(position string, err error) {
		o.omitted = append(o.omitted, fmt.Sprintf("%s: %v", position, err))
	})
	o.out = out.String()
	require.Len(t, o.omitted, int(o.tally.Omitted))
	return o
}

var texts = []string{
	"POINT (1 2)",
	"POINT Z (1 2 3)",
	"LINESTRING (1 2, 3 4)",
	"POLYGON ((0 0, 4 0, 4 4, 0 0), (1 1, 2 1, 2 2, 1 1))",
	"MULTIPOINT ((1 2), (3 4))",
	"MULTILINESTRING ((1 2, 3 4), (5 6, 7 8))",
	"MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((9 9, 10 9, 10 10, 9 9)))",
	"GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (1 2, 3 4))",
}

func joined(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// TestRoundTrip checks that all geometries survive a conversion to each encoding and back.
func TestRoundTrip(t *testing.T) {
	for _, to := range []geometry.Encoding{geometry.WKT, geometry.Hex, geometry.Base64, geometry.KML} {
		encoded := run(t, config(geometry.WKT, to), unchanged(t), strings.NewReader(joined(texts)))
		require.NoError(t, encoded.err)
		require.Empty(t, encoded.omitted)
		require.EqualValues(t, len(texts), encoded.tally.Converted)
		decoded := run(t, config(to, geometry.WKT), unchanged(t), iotest.OneByteReader(strings.NewReader(encoded.out)))
		require.NoError(t, decoded.err)
		require.Equal(t, joined(texts), decoded.out, to)
	}
	for _, text := range texts { // one geometry per file
		encoded := run(t, config(geometry.WKT, geometry.WKB), unchanged(t), strings.NewReader(text))
		require.NoError(t, encoded.err)
		decoded := run(t, config(geometry.WKB, geometry.WKT), unchanged(t), strings.NewReader(encoded.out))
		require.NoError(t, decoded.err)
		require.Equal(t, text+"\n", decoded.out)
	}
}

func TestEncodings(t *testing.T) {
	const in = "POINT Z (1 2 3)\nLINEARRING (0 0, 1 0, 1 1, 0 0)\n"
	f := func(to geometry.Encoding, in, want string) {
		t.Helper()
		o := run(t, config(geometry.WKT, to), unchanged(t), strings.NewReader(in))
		require.NoError(t, o.err)
		require.Equal(t, want, o.out)
	}
	f(geometry.WKT, in, "POINT Z (1 2 3)\nLINESTRING (0 0, 1 0, 1 1, 0 0)\n")
	f(geometry.Hex, "POINT (1 2)", "0101000000000000000000f03f0000000000000040\n")
	f(geometry.Base64, "POINT (1 2)", "AQEAAAAAAAAAAADwPwAAAAAAAABA\n")
	f(geometry.KML, in, `<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2"><Document>
<Placemark><Point><coordinates>1,2,3</coordinates></Point></Placemark>
<Placemark><LinearRing><coordinates>0,0 1,0 1,1 0,0</coordinates></LinearRing></Placemark>
</Document></kml>
`)
	f(geometry.GeoJSON, in, `{"type":"FeatureCollection","features":[
{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2,3]},"properties":{}},
{"type":"Feature","geometry":{"type":"LineString","coordinates":[[0,0],[1,0],[1,1],[0,0]]},"properties":{}}
]}
`)
	f(geometry.GeoJSON, "GEOMETRYCOLLECTION (LINEARRING (0 0, 1 0, 1 1, 0 0))", `{"type":"FeatureCollection","features":[
{"type":"Feature","geometry":{"type":"GeometryCollection","geometries":[{"type":"LineString","coordinates":[[0,0],[1,0],[1,1],[0,0]]}]},"properties":{}}
]}
`)
	f(geometry.WKT, "", "")
	f(geometry.GeoJSON, "", "{\"type\":\"FeatureCollection\",\"features\":[\n]}\n")
	f(geometry.KML, "", `<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2"><Document>
</Document></kml>
`)
}

// TestOmitted checks that a geometry that cannot be converted is reported with its position; all
// others are written.
func TestOmitted(t *testing.T) {
	f := func(from, to geometry.Encoding, in, out string, omitted ...string) {
		t.Helper()
		o := run(t, config(from, to), unchanged(t), strings.NewReader(in))
		require.NoError(t, o.err)
		require.Equal(t, out, o.out)
		require.Len(t, o.omitted, len(omitted), o.omitted)
		for i, want := range omitted {
			require.Contains(t, o.omitted[i], want)
		}
	}
	f(geometry.WKT, geometry.WKT, "POINT (1 2)\r\n\r\n  POINT (1)\nPOINT (3 4)", "POINT (1 2)\nPOINT (3 4)\n", "line 3: cannot read WKT: byte 8")
	f(geometry.WKT, geometry.WKT, "\ufeffPOINT (1 2)\nPOINT (1 91)\n", "POINT (1 2)\n", "line 2: point 0 (1 91) in OG_GEODECIMAL is outside the domain")
	f(geometry.Hex, geometry.WKT, "0101000000000000000000F03F0000000000000040\n\\x0101000000000000000000f03f0000000000000040\n01g\n01010000", "POINT (1 2)\nPOINT (1 2)\n",
		"line 3: invalid hex: encoding/hex: invalid byte: U+0067 'g'", "line 4: cannot read WKB: byte 0: unexpected end")
	f(geometry.Base64, geometry.WKT, "AQEAAAAAAAAAAADwPwAAAAAAAABA\n*\n", "POINT (1 2)\n", "line 2: invalid base64")
	f(geometry.WKB, geometry.WKT, "", "", "the input: cannot read WKB: byte 0: unexpected end")
	f(geometry.WKT, geometry.GeoJSON, "MULTIPOINT (EMPTY)", "{\"type\":\"FeatureCollection\",\"features\":[\n]}\n", "line 1: cannot write GeoJSON: it does not support empty points")
	f(geometry.KML, geometry.WKT, `<kml><Document>
<Placemark><name>a</name><Point><coordinates>1,2</coordinates></Point></Placemark>
<Placemark><Point><coordinates>1</coordinates></Point></Placemark><Placemark/>
<Folder><Placemark>
<k:Point xmlns:k="x"><k:coordinates>3,4</k:coordinates></k:Point></Placemark></Folder>
</Document></kml>
<MultiGeometry><Point><coordinates>5,6</coordinates></Point></MultiGeometry>`,
		"POINT (1 2)\nPOINT (3 4)\nMULTIPOINT ((5 6))\n",
		"line 3: cannot read KML: byte 46: coordinates of point 0: no y", "line 3: cannot read KML: no placemark with a geometry")
}

// TestEndsEarly checks that an error ends a run, and that everything before it is written.
func TestEndsEarly(t *testing.T) {
	f := func(from, to geometry.Encoding, in io.Reader, out, want string) {
		t.Helper()
		o := run(t, config(from, to), unchanged(t), in)
		require.ErrorContains(t, o.err, want)
		require.Equal(t, out, o.out)
	}
	long := strings.Repeat("1", 20_000)
	f(geometry.WKT, geometry.WKT, strings.NewReader("POINT (1 2)\nPOINT ("+long), "POINT (1 2)\n", "line 2: a geometry exceeds 10000 bytes; increase --max-bytes")
	f(geometry.WKB, geometry.WKT, strings.NewReader(long), "", "the input: a geometry exceeds 10000 bytes")
	f(geometry.KML, geometry.WKT, strings.NewReader("<kml>\n<Placemark><name>"+long), "", "line 2, column")
	f(geometry.KML, geometry.WKT, strings.NewReader("<kml>\n"+long), "", "exceeds 10000 bytes")
	f(geometry.KML, geometry.WKT, strings.NewReader("<Placemark><Point><coordinates>1,2</coordinates></Point></Placemark>\n<Placemark></kml>"), "POINT (1 2)\n",
		"cannot read KML: line 2, column 18: XML syntax error on line 2: element <Placemark> closed by </kml>")
	f(geometry.KML, geometry.WKT, strings.NewReader(strings.Repeat("<a>", 500)), "", "elements are nested deeper than 256")
	f(geometry.KML, geometry.WKT, strings.NewReader(`<?xml version="1.0" encoding="ISO-8859-1"?><kml/>`), "", "unsupported encoding ISO-8859-1; convert the file to UTF-8")
	f(geometry.KML, geometry.KML, strings.NewReader(" hello"), "", "no placemark or geometry found; check --from")
	f(geometry.KML, geometry.WKT, strings.NewReader("<kml><Document><NetworkLink/></Document></kml>"), "", "cannot read KML: it has no placemark")
	f(geometry.KML, geometry.WKT, strings.NewReader("<kml/>"), "", "cannot read KML: it has no placemark")
	f(geometry.KML, geometry.WKT, strings.NewReader("<gpx><Point/></gpx>"), "", "check --from")
	f(geometry.WKT, geometry.WKT, io.MultiReader(strings.NewReader("POINT (1 2)\n"), iotest.ErrReader(errors.New("disk"))), "POINT (1 2)\n", "cannot read the input after line 1: disk")
	f(geometry.WKT, geometry.WKB, strings.NewReader("POINT (1 2)\nPOINT (1 2)"), "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00\x00\x00\x00@", "line 2: a WKB file holds one geometry")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in := io.MultiReader(strings.NewReader("POINT (1 2)\n"), readerFunc(func(p []byte) (int, error) {
		cancel()
		return copy(p, "POINT (3 4)\n"), nil
	}))
	var out strings.Builder
	_, err := geometry.Run(ctx, in, &out, config(geometry.WKT, geometry.WKT), unchanged(t), nil)
	require.ErrorContains(t, err, "interrupted")
	require.Equal(t, "POINT (1 2)\n", out.String())
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestOutputFails(t *testing.T) {
	_, err := geometry.Run(t.Context(), strings.NewReader("POINT (1 2)"), failingWriter{}, config(geometry.WKT, geometry.WKT), unchanged(t), nil)
	require.ErrorContains(t, err, "cannot write the output: full")
}

// FuzzRun checks that for any input, the output can be read and has as many geometries as were
// counted.
func FuzzRun(f *testing.F) {
	for _, text := range texts {
		f.Add(uint8(0), []byte(text+"\nPOINT (1"))
	}
	f.Add(uint8(1), []byte(hex.EncodeToString([]byte("\x01\x01"))))
	f.Add(uint8(2), []byte(base64.StdEncoding.EncodeToString([]byte("\x01\x01"))))
	f.Add(uint8(3), []byte("<kml><Placemark><Point><coordinates>1,2</coordinates></Point></Placemark><Placemark>\n</Placemark></kml>"))
	encodings := []geometry.Encoding{geometry.WKT, geometry.Hex, geometry.Base64, geometry.KML}
	f.Fuzz(func(t *testing.T, pick uint8, in []byte) {
		from := encodings[int(pick)%len(encodings)]
		for _, to := range encodings {
			encoded := run(t, config(from, to), unchanged(t), bytes.NewReader(in))
			cfg := config(to, geometry.WKT)
			cfg.MaxBytes *= 100
			decoded := run(t, cfg, unchanged(t), strings.NewReader(encoded.out))
			if to == geometry.KML && encoded.tally.Converted == 0 {
				continue // a document without placemarks is an error
			}
			require.NoError(t, decoded.err)
			require.Empty(t, decoded.omitted)
			require.Equal(t, encoded.tally.Converted, decoded.tally.Converted)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	lines := strings.Repeat(texts[3]+"\n", 10_000)
	cfg := config(geometry.WKT, geometry.Hex)
	conversion := geo.NewConversion(system(b, geo.GeoDecimal), system(b, geo.SRID))
	b.SetBytes(int64(len(lines)))
	b.ReportAllocs()
	for b.Loop() {
		tally, err := geometry.Run(b.Context(), strings.NewReader(lines), io.Discard, cfg, conversion, nil)
		require.NoError(b, err)
		require.EqualValues(b, 10_000, tally.Converted)
	}
}
