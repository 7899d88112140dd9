// Package proto contains the protobuf definitions, which the daemon publishes. The generated Go
// types are in trafficd/v1.
package proto

import (
	"embed"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Files contains the definitions, at the paths with which they import each other.
//
//go:embed trafficd/v1/*.proto
var Files embed.FS

// DescriptorSet returns the definitions and what they import as a FileDescriptorSet, for tools that
// read messages without generated code.
func DescriptorSet() ([]byte, error) {
	var set descriptorpb.FileDescriptorSet
	for _, file := range []protoreflect.FileDescriptor{
		timestamppb.File_google_protobuf_timestamp_proto, // an import precedes its importer
		pb.File_trafficd_v1_forecast_proto, pb.File_trafficd_v1_measurement_proto,
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(&set)
}
