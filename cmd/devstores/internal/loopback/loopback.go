// Package loopback picks ports on 127.0.0.1.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Free ports are looked for below Linux's range of ephemeral ports (32768 and up). From that range the kernel hands out ports to
// outgoing connections, and one of those could sit on the port of a store that is being restarted.
const (
	lowest  = 12000
	highest = 32000
)

// given are the ports that Pick has found: whoever asked may not listen yet.
var given sync.Map

// Address is the host:port of a port on loopback.
func Address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Pick returns port if nobody listens there, or, if it is 0, one that is free, another one each time. what says whose port it is, for the error.
func Pick(what string, port int) (int, error) {
	if port != 0 {
		return port, check(what, port)
	}
	for range 100 {
		port = lowest + rand.IntN(highest-lowest)
		if _, twice := given.LoadOrStore(port, nil); !twice && check(what, port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("cannot find a free port for %s between %d and %d: give one", what, lowest, highest)
}

func check(what string, port int) error {
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		return fmt.Errorf("cannot use port %d for %s: %w; give another one, or 0 for a free one", port, what, err)
	}
	return l.Close()
}
