package forecasts

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

func TestNormaliseTime(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		got, err := normaliseTime(text)
		if want == "" {
			require.Error(t, err, text)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	const sharp = "2026-11-20T18:15:00Z"
	f(sharp, sharp)
	f("2026-11-20T18:15:00.999999999Z", sharp)
	f("2026-11-20T18:15:00,5Z", sharp)
	f("2026-11-20t18:15z", sharp)
	f("2026-11-20T19:15+01:00", sharp)
	f("2026-11-20T12:45:00.1-05:30", sharp)
	f("2026-11-21T08:15:00+14:00", sharp)
	f("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z")
	f("2261-12-31T23:59:59.9Z", "2261-12-31T23:59:59Z")
	f("1970-01-01T00:00:00+00:01", "")
	f("2262-01-01T00:00:00Z", "")
	f("1969-12-31T23:59:59Z", "")
	for _, bad := range []string{
		"", "now", "2026-11-20", "2026-11-20T18:15:00", "2026-11-20 18:15:00Z", "2026-02-29T00:00:00Z", "2026-11-20T24:00:00Z",
		"2026-11-20T23:59:60Z", "2026-11-20T8:15:00Z", "2026-11-20T18Z", "2026-11-20T18:15.5Z", "2026-11-20T18:15:00.Z",
		"2026-11-20T18:15:00+01", "2026-11-20T18:15:00+24:00", "2026-11-20T18:15:00-24:01", "2026-11-20T18:15:", "2026-11-20T18:15+", "2026-11-20T18:15:0", "2026-11-20T8:15:00.Z", "2026-11-20T8:15:00,1",
		"20261120T181500Z", " " + sharp, sharp + " ", strings.Repeat("2", 100), "2026-11-20T18:15:00." + strings.Repeat("1", 30) + "Z",
	} {
		f(bad, "")
	}
}

// streetOf returns a street with the given periods.
func streetOf(periods ...*pb.ForecastPeriod) *pb.StreetForecast {
	return &pb.StreetForecast{Street: 1, Fromnode: 2, Forecast: periods}
}

func period(start, end string, speed float64) *pb.ForecastPeriod {
	return &pb.ForecastPeriod{Start: "2026-11-20T" + start, End: "2026-11-20T" + end, SpeedValid: proto.Bool(true), Speed: speed}
}

// TestNormalise checks the rules of the package comment.
func TestNormalise(t *testing.T) {
	show := func(f *pb.StreetForecast) (s []string) {
		for _, p := range f.Forecast {
			s = append(s, fmt.Sprintf("%s-%s %g", p.Start[11:], p.End[11:], p.Speed))
		}
		return s
	}
	f := func(in *pb.StreetForecast, remarks int, first string, want ...string) {
		t.Helper()
		r, err := Normalise(in, MaxSpeed)
		require.NoError(t, err)
		require.Equal(t, remarks, r.Count, "%v", r.First)
		if remarks > 0 {
			require.ErrorContains(t, r.First, first)
		}
		require.Equal(t, want, show(in))
		require.NoError(t, checkNormal(in))
	}
	good := func() *pb.ForecastPeriod { return period("18:00:00Z", "18:15:00Z", 50) }
	const text = "18:00:00Z-18:15:00Z 50"
	f(streetOf(), 0, "")
	f(streetOf(good()), 0, "", text)
	f(streetOf(good(), period("18:15:00Z", "18:15:00.9Z", 1)), 1, "period 1: end 2026-11-20T18:15:00Z is not after start", text)
	f(streetOf(good(), period("18:15:00Z", "18:10:00Z", 1)), 1, "is not after start", text)
	f(streetOf(good(), period("18:15", "18:30Z", 1)), 1, `start: "2026-11-20T18:15" is not a date-time`, text)
	f(streetOf(good(), period("18:15Z", "25:30Z", 1)), 1, "end:", text)
	f(streetOf(good(), nil), 1, "null", text)
	f(streetOf(good(), period("18:00:00.5Z", "18:15:00.5Z", 70)), 1, "duplicate period", "18:00:00Z-18:15:00Z 70")
	f(streetOf(good(), good(), good()), 2, "duplicate period", text)
	f(streetOf(period("18:15Z", "18:30Z", 3), period("18:00Z", "18:30Z", 2), period("18:00Z", "18:15Z", 1)), 0, "",
		"18:00:00Z-18:15:00Z 1", "18:00:00Z-18:30:00Z 2", "18:15:00Z-18:30:00Z 3")
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.1, MaxSpeed + 1, 1e300} {
		f(streetOf(good(), period("18:15Z", "18:30Z", v)), 1, "period 1: speed", text)
		invalid := period("18:15Z", "18:30Z", v)
		invalid.SpeedValid = proto.Bool(false)
		f(streetOf(good(), invalid), 1, "speed", text, "18:15:00Z-18:30:00Z 0")
		flow := good()
		flow.Flow, flow.FlowValid = v*MaxFlow, true
		f(streetOf(flow), 1, "flow", text)
		require.Zero(t, flow.Flow)
		require.False(t, flow.FlowValid)
	}
	for _, v := range []float64{0, MaxSpeed, math.SmallestNonzeroFloat64} {
		f(streetOf(period("18:00Z", "18:15Z", v)), 0, "", fmt.Sprintf("18:00:00Z-18:15:00Z %g", v))
	}
	f(streetOf(period("18:00Z", "18:15Z", math.Copysign(0, -1))), 0, "", "18:00:00Z-18:15:00Z 0")

	zone := streetOf(good())
	zone.Forecast[0].Timezone = "Europe/Copenhagen"
	f(zone, 0, "", text)
	require.Empty(t, zone.Forecast[0].Timezone)
	for _, code := range []string{"not base64!", "CwV/OiHN2TvlAAA1ABM7FQ", "CwV/OiHN2TvlAAA1ABM7\nFQ=="} {
		odd := streetOf(good())
		odd.OpenLRcode = code
		f(odd, 1, "not base64", text)
		require.Equal(t, code, odd.OpenLRcode)
	}
}

// TestNormaliseOptional checks the optional members.
func TestNormaliseOptional(t *testing.T) {
	f := func(change func(*pb.StreetForecast, *pb.ForecastPeriod), remarks int, first string) *pb.StreetForecast {
		t.Helper()
		s := streetOf(period("18:00:00Z", "18:15:00Z", 50))
		s.Length, s.FreeFlowSpeed = proto.Float64(120), proto.Float64(60)
		p := s.Forecast[0]
		p.SpeedLow, p.SpeedHigh, p.Basis, p.Closed = proto.Float64(40), proto.Float64(60), proto.String("own"), proto.Bool(false)
		change(s, p)
		r, err := Normalise(s, MaxSpeed)
		require.NoError(t, err)
		require.Equal(t, remarks, r.Count, "%v", r.First)
		if remarks > 0 {
			require.ErrorContains(t, r.First, first)
		}
		require.InDelta(t, 50, s.Forecast[0].Speed, 0, "the period stays")
		return s
	}
	whole := f(func(*pb.StreetForecast, *pb.ForecastPeriod) {}, 0, "")
	require.InDelta(t, 120, whole.GetLength(), 0)
	require.Equal(t, []any{60.0, 40.0, 60.0, "own", false}, []any{
		whole.GetFreeFlowSpeed(), whole.Forecast[0].GetSpeedLow(),
		whole.Forecast[0].GetSpeedHigh(), whole.Forecast[0].GetBasis(), whole.Forecast[0].GetClosed(),
	})
	for _, v := range []float64{math.NaN(), math.Inf(1), -1, 1e7} {
		require.Nil(t, f(func(s *pb.StreetForecast, _ *pb.ForecastPeriod) { s.Length = &v }, 1, "length").Length)
		require.Nil(t, f(func(s *pb.StreetForecast, _ *pb.ForecastPeriod) { s.FreeFlowSpeed = &v }, 1, "free_flow_speed").FreeFlowSpeed)
		low := f(func(_ *pb.StreetForecast, p *pb.ForecastPeriod) { p.SpeedLow = &v }, 1, "bound").Forecast[0]
		require.Nil(t, low.SpeedLow)
		require.NotNil(t, low.SpeedHigh)
		require.Nil(t, f(func(_ *pb.StreetForecast, p *pb.ForecastPeriod) { p.SpeedHigh = &v }, 1, "bound").Forecast[0].SpeedHigh)
	}
	require.Nil(t, f(func(_ *pb.StreetForecast, p *pb.ForecastPeriod) { *p.SpeedLow = 61 }, 1, "above speed_high").Forecast[0].SpeedHigh)
	for _, basis := range []string{"", "Own", "a b", `a"`, strings.Repeat("a", 33)} {
		require.Nil(t, f(func(_ *pb.StreetForecast, p *pb.ForecastPeriod) { p.Basis = &basis }, 1, "basis").Forecast[0].Basis)
	}
}

func TestNormaliseErrors(t *testing.T) {
	f := func(in *pb.StreetForecast, want string) {
		t.Helper()
		_, err := Normalise(in, MaxSpeed)
		require.ErrorContains(t, err, want)
	}
	f(nil, "no forecast")
	f(&pb.StreetForecast{OpenLRcode: "AAAA"}, "both 0")
	f(&pb.StreetForecast{Street: 1, OpenLRcode: "\xff"}, "not UTF-8")
	f(&pb.StreetForecast{Street: 1, OpenLRcode: strings.Repeat("A", 4100)}, "4096")
	f(&pb.StreetForecast{Street: 1, Forecast: make([]*pb.ForecastPeriod, 10_001)}, "10001 periods")
	f(streetOf(period("18:15Z", "18:00Z", 1), period("18:15Z", "18:30Z", -1)), "none of the 2 periods is usable: period 0")
}

func TestKey(t *testing.T) {
	f := func(key string, want identity, good bool) {
		t.Helper()
		id, err := parseKey([]byte(key))
		require.Equal(t, good, err == nil, "%v", err)
		if good {
			require.Equal(t, want, id)
			require.Equal(t, key, string(Key(&pb.StreetForecast{Street: id.street, Fromnode: id.fromnode})))
		}
	}
	f("1:2", identity{1, 2}, true)
	f("-2147483648:2147483647", identity{math.MinInt32, math.MaxInt32}, true)
	f("0:0", identity{}, true)
	for _, bad := range []string{"", ":", "1", "1:", ":1", "1:2:3", "01:2", "+1:2", "-0:2", "1: 2", "1:2147483648", "1e3:2", "١:2"} {
		f(bad, identity{}, false)
	}
}

// TestParseRecordRange checks integers that protobuf's decoder would silently truncate to 32 bits.
func TestParseRecordRange(t *testing.T) {
	f := func(street uint64, want string) {
		t.Helper()
		var message []byte
		message = append(message, 0x08)
		for v := street; ; v >>= 7 {
			if v < 0x80 {
				message = append(message, byte(v))
				break
			}
			message = append(message, byte(v)|0x80)
		}
		got, _, err := parseProtobuf(append(message, 0x10, 7), MaxSpeed)
		if want != "" {
			require.ErrorContains(t, err, want)
			return
		}
		require.NoError(t, err)
		require.EqualValues(t, int32(street), got.Street)
		require.EqualValues(t, 7, got.Fromnode)
	}
	f(1, "")
	f(math.MaxInt32, "")
	f(math.MaxUint64, "") // -1
	f(uint64(math.MaxUint64-math.MaxInt32), "")
	f(math.MaxInt32+1, "32-bit integer")
	f(1<<32+1, "32-bit integer")
	f(uint64(math.MaxUint64-math.MaxInt32-1), "32-bit integer")
}

// TestParseRecordTruncated checks that a truncated record is not used with fewer periods.
func TestParseRecordTruncated(t *testing.T) {
	whole := value(t, street(1, 1, 10, 20))
	f, _, err := parseProtobuf(whole, MaxSpeed)
	require.NoError(t, err)
	require.True(t, proto.Equal(street(1, 1, 10, 20), f))
	for n := range whole {
		cut, remarks, err := parseProtobuf(whole[:n], MaxSpeed)
		if err != nil {
			continue
		}
		// A prefix that ends between two fields is a valid message itself.
		require.Zero(t, remarks.Count)
		require.Less(t, len(cut.Forecast), 2)
		require.True(t, proto.Equal(cut, &pb.StreetForecast{Street: 1, Fromnode: cut.Fromnode, OpenLRcode: cut.OpenLRcode, Forecast: f.Forecast[:len(cut.Forecast)]}))
	}
}

// FuzzRecord checks that a valid record is in normal form and matches its key, and that it can be
// written and read again unchanged, with no remark except about its openLRcode.
func FuzzRecord(f *testing.F) {
	add := func(s *pb.StreetForecast) {
		b, err := proto.Marshal(s)
		require.NoError(f, err)
		f.Add(Key(s), b)
	}
	add(street(1, 2, 10, 20))
	add(street(-1, math.MaxInt32))
	add(streetOf(period("18:00:00.5Z", "19:15+00:30", math.NaN()), period("18:00Z", "18:00:01Z", 3)))
	odd := streetOf(period("18:00Z", "18:15Z", 1), period("18:00Z", "18:15Z", 2))
	odd.OpenLRcode, odd.Forecast[0].Flow = "?", math.Inf(1)
	add(odd)
	f.Add([]byte("1:2"), []byte(nil))
	f.Fuzz(func(t *testing.T, key, message []byte) {
		id, forecast, _, err := parseRecord(key, message, MaxSpeed)
		if err != nil || forecast == nil {
			require.Nil(t, forecast)
			return
		}
		require.Equal(t, id, identityOf(forecast))
		require.Equal(t, string(key), string(Key(forecast)))
		require.NoError(t, checkNormal(forecast))
		require.True(t, slices.IsSortedFunc(forecast.Forecast, comparePeriods))
		b, err := proto.Marshal(forecast)
		require.NoError(t, err)
		again, remarks, err := parseProtobuf(b, MaxSpeed)
		require.NoError(t, err)
		require.True(t, proto.Equal(forecast, again))
		if isBase64(forecast.OpenLRcode) {
			require.NoError(t, remarks.First)
		}
	})
}

// TestManyPeriodsUseNoMemory checks that a record with too many periods is rejected before it is
// decoded, because a period takes up to 60 times as much memory as its encoding.
func TestManyPeriodsUseNoMemory(t *testing.T) {
	f := func(parse func([]byte, float64) (*pb.StreetForecast, Remarks, error), text, want string) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := parse([]byte(text), MaxSpeed)
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*len(text)))
	}
	const n = 1_000_000
	f(parseProtobuf, "\x08\x01"+strings.Repeat("\x22\x00", n), "forecast has 1000000 periods, must have at most 10000")
	f(parseJSON, `{"street":1,"forecast":[`+strings.Repeat("{},", n-1)+"{}]}", "the record has 1000001 JSON objects, must have at most 100000")
}
