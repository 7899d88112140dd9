package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/sources/routing"
)

// TestGeometryService checks that the output is the same with and without --url.
func TestGeometryService(t *testing.T) {
	url := startRouting(t, nil)
	f := func(in string, args ...string) {
		t.Helper()
		args = append([]string{"geometry"}, args...)
		offline := runWith(t, in, args...)
		online := runWith(t, in, append(args, "--url", url, "--key", testKey)...)
		require.Equal(t, offline.code, online.code, online.err)
		require.NotEmpty(t, online.out)
		require.Equal(t, offline.out, online.out)
	}
	f(place)
	f(place, "--format-to", "VENDOR_SMARTUNITS", "--to", "hex")
	f(place+"LINESTRING Z (8 48 1, 9 49 2)\n", "--format-to", "EPSG:25832", "--to", "kml")
	f("POLYGON ((444924 5401356, 445000 5401356, 445000 5401400, 444924 5401356))\n"+place, "--format-from", "EPSG:25832", "--format-to", "VENDOR_CONFORM")
	f(place+"POINT (\nPOINT (8 95)\n"+place, "--format-to", "VENDOR_MERCATOR", "--to", "geojson")
}

// TestGeometryServiceSRID checks that the service checks the SRID of EWKB as the offline
// conversion does.
func TestGeometryServiceSRID(t *testing.T) {
	url := startRouting(t, nil)
	const (
		point = "0101000020E610000000000000000020400000000000004840\n"
		line  = "0102000020E6100000020000000000000000002040000000000000484000000000000022400000000000804840\n"
		group = "0107000020E610000001000000010100000000000000000020400000000000004840\n"
	)
	f := func(code int, in, why string, args ...string) {
		t.Helper()
		args = append([]string{"geometry", "--from", "hex"}, args...)
		offline := runWith(t, in, args...)
		online := runWith(t, in, append(args, "--url", url, "--key", testKey)...)
		for _, r := range []result{offline, online} {
			require.Equal(t, code, r.code, r.err)
			require.Contains(t, r.err, why)
		}
		require.Equal(t, offline.out, online.out)
	}
	for _, in := range []string{point, line, group, point + group} {
		f(exitDone, in, "0 omitted", "--format-to", "EPSG:25832")
		f(exitRejected, in, "the geometry has SRID 4326, but its coordinates are declared as OG_SRID EPSG:25832", "--format-from", "EPSG:25832")
	}
}

// TestGeometryServiceManyBatches tests a file of several batches with lines that the service
// rejects.
func TestGeometryServiceManyBatches(t *testing.T) {
	url := startRouting(t, func(c *routing.Config) { c.MaxPoints = 300 })
	var in, want strings.Builder
	for i := range 1200 {
		if i%400 == 7 {
			fmt.Fprintln(&in, "POINT (8 95)")
			continue
		}
		fmt.Fprintf(&in, "POINT (8 %d)\n", i%90)
		fmt.Fprintf(&want, "POINT (800000 %d)\n", i%90*100_000)
	}
	r := runWith(t, in.String(), "geometry", "--format-to", "VENDOR_GEODECIMAL", "--url", url, "--key", testKey)
	require.Equal(t, exitRejected, r.code)
	require.Equal(t, want.String(), r.out)
	for _, line := range []int{8, 408, 808} {
		require.Contains(t, r.err, fmt.Sprintf("line %d: CONVERT_COORDINATE_FORMAT: ", line))
	}
	require.Contains(t, r.err, "1,197 geometries converted, 3 omitted")
}

func TestGeometryServiceRejects(t *testing.T) {
	url := startRouting(t, nil)
	f := func(want string, args ...string) {
		t.Helper()
		r := requireFailure(t, place, want, append([]string{"geometry"}, args...)...)
		require.Empty(t, r.out)
	}
	f("401 GENERAL_UNAUTHENTICATED", "--url", url, "--key", "tfd_wrong")
	f("403 GENERAL_FORBIDDEN", "--url", url, "--key", noRightKey)
	f("missing API key", "--url", url)
	f("cannot reach the routing service", "--url", "http://127.0.0.1:1", "--key", testKey)
	f("--format-to", "--url", url, "--key", testKey, "--format-to", "NONE")
}
