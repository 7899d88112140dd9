package launch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
)

// The range of free ports is below Linux's ephemeral range (32768 and up), from which the kernel
// assigns ports to outgoing connections. Such a connection could occupy the port of a server that
// is being restarted.
const (
	lowestPort  = 12000
	highestPort = 32000
)

// givenPorts holds the ports that PickPort has returned. Nothing might be listening on them yet.
var givenPorts sync.Map

// Address returns 127.0.0.1:port.
func Address(port int) string { return Host{}.Endpoint(port).String() }

// Host is where a store runs. The zero value is loopback.
type Host struct {
	Address   string // address that the store listens on; empty = 127.0.0.1
	Namespace string // name of a network namespace of `ip netns`; empty = that of this process
}

// Endpoint returns the endpoint of a port on the host.
func (h Host) Endpoint(port int) Endpoint { return Endpoint{cmp.Or(h.Address, "127.0.0.1"), port} }

// Hosts lists the hosts of a cluster's nodes. If it is empty, all nodes run on loopback.
type Hosts []Host

// At returns the host of a node; nodes are numbered from 0.
func (h Hosts) At(node int) Host {
	if len(h) == 0 {
		return Host{}
	}
	return h[node]
}

// Endpoint is a port on a host.
type Endpoint struct {
	Host string
	Port int
}

// String returns host:port.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// PickPort returns port, or an error if it is in use. If port is 0, PickPort returns a free port, a
// different one each time. what describes the port in errors.
func PickPort(what string, port int) (int, error) {
	if port != 0 {
		return port, checkPort(what, port)
	}
	for range 100 {
		port = lowestPort + rand.IntN(highestPort-lowestPort)
		if _, given := givenPorts.LoadOrStore(port, nil); !given && checkPort(what, port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("cannot find a free port for %s between %d and %d", what, lowestPort, highestPort)
}

func checkPort(what string, port int) error {
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		return fmt.Errorf("cannot use port %d for %s: %w; choose a different port, or 0 for a free one", port, what, err)
	}
	return l.Close()
}

// FreeAddress returns a free host:port. On Linux, the host is one of 16 million loopback addresses,
// chosen at random, so that no other test and no outgoing connection uses the port while the server
// is down.
func FreeAddress() (string, error) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
