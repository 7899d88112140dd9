package layers

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")) // never ends
}

// fiveHorizons returns the default settings with horizons of an hour, for tests that count
// documents or whose forecasts are that long.
func fiveHorizons() Config {
	c := DefaultConfig()
	c.Horizons = []int{0, 15, 30, 45, 60}
	return c
}

// noon is a reference time at which daylight saving time does not matter in any zone.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// forecast returns a forecast of n periods of 15 minutes, beginning at start, whose speeds increase
// by one.
func forecast(street, fromnode int32, start time.Time, n int, speed float64) *pb.StreetForecast {
	f := &pb.StreetForecast{Street: street, Fromnode: fromnode, OpenLRcode: codeOf(street)}
	for i := range n {
		from := start.Add(time.Duration(i) * 15 * time.Minute)
		f.Forecast = append(f.Forecast, &pb.ForecastPeriod{
			Start: from.UTC().Format(time.RFC3339), End: from.Add(15 * time.Minute).UTC().Format(time.RFC3339),
			SpeedValid: proto.Bool(true), Speed: speed + float64(i),
		})
	}
	return f
}

// extend sets some of the optional members.
func extend(f *pb.StreetForecast, random *rand.Rand) *pb.StreetForecast {
	if random.IntN(2) == 0 {
		f.Length, f.FreeFlowSpeed = proto.Float64(float64(100+random.IntN(3))), proto.Float64(50)
	}
	for _, p := range f.Forecast {
		if random.IntN(2) == 0 {
			p.SpeedLow, p.SpeedHigh = proto.Float64(max(p.Speed-float64(random.IntN(3)), 0)), proto.Float64(p.Speed+2)
		}
		if random.IntN(2) == 0 {
			p.Basis, p.Closed = proto.String([]string{"own", "pool"}[random.IntN(2)]), proto.Bool(random.IntN(2) == 0)
		}
	}
	return f
}

// codeOf returns the OpenLR code of a street. Streets are in rows of 100 east of Copenhagen, 150 m
// apart. Every 50th street has an invalid code.
func codeOf(street int32) string {
	if street%50 == 0 {
		return "invalid"
	}
	at := openlr.Point{Lon: 12.5 + float64(street%100)*0.0024, Lat: 55.6 + float64(street/100)*0.00135, Bearing: 90, Distance: 100}
	to := at
	to.Lon, to.Distance = at.Lon+0.0016, 0
	code, err := openlr.Encode(openlr.Line{Points: []openlr.Point{at, to}})
	if err != nil {
		panic(err)
	}
	return code
}

// city returns the forecasts of n streets, numbered as in a real network: the numbers of neighbours
// are close, with gaps.
func city(n int, start time.Time) []*pb.StreetForecast {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]*pb.StreetForecast, 0, n)
	for street := int32(1000); len(all) < n; street += 1 + random.Int32N(3) {
		f := forecast(street, random.Int32N(90000), start, 6, 0)
		for _, p := range f.Forecast {
			p.Speed = float64(200+random.IntN(600)) / 10
		}
		all = append(all, f)
	}
	return all
}

// streetsOf converts forecasts to streets.
func streetsOf(t testing.TB, all []*pb.StreetForecast) (streets []*street) {
	t.Helper()
	for _, f := range all {
		s, err := newStreet(f)
		require.NoError(t, err)
		streets = append(streets, s)
	}
	return streets
}

func client(zone string) *contract.Client {
	location, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return &contract.Client{Name: "map", Rights: contract.RightForecast, Zone: location}
}

// prepared returns a layer for UTC that is built only by the test.
func prepared(cfg Config) *Layer {
	l := New(cfg, zerolog.Nop())
	l.Prepare([]*contract.Client{client("UTC")})
	return l
}

// replace replaces all forecasts of the layer.
func replace(l *Layer, all []*pb.StreetForecast) {
	l.Clear()
	for _, f := range all {
		l.Put(f)
	}
}

// rebuild publishes the forecasts and builds the layer.
func rebuild(l *Layer, now time.Time) {
	l.Publish(now)
	l.build(now)
}

// get requests the layer. headers alternates between names and values.
func get(l *Layer, c *contract.Client, query string, headers ...string) (*fasthttp.RequestCtx, error) {
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.SetRequestURI(Path + query)
	for i := 0; i < len(headers); i += 2 {
		ctx.Request.Header.Add(headers[i], headers[i+1])
	}
	_, err := l.Handle(c, ctx)
	return ctx, err
}

// header returns a header of the response; Peek would not find ETag, which is not a canonical name.
func header(ctx *fasthttp.RequestCtx, name string) string {
	for k, v := range ctx.Response.Header.All() {
		if strings.EqualFold(string(k), name) {
			return string(v)
		}
	}
	return ""
}

// layerOf decompresses a response and decodes it as protobuf.
func layerOf(t testing.TB, ctx *fasthttp.RequestCtx) *pb.StreetForecastResponse {
	t.Helper()
	var r pb.StreetForecastResponse
	require.NoError(t, proto.Unmarshal(unpack(t, header(ctx, "Content-Encoding"), ctx.Response.Body()), &r))
	return &r
}

// unpack decompresses a body as a browser does: one gzip member, which must be the whole body.
func unpack(t testing.TB, encoding string, body []byte) []byte {
	t.Helper()
	if encoding != "gzip" {
		return body
	}
	source := bytes.NewReader(body)
	z, err := gzip.NewReader(source)
	require.NoError(t, err)
	z.Multistream(false)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Zero(t, source.Len(), "bytes after the gzip member")
	return plain
}
