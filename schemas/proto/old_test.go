package proto

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// TestOldReaders checks that a reader generated without the optional members of streets and periods
// reads the same values from forecasts that have them, in both formats.
func TestOldReaders(t *testing.T) {
	optional := []string{"length", "free_flow_speed", "speed_low", "speed_high", "basis", "closed"}
	file, removed := protodesc.ToFileDescriptorProto(pb.File_trafficd_v1_forecast_proto), 0
	for _, m := range file.MessageType {
		m.Field = slices.DeleteFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
			if !slices.Contains(optional, f.GetName()) {
				return false
			}
			removed++
			return true
		})
		var oneofs []*descriptorpb.OneofDescriptorProto // of the remaining optional fields, one each
		for _, f := range m.Field {
			if f.OneofIndex == nil {
				continue
			}
			oneofs = append(oneofs, m.OneofDecl[*f.OneofIndex])
			f.OneofIndex = new(int32(len(oneofs) - 1))
		}
		m.OneofDecl = oneofs
	}
	require.Equal(t, len(optional), removed)
	descriptor, err := protodesc.NewFile(file, nil)
	require.NoError(t, err)
	old := func() proto.Message {
		return dynamicpb.NewMessage(descriptor.Messages().ByName("StreetForecastResponse"))
	}

	layer := func(members bool) *pb.StreetForecastResponse {
		period := &pb.ForecastPeriod{Start: "2026-11-02T07:00:00Z", End: "2026-11-02T07:15:00Z", Speed: 41.5, SpeedValid: new(true)}
		street := &pb.StreetForecast{Street: 7, Fromnode: 2, OpenLRcode: "CwRbWyNG9RpsCQCb/jsbtAT/6/+jK1lE", Forecast: []*pb.ForecastPeriod{period}}
		if members {
			period.SpeedLow, period.SpeedHigh, period.Basis, period.Closed = new(35.0), new(48.0), new("own"), new(false)
			street.Length, street.FreeFlowSpeed = new(120.0), new(52.0)
		}
		return &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{street}}
	}
	read := func(l *pb.StreetForecastResponse) (binary, text string) {
		t.Helper()
		b, err := proto.Marshal(l)
		require.NoError(t, err)
		m := old()
		require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m))
		j, err := protojson.Marshal(l)
		require.NoError(t, err)
		n := old()
		require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(j, n))
		require.True(t, proto.Equal(m, n))
		return protojson.Format(m), protojson.Format(n)
	}
	wantBinary, wantText := read(layer(false))
	binary, text := read(layer(true))
	require.JSONEq(t, wantBinary, binary)
	require.JSONEq(t, wantText, text)
	require.Contains(t, binary, "41.5")
}
