// Package proto holds the protobuf definitions as they are published: the daemon
// serves them, so that clients generate code from what it really speaks.
// The Go types made from them are in trafficd/v1.
package proto

import "embed"

// Files are the definitions at the paths by which they import each other.
//
//go:embed trafficd/v1/*.proto
var Files embed.FS
