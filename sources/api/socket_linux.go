package api

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnsent limits how much of a response the kernel buffers for each connection to a listener,
// in addition to what is on its way to the client. By default it buffers up to 4 MB, so clients
// that do not read could use all of the kernel's memory for TCP, and it asks for more only when a
// third of that is free, for which a client must read more within the write timeout than contract
// 1.3 says. With this limit it asks for more when half of it is free.
func limitUnsent(_, _ string, listener syscall.RawConn) error {
	var failed error
	err := listener.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
	return errors.Join(err, failed)
}

const maxUnsent = 1 << 20

// ignoreNew makes the kernel drop the first packet of new connections to the listener. Clients
// retransmit it after a second. Handshakes in progress are completed, and connections in the
// listener's queue can still be accepted; heed must be called for each. Packets arrive with a TTL
// of 64 or 128 at most, except from the few systems that send more. A BPF filter on the socket
// would not depend on that, but newer kernels require CAP_NET_ADMIN for it.
func ignoreNew(l net.Listener) error { return requireTTL(l, 255) }

// heed makes the kernel receive the packets of a connection that was accepted after ignoreNew. If
// its handshake was in progress then, it inherited the setting.
func heed(c net.Conn) error { return requireTTL(c, 0) }

// gone reports whether the peer of a connection has closed at least its sending side, or has reset
// the connection. Received data that has not been read does not matter.
func gone(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true // the connection is closed
	}
	events := []unix.PollFd{{Events: unix.POLLRDHUP}}
	err = raw.Control(func(fd uintptr) {
		events[0].Fd = int32(fd)
		_, _ = unix.Poll(events, 0) // without an event after an error
	})
	return err != nil || events[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// requireTTL makes the kernel drop packets that arrive with a lower TTL or hop limit.
func requireTTL(socket any, ttl int) error {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL, ttl)     // IPv4 to an IPv6 socket, too
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT, ttl) // fails on an IPv4 socket
	})
	return errors.Join(err, failed)
}
