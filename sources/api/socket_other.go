//go:build !linux || race

package api

import "net"

// newSocket leaves the connection as it is. What socket does is Linux's own, and hides from the race
// detector that a request comes after what its client did before.
func newSocket(c net.Conn) net.Conn { return c }
