package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/twpayne/go-geom"

	"trafficd/cmd/internal/must"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
	"trafficd/sources/routing"
)

const (
	linePoints  = 1000 // points in the converted line, about as many as in a long road
	conversions = 300  // per round
)

// road returns a line through Baden-Baden, in degrees rounded to about a centimetre.
func road() *geom.LineString {
	r := rand.New(rand.NewPCG(3, 4))
	flat := make([]float64, 0, 2*linePoints)
	x, y := 8.25, 48.76
	for range linePoints {
		x, y = x+r.Float64()/1000, y+r.Float64()/2000
		flat = append(flat, float64(int(x*1e7))/1e7, float64(int(y*1e7))/1e7)
	}
	return geom.NewLineStringFlat(geom.XY, flat)
}

// geometries measures how many points per second are converted from degrees into each format and
// back, and the overhead of SOAP.
func (o options) geometries(ctx context.Context) {
	line := road()
	degrees := must.Get(geo.ParseSystem(string(geo.GeoDecimal), ""))
	for _, format := range geo.Formats() {
		const utm32 = "EPSG:25832" // used by OG_SRID only
		system := must.Get(geo.ParseSystem(string(format), utm32))
		forward, back := geo.NewConversion(degrees, system), geo.NewConversion(system, degrees)
		flat := slices.Clone(line.FlatCoords())
		o.medians(o.rounds, func(add series) {
			ms := cpuPerCall(conversions, func() {
				must.Do(forward.Points(flat, 2))
				must.Do(back.Points(flat, 2))
			})
			add("geo_points_per_s_"+strings.ToLower(string(format)), 2*linePoints/ms*1000, "points/s")
		})
	}
	o.soap(ctx, line)
}

// soap compares, in each round, the daemon's CPU time for convertGeometry with that of the
// conversion alone (read WKT, convert, write WKT). It requests uncompressed responses, because gzip
// would cost more than everything else.
func (o options) soap(ctx context.Context, line *geom.LineString) {
	d := start(ctx, o.daemon, []string{"none"})
	defer d.stop()
	text := string(geo.AppendWKT(nil, line))
	envelope := must.Get(xroute.AppendMessage(nil, &xroute.ConvertGeometry{
		Geometry: &xroute.LineString{Encodings: xroute.Encodings{WKT: &text}},
		Options:  xroute.RequestOptions{ResponseGeometry: []xroute.GeometryEncoding{xroute.EncodingWKT}, CoordFormat: geo.Mercator},
	}))
	o.medians(o.rounds, func(add series) {
		alone := cpuPerCall(conversions, func() { conversion(text) })
		before := d.cpu()
		for range conversions {
			_, _, err := request(ctx, http.DefaultClient, http.MethodPost, "http://"+d.API+routing.Path, envelope, http.StatusOK,
				"Authorization", "apiKey "+benchKey, "Content-Type", "text/xml; charset=utf-8", "Accept-Encoding", "identity")
			must.Do(err)
		}
		call := milliseconds(d.cpu()-before) / conversions
		add(fmt.Sprintf("soap_convert_%d_points_cpu_ms", linePoints), call, "ms")
		add("soap_over_conversion", call/alone, "ratio")
	})
}

func conversion(text string) {
	g := must.Get(geo.DefaultLimits().ParseWKT(text, geo.LineString))
	degrees, mercator := must.Get(geo.ParseSystem(string(geo.GeoDecimal), "")), must.Get(geo.ParseSystem(string(geo.Mercator), ""))
	must.Do(geo.NewConversion(degrees, mercator).Apply(g))
	geo.AppendWKT(nil, g)
}
