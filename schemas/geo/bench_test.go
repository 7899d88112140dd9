package geo_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

const benchPoints = 10_000

// longLine returns a line whose coordinates have as many digits as in a road map.
func longLine(points int) *geo.Geometry {
	flat := area(points-5, 5.9, 15, 47.3, 55)
	for i, v := range flat {
		flat[i] = float64(int(v*1e7)) / 1e7
	}
	return &geo.Geometry{Kind: geo.LineString, Layout: geo.XY, Flat: flat}
}

// perPoint runs f, which processes benchPoints points in the given number of bytes.
func perPoint(b *testing.B, bytes int, f func()) {
	b.ReportAllocs()
	b.SetBytes(int64(bytes))
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(b.N)*benchPoints/b.Elapsed().Seconds(), "points/s")
}

func BenchmarkParse(b *testing.B) {
	g := longLine(benchPoints)
	read := func(name string, data []byte, parse func() (*geo.Geometry, error)) {
		b.Run(name, func(b *testing.B) {
			perPoint(b, len(data), func() {
				_, err := parse()
				require.NoError(b, err)
			})
		})
	}
	text, binary, kml := geo.AppendWKT(nil, g), geo.AppendWKB(nil, g, binary.LittleEndian), geo.AppendKML(nil, g)
	read("wkt", text, func() (*geo.Geometry, error) { return limits.ParseWKT(string(text), geo.Any) })
	read("wkb", binary, func() (*geo.Geometry, error) { return limits.ParseWKB(binary, geo.Any) })
	read("kml", kml, func() (*geo.Geometry, error) { return limits.ParseKML(geo.Any, string(kml)) })
}

func BenchmarkAppend(b *testing.B) {
	g := longLine(benchPoints)
	write := func(name string, appendTo func([]byte) []byte) {
		b.Run(name, func(b *testing.B) {
			dst := appendTo(nil)
			perPoint(b, len(dst), func() { dst = appendTo(dst[:0]) })
		})
	}
	write("wkt", func(dst []byte) []byte { return geo.AppendWKT(dst, g) })
	write("wkb", func(dst []byte) []byte { return geo.AppendWKB(dst, g, binary.LittleEndian) })
	write("kml", func(dst []byte) []byte { return geo.AppendKML(dst, g) })
}

// BenchmarkConvert converts to each format and back.
func BenchmarkConvert(b *testing.B) {
	plain := system(b, geo.GeoDecimal, "")
	convert := func(name string, to geo.System) {
		b.Run(name, func(b *testing.B) {
			flat := longLine(benchPoints).Flat
			forward, back := geo.NewConversion(plain, to), geo.NewConversion(to, plain)
			perPoint(b, 2*16*benchPoints, func() {
				require.NoError(b, forward.Points(flat, 2))
				require.NoError(b, back.Points(flat, 2))
			})
		})
	}
	for _, format := range geo.Formats() {
		convert(string(format), system(b, format, "EPSG:25832"))
	}
}

// TestAllocations checks that the number of allocations does not depend on the number of points.
func TestAllocations(t *testing.T) {
	f := func(name string, limit float64, run func()) {
		t.Helper()
		require.LessOrEqual(t, testing.AllocsPerRun(10, run), limit, name)
	}
	g := longLine(benchPoints)
	text, data := string(geo.AppendWKT(nil, g)), geo.AppendWKB(nil, g, binary.LittleEndian)
	kml := string(geo.AppendKML(nil, g))
	dst := make([]byte, 0, 2*len(kml))
	f("read WKT", 60, func() { _, _ = limits.ParseWKT(text, geo.Any) })
	f("read WKB", 10, func() { _, _ = limits.ParseWKB(data, geo.Any) })
	f("read KML", 120, func() { _, _ = limits.ParseKML(geo.Any, kml) })
	f("write WKT", 0, func() { geo.AppendWKT(dst, g) })
	f("write WKB", 0, func() { geo.AppendWKB(dst, g, binary.BigEndian) })
	f("write KML", 3, func() { geo.AppendKML(dst, g) })
	for _, format := range geo.Formats() {
		flat := append([]float64(nil), g.Flat...)
		there := geo.NewConversion(system(t, geo.GeoDecimal, ""), system(t, format, "EPSG:25832"))
		back := geo.NewConversion(system(t, format, "EPSG:25832"), system(t, geo.GeoDecimal, ""))
		f(string(format), 0, func() {
			require.NoError(t, there.Points(flat, 2))
			require.NoError(t, back.Points(flat, 2))
		})
	}
}

// BenchmarkSmall reads and writes geometries of typical requests.
func BenchmarkSmall(b *testing.B) {
	f := func(name, text string) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				g, err := limits.ParseWKT(text, geo.Any)
				require.NoError(b, err)
				dst = geo.AppendWKT(dst[:0], g)
			}
		})
	}
	f("point", "POINT (8.2505556 48.7627778)")
	f("polygon", "POLYGON ((8.25 48.76, 8.26 48.76, 8.26 48.77, 8.25 48.76), (8.251 48.761, 8.252 48.761, 8.252 48.762, 8.251 48.761))")
}
