package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestFormats compares both formats with the output of the protobuf library.
func TestFormats(t *testing.T) {
	f := func(message *pb.StreetForecast, all bool) {
		t.Helper()
		s, err := newStreet(message)
		require.NoError(t, err)
		for _, p := range message.Forecast {
			p.Timezone = "Europe/Copenhagen"
			p.SpeedValid = proto.Bool(p.SpeedValid == nil || *p.SpeedValid) // always written; absent means true
		}
		want := &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{message}}
		shown := newPiece([]*street{s}, view{whole: true, all: all, at: math.MinInt64}, &zone{name: "Europe/Copenhagen"}, true)

		wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, wire, shown.appendText(nil, protobuf))

		text := jsonOpen + string(shown.appendText(nil, jsonText)) + jsonClose
		wantJSON, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(want)
		require.NoError(t, err)
		require.JSONEq(t, string(wantJSON), text)
		require.Equal(t, tokensOf(t, wantJSON), tokensOf(t, []byte(text)), "order of members")
		var got pb.StreetForecastResponse
		require.NoError(t, protojson.Unmarshal([]byte(text), &got))
		require.True(t, proto.Equal(want, &got))
	}
	f(&pb.StreetForecast{}, false)
	f(&pb.StreetForecast{Street: math.MaxInt32, Fromnode: math.MinInt32, OpenLRcode: "CwOiYCUM<\"\\\u2028é>"}, false)
	f(forecast(4711, 12, noon, 3, 43.2), false)
	f(forecast(4711, 12, noon, 3, 43.2), true)
	extended := forecast(4711, 12, noon, 4, 43.2)
	extended.Length, extended.FreeFlowSpeed = proto.Float64(106.25), proto.Float64(50)
	extended.Forecast[0].SpeedLow, extended.Forecast[0].SpeedHigh = proto.Float64(0), proto.Float64(51.5)
	extended.Forecast[1].Basis, extended.Forecast[1].Closed = proto.String("own"), proto.Bool(false)
	extended.Forecast[2].Closed, extended.Forecast[2].SpeedHigh = proto.Bool(true), proto.Float64(1e-7)
	f(extended, true)
	f(&pb.StreetForecast{Street: -1, Forecast: []*pb.ForecastPeriod{
		{Start: "2026-01-31T12:00:00Z", End: "2026-01-31T12:15:00Z", FlowValid: true, SpeedValid: proto.Bool(false), Speed: 1e-7, Flow: 1e21},
		{Start: "2026-01-31T12:15:00Z", End: "2026-01-31T12:30:00Z", Speed: math.Copysign(0, -1), Flow: 0.1 + 0.2},
		{Start: "2026-01-31T12:45:00Z", End: "2026-01-31T13:00:00Z", Speed: math.MaxFloat64, Flow: math.SmallestNonzeroFloat64},
	}}, false)
}

// tokensOf returns all tokens of a JSON text, in order.
func tokensOf(t *testing.T, text []byte) (tokens []any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return tokens
		}
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
}

func TestNewStreet(t *testing.T) {
	f := func(start, end string, ok bool) {
		t.Helper()
		s, err := newStreet(&pb.StreetForecast{Street: 7, Fromnode: 8, Forecast: []*pb.ForecastPeriod{{Start: start, End: end}}})
		if !ok {
			require.ErrorContains(t, err, "street 7 from node 8")
			return
		}
		require.NoError(t, err)
		require.Equal(t, start, s.periods[0].span.Value().start)
		require.Equal(t, end, s.periods[0].span.Value().end)
	}
	f("2026-01-31T12:00:00Z", "2026-01-31T12:15:00Z", true)
	f("2026-01-31T13:00:00+01:00", "2026-01-31T12:15:00Z", false)
	f("2026-01-31T12:00:00Z", "2026-01-31T12:15:00.500Z", false)
	f("2026-02-30T12:00:00Z", "2026-01-31T12:15:00Z", false)
	f("2026-01-31T12:00:00Z", "", false)
}
