// Package proto contains the protobuf definitions, which the daemon publishes. The generated Go
// types are in trafficd/v1.
package proto

import "embed"

// Files contains the definitions, at the paths with which they import each other.
//
//go:embed trafficd/v1/*.proto
var Files embed.FS
