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
