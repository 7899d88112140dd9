//go:build !linux

package api

import "net"

func backlog(net.Listener) uint32 { return 0 }
