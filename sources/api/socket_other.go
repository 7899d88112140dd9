//go:build !linux

package api

import (
	"net"
	"syscall"
)

// limitUnsent does nothing, so the kernel may buffer megabytes of a response that a client does not
// read.
func limitUnsent(string, string, syscall.RawConn) error { return nil }

// gone returns false: a client that has closed its connection is noticed when the response is
// written.
func gone(net.Conn) bool { return false }
