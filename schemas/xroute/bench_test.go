package xroute

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/geo"
)

// lineRequest returns a convertGeometry request for a line with a thousand points.
func lineRequest(t testing.TB) []byte {
	points := make([]PlainPoint, 1000)
	for i := range points {
		points[i] = PlainPoint{X: 8.2505556 + float64(i)/1000, Y: 48.7627778 - float64(i)/3000}
	}
	text, err := AppendMessage(nil, &ConvertGeometry{
		Geometry: &LineString{Plain: &PlainLineString{Points: points}},
		Options:  RequestOptions{ResponseGeometry: []GeometryEncoding{EncodingPlain}, CoordFormat: geo.Mercator},
	})
	require.NoError(t, err)
	return text
}

func BenchmarkReadRequest(b *testing.B) {
	text := lineRequest(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadRequest(bytes.NewReader(text), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendMessage(b *testing.B) {
	text := lineRequest(b)
	request, err := ReadRequest(bytes.NewReader(text), Limits{})
	require.NoError(b, err)
	var dst []byte
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = AppendMessage(dst[:0], request); err != nil {
			b.Fatal(err)
		}
	}
}
