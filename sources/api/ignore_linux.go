package api

import (
	"net"

	"golang.org/x/sys/unix"
)

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
	if err != nil {
		return err
	}
	return failed
}
