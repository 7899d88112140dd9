package routing

import (
	"bytes"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/geo"
	"trafficd/schemas/xroute"
)

// FuzzHandle checks that every body gets a valid response or fault, but never an
// UnexpectedException, and that the geometry of a response is accepted again and is the same in
// all its encodings.
func FuzzHandle(f *testing.F) {
	all := xmlOptions(`coordFormat="VENDOR_CONFORM"`, "PLAIN", "WKT", "WKB", "KML")
	f.Add([]byte(simple))
	f.Add([]byte(convert(`Point"`, `<c:point x="8" y="48" z="1"/>`, all, caller("CoordFormat", "OG_SRID", "SrId", "4326"))))
	f.Add([]byte(convert(`Polygon" wkt="POLYGON ((8 48, 9 48, 9 49, 8 48), EMPTY)"`, "", all, "")))
	f.Add([]byte(convert(`MultiPoint" wkt="MULTIPOINT (EMPTY, 8 48)"`, "", all, "")))
	f.Add([]byte(convert(`GeometryCollection"`, `<c:kml kml="&lt;MultiGeometry>&lt;Point>&lt;coordinates>8,48&lt;/coordinates>&lt;/Point>&lt;/MultiGeometry>"/>`, all, "")))
	f.Add([]byte(convert(`LinearRing" wkb="AQIAAAAAAAAA"`, `<c:linearRing><c:wrappedPoints/></c:linearRing>`, all, "")))
	f.Add([]byte(convert(`GeometryCollection"`, `<c:geometryCollection><c:wrappedGeometries><c:PlainGeometryBase xsi:type="c:PlainPoint" x="1" y="2"/></c:wrappedGeometries></c:geometryCollection>`, all, "")))
	f.Add([]byte(convert(`LineString" wkt="LINESTRING Z EMPTY"`, "", all, "")))
	f.Add([]byte(startMessage("8 48", "x")))
	f.Add([]byte(jobRequest("watchJob", "x", watchOptions(0, 250))))
	f.Add([]byte(jobRequest("fetchConvertGeometries", "x", "")))
	cfg := DefaultConfig()
	cfg.MaxBodyBytes = 64 << 10
	f.Fuzz(func(t *testing.T, text []byte) {
		s := New(cfg, "http", zerolog.Nop())
		defer s.Stop()
		response, _ := responseTo(t, s, text)
		converted, ok := response.(*xroute.ConvertGeometryResponse)
		if !ok {
			return
		}
		s.cfg.MaxBodyBytes, s.cfg.MaxPoints = 1<<30, 1<<30 // the response may be larger than the request
		again := convertTo(converted.Result, geo.GeoDecimal, xroute.EncodingWKB)
		if _, f := responseTo(t, s, []byte(message(t, again))); f != nil {
			require.Equal(t, xroute.CodeCoordinateFormat, f.key, "%v", f) // expected, because these are other coordinates
		}
	})
}

// responseTo returns the response as a client reads it, or the failure behind the fault.
func responseTo(t *testing.T, s *Service, text []byte) (xroute.Response, *failure) {
	t.Helper()
	x := &exchange{service: s, client: &contract.Client{Name: "client"}, trace: "t", start: time.Now()}
	var h fasthttp.RequestHeader
	s.memory.Charge(x.client.Owner, int64(cap(text)))
	defer func() { s.memory.Release(x.client.Owner, int64(x.size)) }()
	out, err := x.process(&h, &body{memory: s.memory, client: x.client.Owner, bytes: text})
	limits := xroute.DefaultLimits()
	limits.Depth, limits.Bytes = 1<<20, 1<<30
	if err == nil {
		response, err := xroute.ReadResponse(bytes.NewReader(out), limits)
		require.NoError(t, err)
		return response, nil
	}
	failure, _ := failureOf(err)
	require.NotSame(t, unforeseen, failure.class, "%v", err)
	out, err = xroute.AppendMessage(nil, failure.fault(x.trace, ""))
	require.NoError(t, err)
	_, err = xroute.ReadResponse(bytes.NewReader(out), limits)
	var fault *xroute.Fault
	require.ErrorAs(t, err, &fault)
	return nil, failure
}
