package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	place    = "POINT (8.2505556 48.7627778)\n"
	placeUTM = "POINT (444924.0947341882 5401356.335917767)\n"
)

func TestGeometry(t *testing.T) {
	f := func(in, want string, args ...string) {
		t.Helper()
		r := requireSuccess(t, in, append([]string{"geometry"}, args...)...)
		require.Equal(t, want, r.out)
		require.Equal(t, "trafficctl: 1 geometry converted, 0 omitted\n", r.err)
	}
	f(place, place)
	f(place, "POINT (825055.56 4876277.78)\n", "--format-to", "VENDOR_GEODECIMAL")
	f(place, "POINT (825055.56 4876277.78)\n", "--format-to", "vendor_geodecimal")
	f(place, placeUTM, "--format-to", "EPSG:25832")
	f("POINT (825055.56 4876277.78)", placeUTM, "--format-from", "VENDOR_GEODECIMAL", "--format-to", "epsg:25832")
	f("POINT (1 2)", "0101000000000000000000f03f0000000000000040\n", "--to", "hex")
	f("0101000000000000000000f03f0000000000000040", "AQEAAAAAAAAAAADwPwAAAAAAAABA\n", "--from", "hex", "--to", "base64")
	f("<Point><coordinates>1,2</coordinates></Point>", "POINT (1 2)\n", "--from", "KML", "--to", "wkt", "-")
}

// TestGeometryFiles checks that the encoding is determined by the file name.
func TestGeometryFiles(t *testing.T) {
	kml := filepath.Join(t.TempDir(), "places.kml")
	r := requireSuccess(t, "", "geometry", file(t, "places.WKT", place+place), "--output", kml)
	require.Empty(t, r.out)
	r = requireSuccess(t, "", "geometry", kml, "--quiet")
	require.Equal(t, place+place, r.out)
	require.Empty(t, r.err)

	r = runWith(t, "", "geometry", kml, "--to", "geojson")
	require.Contains(t, r.out, `"coordinates":[8.2505556,48.7627778]`)

	json := filepath.Join(t.TempDir(), "places.json")
	requireSuccess(t, "", "geometry", kml, "--output", json)
	require.Contains(t, textOf(t, json), `{"type":"FeatureCollection"`)
	requireFailure(t, "", `--from "geojson" must be one of`, "geometry", json)
}

// TestGeometryCompressed checks that the encoding is that of the name without .gz.
func TestGeometryCompressed(t *testing.T) {
	kml := filepath.Join(t.TempDir(), "places.kml.gz")
	requireSuccess(t, place, "geometry", "--output", kml)
	r := requireSuccess(t, "", "geometry", kml)
	require.Equal(t, place, r.out)
	xz := filepath.Join(t.TempDir(), "places.wkt.xz")
	requireFailure(t, place, "xz is only supported for input; use .gz or .zst", "geometry", "--output", xz)
	require.NoFileExists(t, xz)
}

// TestGeometryInterrupted checks that standard output has what was converted before an interrupt.
func TestGeometryInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	end := make(chan struct{})
	defer close(end)
	waiting := readerFunc(func([]byte) (int, error) { // after what precedes it was read
		interrupt()
		<-end
		return 0, io.EOF
	})
	in := io.MultiReader(strings.NewReader(place+place), waiting)
	var out, errs bytes.Buffer
	require.Equal(t, exitFailed, run(ctx, []string{"geometry"}, streams{in, &out, &errs}))
	require.Equal(t, place+place, out.String())
	require.Contains(t, errs.String(), "interrupted")
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestGeometryOutputIsInput checks that a file is not truncated before it is read.
func TestGeometryOutputIsInput(t *testing.T) {
	in := file(t, "places.wkt", place)
	for _, out := range []string{in, filepath.Join(filepath.Dir(in), ".", "link.wkt")} {
		if out != in {
			require.NoError(t, os.Symlink(in, out))
		}
		requireFailure(t, "", "is also the input", "geometry", in, "--output", out)
		require.Equal(t, place, textOf(t, in))
	}
}

// TestGeometryOmitted checks that an omitted geometry is reported, and the exit code is 2.
func TestGeometryOmitted(t *testing.T) {
	r := runWith(t, "POINT (1)\n"+place+"POINT (200 1)\n", "geometry")
	require.Equal(t, exitRejected, r.code)
	require.Equal(t, place, r.out)
	require.Equal(t, []string{
		`trafficctl: line 1: cannot read WKT: byte 8: unexpected ")", expected a number; points have 2`,
		"trafficctl: line 3: point 0 (200 1) in OG_GEODECIMAL is outside the domain of OG_GEODECIMAL: longitude is not between -180 and 180",
		"trafficctl: 1 geometry converted, 2 omitted",
	}, strings.Split(strings.TrimSpace(r.err), "\n"))
}

func TestGeometryFails(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		r := requireFailure(t, place, want, append([]string{"geometry"}, args...)...)
		require.Empty(t, r.out)
	}
	f("--from \"geojson\" must be one of", "--from", "geojson")
	f("--to \"shp\" must be one of", "--to", "shp")
	f("--format-from: unknown format \"METRES\": must be one of [OG_GEODECIMAL", "--format-from", "metres")
	f("--format-to: use an EPSG code such as EPSG:25832 instead of OG_SRID", "--format-to", "OG_SRID")
	f("--format-to: unknown srId \"EPSG:31467\": must be one of", "--format-to", "EPSG:31467")
	f("--max-bytes", "--max-bytes", "0")
	f("cannot read geometries", filepath.Join(t.TempDir(), "none.wkt"))
	f("cannot write geometries", "--output", filepath.Join(t.TempDir(), "no", "directory.wkt"))
	f("cannot read the input", t.TempDir())
	f("unexpected argument \"b.wkt\"", "a.wkt", "b.wkt")
	f("or an EPSG code such as EPSG:25832", "--format-to", "UTM32")
	f("cannot read geometries: unexpected EOF", file(t, "places.wkt.gz", "\x1f\x8b\x08"))
	f("cannot read geometries: the input is a ZIP archive, such as KMZ", file(t, "places.kmz", "PK\x03\x04\x14\x00"))
	f("cannot read KML: it has no placemark", file(t, "network.kml", "<kml><Document><NetworkLink/></Document></kml>"))
	f("check --from and the file name", file(t, "places.kml", place))
}

// TestGeometryReplacesOutput checks that a run that fails before it writes anything leaves an
// existing file unchanged; any other run replaces it completely.
func TestGeometryReplacesOutput(t *testing.T) {
	const before = "POINT (1 2)\nPOINT (3 4)\nPOINT (5 6)\n"
	out := file(t, "out", before)
	f := func(code int, want, in string, args ...string) {
		t.Helper()
		r := runWith(t, in, append([]string{"geometry", "--output", out}, args...)...)
		require.Equal(t, code, r.code, r.err)
		require.Equal(t, want, textOf(t, out))
	}
	f(exitFailed, before, place, "--from", "kml", "--to", "kml")
	f(exitDone, place, place)
	f(exitRejected, "", "POINT (\n")
	f(exitDone, place, place)
	f(exitDone, "", "")
}

// TestGeometryLong checks that a file with many geometries is converted whole.
func TestGeometryLong(t *testing.T) {
	path := file(t, "many.wkt", strings.Repeat(place, 10_000))
	r := requireSuccess(t, "", "geometry", path)
	require.Equal(t, strings.Repeat(place, 10_000), r.out)
	require.Contains(t, r.err, "10,000 geometries converted")
}
