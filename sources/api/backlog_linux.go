package api

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog returns how many connections of a listener wait to be accepted: the kernel resets them
// when it is closed.
func backlog(l net.Listener) (n uint32) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Unacked
		}
	})
	return n
}
