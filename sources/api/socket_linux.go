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
// retransmit it after a second. Connections in the listener's queue can still be accepted.
func ignoreNew(l net.Listener) error {
	const (
		load  = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		keep  = unix.BPF_RET | unix.BPF_K // returns how many bytes of the packet to keep

		flags    = 13 // the offset of the flags in a TCP header (RFC 9293, section 3.1)
		syn, ack = 0x02, 0x10
	)
	program := []unix.SockFilter{
		{Code: load, K: flags},
		{Code: and, K: syn | ack},
		{Code: equal, K: syn, Jf: 1},
		{Code: keep, K: 0},
		{Code: keep, K: 1 << 16},
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
	})
	return errors.Join(err, failed)
}
