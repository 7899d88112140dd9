//go:build linux && !race

package api

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// socket is a TCP connection that reads and writes without a word to the scheduler. It is told
// of a usual system call, because that may wait: one that takes longer than 20 µs loses its processor to
// another thread, and has to get it back. A send over loopback takes as long whenever the
// receiver wakes up in its middle. But these sockets never wait in a call. Where one has nothing to
// give, or no room, the runtime's poller waits, as it does for a net.TCPConn; so do deadlines.
//
// One goroutine at a time reads, and one writes.
type socket struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
	pair    [2][]byte   // what a large write is about
	large   net.Buffers // the same
}

// transfer is a read or a write under way.
type transfer struct {
	parts [2][]byte // of a write what is left; of a read the first only
	list  [2]syscall.Iovec
	n     int // bytes that went over
	errno syscall.Errno
	step  func(fd uintptr) (done bool) // made once, because it would be allocated each time
}

// silently is how much is written without a word to the scheduler: nobody else gets the
// processor in the meantime.
const silently = 256 << 10

// newSocket takes over a connection, or gives it back where it is not TCP.
func newSocket(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{TCPConn: tcp, raw: raw}
	s.in.step, s.out.step = s.in.read, s.out.write
	return s
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.transfer(&s.in, s.raw.Read, "read", p, nil)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *socket) Write(p []byte) (int, error) { return s.writeBoth(p, nil) }

// writeBoth writes one after the other, in one call if there is room.
func (s *socket) writeBoth(p, q []byte) (int, error) {
	if len(p)+len(q) > silently {
		s.pair = [2][]byte{p, q}
		s.large = s.pair[:]
		n, err := s.large.WriteTo(s.TCPConn)
		s.pair = [2][]byte{}
		return int(n), err
	}
	return s.transfer(&s.out, s.raw.Write, "write", p, q)
}

func (s *socket) transfer(t *transfer, wait func(func(uintptr) bool) error, op string, p, q []byte) (int, error) {
	t.parts, t.n, t.errno = [2][]byte{p, q}, 0, 0
	err := wait(t.step)
	t.parts, t.list = [2][]byte{}, [2]syscall.Iovec{} // an idle connection keeps no layer alive
	if t.errno != 0 && err == nil {
		err = &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(op, t.errno)}
	}
	return t.n, err
}

// read is done unless nothing is there.
func (t *transfer) read(fd uintptr) (done bool) {
	return t.call(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(t.parts[0])), len(t.parts[0]))
}

// write is done when everything is written, or when that cannot be.
func (t *transfer) write(fd uintptr) (done bool) {
	for len(t.parts[0])+len(t.parts[1]) > 0 {
		before := t.n
		for i, part := range t.parts {
			t.list[i].Base = unsafe.SliceData(part)
			t.list[i].SetLen(len(part))
		}
		parts := 2
		if len(t.parts[1]) == 0 {
			parts = 1 // which the kernel does faster
		}
		if !t.call(syscall.SYS_WRITEV, fd, unsafe.Pointer(&t.list), parts) {
			return false
		}
		if t.errno != 0 {
			break
		}
		t.drop(t.n - before)
	}
	return true
}

// drop takes away what is written.
func (t *transfer) drop(n int) {
	first := min(n, len(t.parts[0]))
	t.parts[0], t.parts[1] = t.parts[0][first:], t.parts[1][n-first:]
}

// call gives no processor away. It tells whether it could do something.
func (t *transfer) call(number, fd uintptr, what unsafe.Pointer, size int) bool {
	for {
		n, _, errno := syscall.RawSyscall(number, fd, uintptr(what), uintptr(size))
		switch errno {
		case 0:
			t.n += int(n)
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			t.errno = errno
		}
		return true
	}
}
