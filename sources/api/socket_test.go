package api

import (
	"bytes"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// sockets gives both ends of a connection, with a small buffer so that writes have to wait.
func sockets(t *testing.T) (ours net.Conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = dialed.Close(); _ = accepted.Close() })
	theirs = dialed.(*net.TCPConn)
	require.NoError(t, accepted.(*net.TCPConn).SetWriteBuffer(1<<17))
	return newSocket(accepted), theirs
}

// Pairs of all sizes arrive whole and in order, however slowly they are taken.
func TestSocketWrites(t *testing.T) {
	ours, theirs := sockets(t)
	sizes := []int{0, 1, 1000, 20_000, 100_000, 1 << 18, 1 << 20}
	var want bytes.Buffer
	var pairs [][2][]byte
	for _, m := range sizes {
		for _, n := range sizes {
			p := [2][]byte{bytes.Repeat([]byte{byte(want.Len())}, m), bytes.Repeat([]byte{byte(want.Len() + 1)}, n)}
			pairs = append(pairs, p)
			want.Write(p[0])
			want.Write(p[1])
		}
	}
	failed := make(chan error, 1)
	go func() {
		for i, p := range pairs {
			write := func() (int, error) { return writeBoth(ours, p[0], p[1]) }
			if i%2 == 0 {
				write = func() (int, error) { return ours.Write(append(bytes.Clone(p[0]), p[1]...)) }
			}
			if n, err := write(); err != nil || n != len(p[0])+len(p[1]) {
				failed <- err
				break
			}
		}
		failed <- ours.Close()
	}()
	got, err := io.ReadAll(theirs)
	require.NoError(t, err)
	require.NoError(t, <-failed)
	require.True(t, bytes.Equal(want.Bytes(), got))
}

func TestSocketReads(t *testing.T) {
	ours, theirs := sockets(t)
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)%77_777)
			_, _ = theirs.Write(rest[:n])
			rest = rest[n:]
		}
		_ = theirs.CloseWrite()
	}()
	n, err := ours.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	got, err := io.ReadAll(ours)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	_, err = ours.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err, "again, and bare")
}

// Errors are those of a net.TCPConn.
func TestSocketErrors(t *testing.T) {
	one := make([]byte, 1)
	f := func(prepare func(ours net.Conn, theirs *net.TCPConn), do func(net.Conn) (int, error), want error, op string) {
		t.Helper()
		ours, theirs := sockets(t)
		prepare(ours, theirs)
		_, err := do(ours)
		require.ErrorIs(t, err, want)
		var op1 *net.OpError
		require.ErrorAs(t, err, &op1)
		require.Equal(t, want == os.ErrDeadlineExceeded, op1.Timeout())
		require.Contains(t, op1.Op, op)
	}
	read := func(c net.Conn) (int, error) { return c.Read(one) }
	write := func(c net.Conn) (n int, err error) {
		for err == nil { // until the buffers are full
			n, err = c.Write(make([]byte, 1<<16))
		}
		return n, err
	}
	past := func(c net.Conn, _ *net.TCPConn) { _ = c.SetDeadline(time.Unix(1, 0)) }
	soon := func(c net.Conn, _ *net.TCPConn) { _ = c.SetDeadline(time.Now().Add(10 * time.Millisecond)) }
	closed := func(c net.Conn, _ *net.TCPConn) { _ = c.Close() }
	reset := func(c net.Conn, theirs *net.TCPConn) {
		_ = theirs.SetLinger(0)
		_ = theirs.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	f(past, read, os.ErrDeadlineExceeded, "read")
	f(past, write, os.ErrDeadlineExceeded, "write")
	f(soon, read, os.ErrDeadlineExceeded, "read")
	f(soon, write, os.ErrDeadlineExceeded, "write")
	f(closed, read, net.ErrClosed, "read")
	f(closed, write, net.ErrClosed, "write")
	f(reset, read, syscall.ECONNRESET, "read")
	f(func(c net.Conn, theirs *net.TCPConn) { reset(c, theirs); _, _ = c.Read(one) }, write, syscall.EPIPE, "write")
}

// A read under way ends when the connection is closed elsewhere.
func TestSocketClosedWhileReading(t *testing.T) {
	ours, _ := sockets(t)
	ended := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(5 * time.Millisecond) // for the read to begin; if it has not, it ends at once
	require.NoError(t, ours.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

// A connection that waits for its next request keeps nothing of the answer before alive.
func TestSocketKeepsNothing(t *testing.T) {
	ours, theirs := sockets(t)
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	f := func(size int) {
		t.Helper()
		write := func() (a, b weak.Pointer[byte]) {
			p, q := make([]byte, size), make([]byte, size)
			_, err := writeBoth(ours, p, q)
			require.NoError(t, err)
			return weak.Make(&p[0]), weak.Make(&q[0])
		}
		a, b := write()
		require.Eventually(t, func() bool {
			runtime.GC()
			return a.Value() == nil && b.Value() == nil
		}, patience, time.Millisecond)
	}
	f(1 << 10)
	f(1 << 20)
	_, err := ours.Write([]byte("still open"))
	require.NoError(t, err)
}
