package layers

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"testing"

	"github.com/paulmach/orb"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"google.golang.org/protobuf/encoding/protowire"

	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// getTile requests a tile by its path and query.
func getTile(l *Layer, target string, headers ...string) (*fasthttp.RequestCtx, error) {
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod(http.MethodGet)
	ctx.Request.SetRequestURI(Path + target)
	for i := 0; i < len(headers); i += 2 {
		ctx.Request.Header.Set(headers[i], headers[i+1])
	}
	_, err := Tiles{l}.Handle(client("UTC"), &ctx)
	return &ctx, err
}

// feature is a street in a tile.
type feature struct {
	line orb.LineString
	of   map[string]any
}

// decodeTile decodes a tile with one layer. Conformance tests decode tiles with the libraries of
// map clients.
func decodeTile(t *testing.T, text []byte) (all []feature) {
	t.Helper()
	fields := func(b []byte, do func(field protowire.Number, number uint64, text []byte)) {
		for len(b) > 0 {
			field, kind, n := protowire.ConsumeTag(b)
			require.Positive(t, n)
			b = b[n:]
			var number uint64
			var text []byte
			switch kind {
			case protowire.VarintType:
				number, n = protowire.ConsumeVarint(b)
			case protowire.Fixed64Type:
				number, n = protowire.ConsumeFixed64(b)
			default:
				text, n = protowire.ConsumeBytes(b)
			}
			require.Positive(t, n)
			b = b[n:]
			do(field, number, text)
		}
	}
	varints := func(b []byte) (list []uint64) {
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			list, b = append(list, v), b[n:]
		}
		return list
	}
	var keys []string
	var values []any
	var features [][]byte
	fields(text, func(_ protowire.Number, _ uint64, layer []byte) {
		fields(layer, func(field protowire.Number, number uint64, text []byte) {
			switch field {
			case 1:
				require.Equal(t, "streets", string(text))
			case 2:
				features = append(features, text)
			case 3:
				keys = append(keys, string(text))
			case 4:
				fields(text, func(field protowire.Number, number uint64, _ []byte) {
					values = append(values, map[protowire.Number]any{
						3: math.Float64frombits(number), 6: float64(protowire.DecodeZigZag(number)), 7: number == 1,
					}[field])
				})
			case 15:
				require.EqualValues(t, 2, number)
			}
		})
	})
	for _, text := range features {
		f := feature{of: map[string]any{}}
		fields(text, func(field protowire.Number, number uint64, text []byte) {
			list := varints(text)
			switch field {
			case 2:
				for i := 0; i < len(list); i += 2 {
					f.of[keys[list[i]]] = values[list[i+1]]
				}
			case 4:
				var x, y int64
				for i, left := 0, 0; i < len(list); {
					if left == 0 {
						left = int(list[i] >> 3)
						i++
						continue
					}
					x, y = x+protowire.DecodeZigZag(list[i]), y+protowire.DecodeZigZag(list[i+1])
					f.line = append(f.line, orb.Point{float64(x), float64(y)})
					i, left = i+2, left-1
				}
			}
		})
		all = append(all, f)
	}
	return all
}

// TestTiles compares the features of a tile with the forecasts of the streets in it and at its
// edge.
func TestTiles(t *testing.T) {
	l := prepared(DefaultConfig())
	_, err := getTile(l, "/12/0/0.mvt")
	require.Equal(t, contract.ServiceUnavailable, err.(*contract.APIError).Code)
	const zoom, x, y = 12, 2161, 1389 // of 10°, 50°
	longitude := func(x float64) float64 { return x/(1<<zoom)*360 - 180 }
	latitude := func(y float64) float64 { return math.Atan(math.Sinh(math.Pi*(1-2*y/(1<<zoom)))) * 180 / math.Pi }
	street := func(number int32, from, to [2]float64, change func(*pb.StreetForecast)) *pb.StreetForecast {
		code, err := openlr.Encode(openlr.Straight(from, to, 500, 3))
		require.NoError(t, err)
		f := forecast(number, -7, noon, 2, 40)
		f.OpenLRcode = code
		for i := range f.Forecast {
			f.Forecast[i].SpeedLow, f.Forecast[i].SpeedHigh = new(30.5), new(50.5)
		}
		f.FreeFlowSpeed = new(70.0)
		if change != nil {
			change(f)
		}
		return f
	}
	west, north := longitude(x), latitude(y)
	replace(l, []*pb.StreetForecast{
		street(1, [2]float64{10, 50}, [2]float64{10.01, 50.005}, nil),
		street(2, [2]float64{west - 0.3, 50}, [2]float64{west + 0.01, 50}, nil), // begins far outside
		street(3, [2]float64{10, 50}, [2]float64{10.005, 50}, func(f *pb.StreetForecast) {
			f.Forecast[0].SpeedLow, f.Forecast[0].SpeedHigh, f.FreeFlowSpeed = nil, nil, nil
			f.Forecast[0].Closed = new(true)
		}),
		street(4, [2]float64{west - 0.3, north + 0.3}, [2]float64{west - 0.2, north + 0.2}, nil), // outside
		street(5, [2]float64{10, 50}, [2]float64{10.01, 50.005}, func(f *pb.StreetForecast) { f.Forecast = f.Forecast[1:] }),
	})
	rebuild(l, noon)
	get := func(query string) map[float64]feature {
		ctx, err := getTile(l, fmt.Sprintf("/12/%d/%d.mvt%s", x, y, query))
		require.NoError(t, err)
		require.Equal(t, tileType, string(ctx.Response.Header.ContentType()))
		found := map[float64]feature{}
		for _, f := range decodeTile(t, ctx.Response.Body()) {
			for i, p := range f.line {
				require.LessOrEqual(t, math.Abs(p[0]-tileExtent/2), float64(tileExtent/2+tileBuffer))
				f.line[i] = orb.Point{longitude(x + p[0]/tileExtent), latitude(y + p[1]/tileExtent)}
			}
			found[f.of["street"].(float64)] = f
		}
		return found
	}
	all := get("")
	require.Len(t, all, 3)
	require.Equal(t, map[string]any{
		"street": 1.0, "fromnode": -7.0, "speed": 40.0, "low": 30.5, "high": 50.5, "class": 2.0,
	}, all[1].of)
	line := all[1].line
	require.InDelta(t, 10, line[0][0], 1e-4)
	require.InDelta(t, 50.005, line[1][1], 1e-4)
	require.InDelta(t, west, all[2].line[0][0], 0.01, "cut near the edge")
	require.Equal(t, map[string]any{"street": 3.0, "fromnode": -7.0, "speed": 40.0, "class": 0.0, "closed": true}, all[3].of)

	later := get("?horizon=15")
	require.Len(t, later, 4)
	require.InDelta(t, 40.0, later[5].of["speed"], 1, "its second period")
	require.InDelta(t, 41.0, later[1].of["speed"], 0)
}

// TestTileResponses checks conditions, encodings, empty tiles and invalid requests.
func TestTileResponses(t *testing.T) {
	l := prepared(DefaultConfig())
	replace(l, city(300, noon))
	rebuild(l, noon)
	p := l.current.Load().cells[0].streets[0].place
	target := func(zoom uint32) string {
		return fmt.Sprintf("/%d/%d/%d.mvt", zoom, p.x>>(32-zoom), p.y>>(32-zoom))
	}
	plain, err := getTile(l, target(10))
	require.NoError(t, err)
	require.NotEmpty(t, plain.Response.Body())
	etag := string(plain.Response.Header.Peek("ETag"))
	same, err := getTile(l, target(10), "If-None-Match", etag)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotModified, same.Response.StatusCode())
	packed, err := getTile(l, target(10), "Accept-Encoding", "gzip")
	require.NoError(t, err)
	require.Equal(t, "gzip", string(packed.Response.Header.Peek("Content-Encoding")))
	require.NotEqual(t, etag, string(packed.Response.Header.Peek("ETag")))
	z, err := gzip.NewReader(bytes.NewReader(packed.Response.Body()))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Equal(t, plain.Response.Body(), text)
	for _, h := range []string{"Forecast-Age", "Forecast-Covered-Until", "Cache-Control", "Vary"} {
		require.NotEmpty(t, plain.Response.Header.Peek(h), h)
	}

	rebuild(l, noon) // nothing has changed
	again, err := getTile(l, target(10))
	require.NoError(t, err)
	require.Equal(t, etag, string(again.Response.Header.Peek("ETag")))

	empty, err := getTile(l, "/14/0/0.mvt", "Accept-Encoding", "gzip")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, empty.Response.StatusCode())
	require.Empty(t, empty.Response.Body())
	require.Empty(t, empty.Response.Header.Peek("Content-Encoding"))

	for target, parameter := range map[string]string{
		"/5/0/0.mvt": "tile", "/15/0/0.mvt": "tile", "/6/64/0.mvt": "tile", "/6/0/x.mvt": "tile", "/6/0/-1.mvt": "tile", "/..%2f..%2f../../y.mvt": "tile", "/10.mvt/1/2.mvt": "tile",
		"/6/0/0.mvt?horizon=7": "horizon", "/6/0/0.mvt?horizon=": "horizon", "/6/0/0.mvt?horizon=15&horizon=15": "horizon",
	} {
		_, err := getTile(l, target)
		apiErr, ok := err.(*contract.APIError)
		require.True(t, ok, target)
		require.Equal(t, contract.InvalidParameter, apiErr.Code, target)
		require.Equal(t, parameter, apiErr.Parameter, target)
	}
}

// TestTilesAreBounded checks that the tiles that are kept of a snapshot do not grow without limit.
func TestTilesAreBounded(t *testing.T) {
	var all tiles
	for x := range uint32(100) {
		all.get(tileKey{zoom: 14, x: x}, func(made *tile) { made.body = make([]byte, maxTiles/10) })
	}
	require.LessOrEqual(t, all.bytes, maxTiles+maxTiles/10+11*tileMemory)
	require.LessOrEqual(t, len(all.byKey), 11)
}
