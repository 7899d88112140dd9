package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// lineOf returns the WKT of a line in degrees, with as many digits as real data.
func lineOf(points int) string {
	var b strings.Builder
	b.WriteString("LINESTRING (")
	for i := range points {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.6f %.6f", 8+float64(i%1000)/1e4, 48+float64(i%777)/1e4)
	}
	return b.String() + ")"
}

// BenchmarkConvertGeometry compares a call, from its body to the envelope of the response, with the
// same conversion without SOAP (bare).
func BenchmarkConvertGeometry(b *testing.B) {
	for _, points := range []int{2, 100, 10_000} {
		wkt := lineOf(points)
		b.Run(fmt.Sprintf("points=%d/soap", points), func(b *testing.B) { benchmarkSOAP(b, wkt, points) })
		b.Run(fmt.Sprintf("points=%d/bare", points), func(b *testing.B) { benchmarkBare(b, wkt, points) })
	}
}

func benchmarkSOAP(b *testing.B, wkt string, points int) {
	s := New(DefaultConfig(), "http", zerolog.Nop())
	b.Cleanup(s.Stop)
	text := []byte(message(b, convertTo(asWKT(&xroute.LineString{}, wkt), geo.Mercator, xroute.EncodingWKT)))
	var h fasthttp.RequestHeader
	h.SetContentType("text/xml; charset=utf-8")
	client := &contract.Client{Name: "client"}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		body := &body{memory: s.memory, client: client.Owner, limit: s.cfg.MaxBodyBytes}
		body.bytes = append(make([]byte, 0, len(text)), text...)
		s.memory.Charge(client.Owner, int64(cap(body.bytes)))
		x := &exchange{service: s, client: client, trace: "t", start: time.Now()}
		if _, err := x.process(&h, body); err != nil {
			b.Fatal(err)
		}
		s.memory.Release(client.Owner, int64(x.size))
	}
	reportPointsPerSecond(b, points)
}

func benchmarkBare(b *testing.B, wkt string, points int) {
	from, err := geo.ParseSystem(string(geo.GeoDecimal), "")
	require.NoError(b, err)
	to, err := geo.ParseSystem(string(geo.Mercator), "")
	require.NoError(b, err)
	conversion, limits := geo.NewConversion(from, to), geo.DefaultLimits()
	b.SetBytes(int64(len(wkt)))
	b.ReportAllocs()
	for b.Loop() {
		g, err := limits.ParseWKT(wkt, geo.LineString)
		if err != nil {
			b.Fatal(err)
		}
		if err := conversion.Apply(g); err != nil {
			b.Fatal(err)
		}
		geo.AppendWKT(nil, g)
	}
	reportPointsPerSecond(b, points)
}

func reportPointsPerSecond(b *testing.B, points int) {
	b.ReportMetric(float64(b.N)*float64(points)/b.Elapsed().Seconds(), "points/s")
}
